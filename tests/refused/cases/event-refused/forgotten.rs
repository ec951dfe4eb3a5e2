//! An event that is not enqueued never happened.
#![deny(unused_must_use)]

use postrider::{Event, Result, TypedEvent};

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
#[must_use]
struct OrderPlaced {
    #[event(id)]
    order_id: u64,
}

/// A state change returns what it must tell.
fn place_order() -> OrderPlaced {
    OrderPlaced { order_id: 42 }
}

fn not_made() {
    place_order();
}

fn not_looked_at() {
    place_order().to_event();
}

fn not_enqueued() -> Result<()> {
    place_order().to_event()?;
    Ok(())
}

fn main() {}
