//! Nobody would know what it happened to.
use postrider::Event;

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct OrderPlaced {
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct Nothing;

fn main() {}
