//! What is due of the waiting events: runs of one key each, the head due and the others behind it.
//!
//! Invariant: what is handed out was asked for under a lease that stood after the rows were read.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use postrider_core::Result;
use postrider_core::source::DueRequest;
use postrider_core::waiting::{Due, Reason, WaitingRow, WaitingState};

use crate::collection::single;
use crate::lease;
use crate::record::decode;
use crate::store::{DynamoStore, now_ms};
use crate::waiting::{Stored, Waiting};

/// How many events are read at once.
const EVENTS_AT_ONCE: usize = 8;

/// The waiting events whose turn has come.
pub(crate) async fn due(store: &DynamoStore, request: &DueRequest) -> Result<Due> {
    let lease = &request.lease;
    let shared = store.waiting(lease.partition, &request.destination);
    let mut cell = shared.lock().await;
    let waiting = match cell.take(lease.token) {
        Some(waiting) => waiting,
        None => store.read_waiting(lease.partition, &request.destination).await?,
    };
    let (chosen, next_in) = choose(&waiting, request, now_ms());
    cell.put(lease.token, waiting);
    drop(cell);
    let mut due = Due { rows: Vec::new(), next_in };
    if chosen.is_empty() {
        return Ok(due);
    }
    lease::check(store.connection(), "due", lease).await?;
    let reads = chosen.iter().map(|row| read(store, row)).collect::<Vec<_>>();
    let mut reads = stream::iter(reads).buffered(EVENTS_AT_ONCE);
    let mut bytes = 0u64;
    // A key whose event cannot be read now goes no further in this answer.
    let mut stopped = std::collections::HashSet::new();
    let mut at = chosen.iter();
    while let (Some(found), Some(stored)) = (reads.next().await, at.next()) {
        let Some(row) = found?.filter(|_| !stopped.contains(&stored.place.pk)) else {
            stopped.insert(std::sync::Arc::clone(&stored.place.pk));
            continue;
        };
        bytes = bytes.saturating_add(row.event.size_bytes());
        if !due.rows.is_empty() && bytes > request.bytes_max {
            due.next_in = Some(Duration::ZERO);
            break;
        }
        due.rows.push(row);
    }
    Ok(due)
}

/// Whole runs whose head is due, oldest first, up to the limit; and when the next head is.
fn choose(waiting: &Waiting, request: &DueRequest, now: i64) -> (Vec<Stored>, Option<Duration>) {
    let mut runs: Vec<Vec<&Stored>> = Vec::new();
    for line in waiting.lines() {
        let mut run: Vec<&Stored> = Vec::new();
        for row in line.filter(|row| row.holds()) {
            match (row.state, run.is_empty()) {
                _ if request.except.contains(&row.key_hash) => break,
                (WaitingState::Retrying, true) | (WaitingState::Parked, false) => run.push(row),
                _ => break,
            }
        }
        if !run.is_empty() {
            runs.push(run);
        }
    }
    runs.sort_by_key(|run| (run[0].due, run[0].row.seq));
    let rows_max = request.rows_max.max(1) as usize;
    let mut chosen: Vec<Stored> = Vec::new();
    for run in runs {
        if run[0].due > now || chosen.len() >= rows_max {
            let wait = u64::try_from((run[0].due - now).max(0)).unwrap_or_default();
            return (chosen, Some(Duration::from_millis(wait)));
        }
        chosen.extend(run.into_iter().take(rows_max - chosen.len()).cloned());
    }
    (chosen, None)
}

async fn read(store: &DynamoStore, row: &Stored) -> Result<Option<WaitingRow>> {
    let Some(item) = single(store.connection(), "due", &row.place).await? else {
        tracing::warn!(event = %row.row.id, "the item of a waiting event is gone; its key waits");
        return Ok(None);
    };
    let decoded = decode(&item, &row.place, store.default_source());
    Ok(decoded.event.ok().map(|event| WaitingRow {
        row: row.row,
        key_hash: row.key_hash,
        event,
        attempts: row.attempts,
        late: false,
        suspect: row.reason == Reason::Suspect,
    }))
}
