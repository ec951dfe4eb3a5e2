//! What the tests of each driver's crate share: where they play, what they enqueue, and what they accept.

use std::sync::Arc;

use postrider_core::{Event, EventId, HandlerName, NewEvent};

use crate::services;
use crate::suite::skip;

/// The address of a PostgreSQL server and the name of a schema that nobody has yet; nothing, with the reason
/// printed, where there is no server.
pub fn place(test: &str) -> Option<(String, String)> {
    let url = services::postgres().map_err(|reason| skip(test, &reason)).ok()?;
    let random = EventId::mint().as_u128() & (u128::MAX >> 16);
    Some((url, format!("t{random:028x}")))
}

/// An event with what is easily bound wrongly.
///
/// # Panics
/// Never: a number is JSON.
pub fn event(n: u32) -> NewEvent {
    NewEvent::new("order", n.to_string(), "order.placed")
        .json(&n)
        .expect("JSON")
        .tenant("acme")
        .header("note", "grüße {\"a\", \\}, NULL")
}

/// An event as it comes from a broker.
pub fn incoming(number: u128) -> Event {
    let mut event = Event::new(EventId::from_u128(number), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    event
}

/// A handler's name.
///
/// # Panics
/// Never: it is one.
pub fn billing() -> HandlerName {
    HandlerName::new("billing").expect("a name")
}

/// A query: how many wait for a lock with a statement about this schema.
pub fn waiting(schema: &str) -> String {
    format!(
        "select count(*) from pg_stat_activity
        where wait_event_type = 'Lock' and query like '%{schema}%' and pid <> pg_backend_pid()"
    )
}
