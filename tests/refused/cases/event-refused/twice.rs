//! One word, one place.
use postrider::Event;

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct TwoIds {
    #[event(id)]
    order_id: u64,
    #[event(id)]
    customer: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
#[event(type = "order.placed")]
struct TwoTypes {
    #[event(id, id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct TwoHeaders {
    #[event(id, header = "x")]
    order_id: u64,
    #[event(header = "x")]
    customer: u64,
}

fn main() {}
