//! Dead letters: what a group gave up, why, and sending it again. A dead letter keeps its message in
//! the log, so what is redriven is the same event with the same id.

use std::sync::Arc;

use postrider_core::{ErrorKind, Event, Fault, Marks, Timestamp, cloudevents};
use rusqlite::{OptionalExtension, params};

use crate::database::Scope;
use crate::trouble::{Step, Trouble};

/// A message that a group gave up.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its number in the log.
    pub offset: u64,
    /// Where it was published.
    pub topic: Arc<str>,
    /// The event, or why what is stored is none.
    pub event: Result<Arc<Event>, Fault>,
    /// Whether it was published out of its key's order on purpose.
    pub late: bool,
    /// Why it was given up.
    pub reason: String,
    /// How many counted deliveries it had.
    pub count: u32,
    /// When it was given up.
    pub dead_at: Timestamp,
}

/// The group's dead letters after a number, in the log's order.
pub(crate) fn list(
    scope: &Scope<'_>,
    group_id: i64,
    after: i64,
    max: usize,
) -> Step<Vec<DeadLetter>> {
    let mut list = scope.connection.prepare_cached(include_str!("../sql/list_dead.sql"))?;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = list.query_map(params![group_id, after, max], |row| {
        let topic: String = row.get(1)?;
        let document: Vec<u8> = row.get(2)?;
        let dead_at_ms: i64 = row.get(6)?;
        Ok(DeadLetter {
            offset: row.get::<_, i64>(0)?.cast_unsigned(),
            topic: Arc::from(topic),
            event: read_event(&document).0,
            late: row.get(3)?,
            reason: row.get(4)?,
            count: row.get(5)?,
            dead_at: Timestamp::from_micros(dead_at_ms.saturating_mul(1_000)),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The event of a stored document, or why it is none, and how it is marked.
pub(crate) fn read_event(document: &[u8]) -> (Result<Arc<Event>, Fault>, Marks) {
    match cloudevents::parse(document) {
        Ok((event, marks)) => (Ok(Arc::new(event)), marks),
        Err(error) => (Err(Fault::new(error.kind(), error.to_string())), Marks::default()),
    }
}

/// Sends a dead letter to its group again, marked late: its key has gone on without it. It waits for
/// the message of its key that is at work, and goes before those that wait.
pub(crate) fn redrive(scope: &Scope<'_>, group_id: i64, seq: i64) -> Step<()> {
    let key_hash = take(scope, group_id, seq)?;
    let behind: bool = scope
        .connection
        .prepare_cached(include_str!("../sql/has_key.sql"))?
        .query_row(params![group_id, key_hash], |row| row.get(0))?;
    scope
        .connection
        .prepare_cached(include_str!("../sql/hold.sql"))?
        .execute(params![group_id, seq, key_hash, !behind, true, 0, 0, 0])?;
    scope.wake.set(true);
    Ok(())
}

/// Gives a dead letter up for good; returns nothing, and the message may be purged.
pub(crate) fn discard(scope: &Scope<'_>, group_id: i64, seq: i64) -> Step<()> {
    take(scope, group_id, seq).map(|_| ())
}

fn take(scope: &Scope<'_>, group_id: i64, seq: i64) -> Step<i64> {
    let key_hash: Option<i64> = scope
        .connection
        .prepare_cached(include_str!("../sql/take_dead.sql"))?
        .query_row(params![group_id, seq], |row| row.get(0))
        .optional()?;
    key_hash.ok_or_else(|| {
        let detail = format!("message {seq} is no dead letter of the group");
        Trouble::Said(ErrorKind::NotFound, detail)
    })
}
