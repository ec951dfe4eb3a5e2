//! An event that is not enqueued never happened.
#![deny(unused_must_use)]

use postrider_core::NewEvent;

/// A state change returns what it must tell.
fn place_order() -> NewEvent {
    NewEvent::new("order", "42", "order.placed")
}

fn main() {
    place_order();
}
