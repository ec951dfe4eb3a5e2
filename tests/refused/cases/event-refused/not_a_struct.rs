//! An event has one type and one version.
use postrider::Event;

#[derive(serde::Serialize, Event)]
enum Order {
    #[event(type = "order.placed")]
    Placed { order_id: u64 },
    #[event(type = "order.cancelled")]
    Cancelled { order_id: u64 },
}

#[derive(Event)]
#[event(type = "order.placed")]
union Either {
    order_id: u64,
    customer: u64,
}

fn main() {}
