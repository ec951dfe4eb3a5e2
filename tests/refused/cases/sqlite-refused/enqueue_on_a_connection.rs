//! An event beside a transaction outlives the change it tells of.

use postrider_core::NewEvent;
use postrider_sqlite::Outbox;

fn stage(connection: &rusqlite::Connection) {
    let event = NewEvent::new("order", "42", "order.placed");
    let _ = Outbox::new().enqueue(connection, &event);
}

fn main() {}
