//! Nobody would know what happened.
use postrider::Event;

#[derive(serde::Serialize, Event)]
struct Bare {
    #[event(id)]
    order_id: u64,
}

#[derive(serde::Serialize, Event)]
#[event(version = 2)]
struct Versioned {
    #[event(id)]
    order_id: u64,
}

fn main() {}
