//! A word that nothing here has, and the word that was meant.
use postrider::Event;

#[derive(serde::Serialize, Event)]
#[event(typ = "order.placed")]
struct OnTheStruct {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct OnAField {
    #[event(id, occured_at)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed", colour = "red")]
struct Strange {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed", tenant)]
struct Misplaced {
    #[event(id, version = 2)]
    order_id: u64,
}

fn main() {}
