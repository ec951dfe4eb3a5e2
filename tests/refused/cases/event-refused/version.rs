//! Versions are numbers from 1.
use postrider::Event;

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed", version = 0)]
struct Zero {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed", version = "2")]
struct Text {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed", version = 4294967296)]
struct Large {
    #[event(id)]
    order_id: u64,
}

fn main() {}
