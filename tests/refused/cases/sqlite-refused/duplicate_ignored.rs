//! A handler that does not look at the answer acts on duplicates.
#![deny(unused_must_use)]

use postrider_core::{Event, HandlerName, Result};

fn act(tx: &rusqlite::Transaction<'_>, event: &Event, handler: &HandlerName) -> Result<()> {
    postrider_sqlite::accept(tx, event, handler)?;
    Ok(())
}

fn main() {}
