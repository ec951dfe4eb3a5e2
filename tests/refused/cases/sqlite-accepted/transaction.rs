//! The control: the same calls with a transaction compile.
#![deny(unused_must_use)]

use postrider_core::{Event, HandlerName, NewEvent, Result};
use postrider_sqlite::{Outbox, accept};
use rusqlite::Transaction;

fn stage(tx: &Transaction<'_>, event: &Event, handler: &HandlerName) -> Result<()> {
    Outbox::new().enqueue(tx, &NewEvent::new("order", "42", "order.placed"))?;
    let _ = accept(tx, event, handler)?;
    Ok(())
}

fn main() {
    let _ = stage;
}
