//! A marker beside a transaction would be committed alone.

use postrider_core::{Event, HandlerName};

fn act(connection: &rusqlite::Connection, event: &Event, handler: &HandlerName) {
    let _ = postrider_sqlite::accept(connection, event, handler);
}

fn main() {}
