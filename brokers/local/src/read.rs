//! Looking into the log without consuming it: for people, the demo, and tests.

use std::sync::Arc;

use postrider_core::{ErrorKind, Event};
use rusqlite::params;

use crate::database::Scope;
use crate::dead_letter::read_event;
use crate::trouble::{Step, Trouble};

/// A message of the log.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// Its number in the log: grows with every message of every topic, and is never used again.
    pub offset: u64,
    /// The event.
    pub event: Arc<Event>,
    /// Whether it was published out of its key's order on purpose.
    pub late: bool,
}

/// Messages of a topic after a number, in the log's order.
pub(crate) fn messages(
    scope: &Scope<'_>,
    topic: &str,
    after: i64,
    max: usize,
) -> Step<Vec<StoredMessage>> {
    let mut list = scope.connection.prepare_cached(include_str!("../sql/list_messages.sql"))?;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let mut rows = list.query(params![topic, after, max])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let document: Vec<u8> = row.get(2)?;
        let event = read_event(&document).0.map_err(|fault| {
            Trouble::Said(ErrorKind::Corrupt, format!("message {seq}: {fault}"))
        })?;
        messages.push(StoredMessage { offset: seq.cast_unsigned(), event, late: row.get(1)? });
    }
    Ok(messages)
}

/// The names of all topics, sorted.
pub(crate) fn topics(scope: &Scope<'_>) -> Step<Vec<String>> {
    let mut list = scope.connection.prepare_cached(include_str!("../sql/list_topics.sql"))?;
    let rows = list.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
