//! What is not text cannot be an id, and what may be missing cannot be one either.
use postrider::Event;

#[derive(serde::Serialize)]
struct OrderId(u64);

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct NoText {
    #[event(id)]
    order_id: OrderId,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct Missing {
    #[event(id)]
    order_id: Option<u64>,
}

fn main() {}
