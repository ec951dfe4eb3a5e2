//! A type becomes part of topics.
use postrider::Event;

#[derive(serde::Serialize, Event)]
#[event(type = "order placed")]
struct Spaced {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order-placed")]
struct Dashed {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order..placed")]
struct Dotted {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "")]
struct Empty {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = OrderPlaced)]
struct NoText {
    #[event(id)]
    order_id: u64,
}

fn main() {}
