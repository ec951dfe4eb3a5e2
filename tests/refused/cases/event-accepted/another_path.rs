//! A crate that hands Postrider on, and a struct that another macro writes.

mod framework {
    pub mod inner {
        pub use ::postrider;
    }
}

use framework::inner::postrider::{Event, TypedEvent};

macro_rules! events {
    ($($name:ident($id:ty, $tenant:ty) = $text:literal;)*) => {$(
        #[derive(serde::Serialize, Event)]
        #[event(type = $text, crate = "crate::framework::inner::postrider")]
        struct $name {
            #[event(id)]
            id: $id,
            #[event(tenant)]
            tenant: $tenant,
        }
    )*};
}

events! {
    Placed(u8, Option<&'static str>) = "order.placed";
    Cancelled(&'static str, String) = "order.cancelled";
}

fn main() -> Result<(), ::postrider::Error> {
    let placed = Placed { id: 1, tenant: Some("a") }.to_event()?;
    assert_eq!(placed.event().tenant.as_deref(), Some("a"));
    let cancelled = Cancelled { id: "2", tenant: "b".to_owned() }.to_event()?;
    assert_eq!(cancelled.key(), "order/2");
    Ok(())
}
