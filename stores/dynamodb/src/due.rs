//! What is due of the waiting events: runs of one key each, the head due and the others behind it.
//!
//! Invariants: what is handed out was asked for under a lease that stood after the rows were read; a run
//! ends at an event that is not handed out; and a row that cannot be read, or whose item is gone, never
//! stays due.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::source::{DueRequest, Malformed};
use postrider_core::waiting::{
    Attempted, Due, Reason, Settlement, SettlementPart, WaitingChange, WaitingRow,
};
use postrider_core::{Event, KeyHash, Result};

use crate::collection::{SINGLES_MAX, singles};
use crate::item::Item;
use crate::record::{Place, decode};
use crate::store::{DynamoStore, now_ms};
use crate::waiting::{Stored, Waiting};
use crate::{derived, lease, remembered, settle};

/// Events of one key that are handed out at once behind a head: a broker with prefix order takes them in one
/// batch, and a key with thousands parked does not crowd out the others.
const RUN_MAX: usize = 16;
/// So often what cannot be read is put among the dead, and the question asked again; each time at least one
/// row goes.
const BURIALS_MAX: usize = 8;

/// The waiting events whose turn has come.
pub(crate) async fn due(store: &DynamoStore, request: &DueRequest) -> Result<Due> {
    let mut found = ask(store, request).await?;
    for _ in 0..BURIALS_MAX {
        if found.unreadable.is_empty() {
            break;
        }
        bury(store, request, found.unreadable).await?;
        found = ask(store, request).await?;
    }
    Ok(found.due)
}

/// What is due, and which due rows cannot be handed out.
#[derive(Default)]
struct Found {
    due: Due,
    unreadable: Vec<(Stored, Unreadable)>,
}

/// Why an event that waits cannot be handed out, now or ever.
struct Unreadable {
    reason: Reason,
    detail: String,
}

async fn ask(store: &DynamoStore, request: &DueRequest) -> Result<Found> {
    let lease = &request.lease;
    let shared = store.waiting(lease.partition, &request.destination);
    let mut cell = shared.lock().await;
    let choose = |waiting: &Waiting| choose(waiting, request, now_ms(), store.derives());
    let chosen = cell.of_token(lease.token).map(|(_, waiting)| choose(waiting));
    let (chosen, next_in) = match chosen {
        Some(chosen) => chosen,
        None => match remembered::take(store, lease, &request.destination, &mut cell).await? {
            Some((of, waiting)) => {
                let chosen = choose(&waiting);
                cell.put(of, waiting);
                chosen
            }
            // It was removed.
            None => return Ok(Found::default()),
        },
    };
    drop(cell);
    let mut found = Found { due: Due { rows: Vec::new(), next_in }, unreadable: Vec::new() };
    if chosen.is_empty() {
        return Ok(found);
    }
    lease::check(store.connection(), "due", lease).await?;
    let mut bytes = 0u64;
    // A run goes no further than an event that is not handed out.
    let mut stopped = HashSet::new();
    for rows in chosen.chunks(SINGLES_MAX) {
        let places: Vec<Place> = rows.iter().map(|row| row.place.clone()).collect();
        let items = singles(store.connection(), "due", &places).await?;
        for stored in rows {
            let key = (&stored.place.pk, stored.key_hash);
            let row = match read(store, stored, items.get(&stored.place.whichever())) {
                Ok(row) if !stopped.contains(&key) => row,
                Ok(_) => continue,
                Err(unreadable) => {
                    stopped.insert(key);
                    found.unreadable.push((stored.clone(), unreadable));
                    continue;
                }
            };
            bytes = bytes.saturating_add(row.event.size_bytes());
            if !found.due.rows.is_empty() && bytes > request.bytes_max {
                found.due.next_in = Some(Duration::ZERO);
                return Ok(found);
            }
            found.due.rows.push(row);
        }
    }
    Ok(found)
}

/// Puts among the dead what came due and cannot be handed out: it would be due for ever. Its key waits, as
/// behind any event that cannot be read, for what an operator says.
async fn bury(
    store: &DynamoStore,
    request: &DueRequest,
    rows: Vec<(Stored, Unreadable)>,
) -> Result<()> {
    let mut part = SettlementPart::new(request.destination.clone());
    for (stored, Unreadable { reason, detail }) in rows {
        tracing::warn!(event = %stored.row.id, %detail, "a waiting event is dead");
        let attempted = Attempted { attempts: stored.attempts, reason, detail };
        part.changes.push(WaitingChange::Dead { row: stored.row, attempted, holds_key: true });
    }
    settle::settle(store, &Settlement { lease: request.lease.clone(), parts: vec![part] }).await
}

/// Runs whose head is due, oldest first, up to the limit; and when the next head is. Where no events are made of
/// business items, what waits of them is not due: it is let be for a relay that makes them.
fn choose(
    waiting: &Waiting,
    request: &DueRequest,
    now: i64,
    derives: bool,
) -> (Vec<Stored>, Option<Duration>) {
    let ours = |row: &Stored| derives || row.place.version.is_none();
    let except: HashSet<KeyHash> = request.except.iter().copied().collect();
    let rows_max = request.rows_max.max(1) as usize;
    let mut chosen: Vec<Stored> = Vec::new();
    let runs = waiting.runs().filter(|(head, _)| !except.contains(&head.key_hash) && ours(head));
    for (head, run) in runs {
        if head.due > now || chosen.len() >= rows_max {
            let wait = u64::try_from((head.due - now).max(0)).unwrap_or_default();
            return (chosen, Some(Duration::from_millis(wait)));
        }
        let room = RUN_MAX.min(rows_max - chosen.len());
        chosen.extend(run.take_while(|row| ours(row)).take(room).cloned());
    }
    (chosen, None)
}

fn read(store: &DynamoStore, row: &Stored, item: Option<&Item>) -> Result<WaitingRow, Unreadable> {
    let unreadable = |it: Malformed| Unreadable { reason: it.reason, detail: it.detail };
    Ok(WaitingRow {
        row: row.row,
        key_hash: row.key_hash,
        event: event(store, row, item).map_err(unreadable)?,
        attempts: row.attempts,
        late: row.late,
        suspect: row.reason == Reason::Suspect,
        held: row.reason == Reason::Held,
    })
}

/// The event of a row, as its item is now.
pub(crate) fn event(
    store: &DynamoStore,
    row: &Stored,
    item: Option<&Item>,
) -> Result<Arc<Event>, Malformed> {
    if row.place.version.is_some() {
        return derived::waiting(store, row, item);
    }
    let Some(item) = item else {
        let detail = format!(
            "its item (pk `{}`, sk `{}`) is gone: somebody deleted it, so it cannot be delivered",
            row.place.pk.escape_debug(),
            row.place.sk.escape_debug()
        );
        return Err(Malformed { reason: Reason::Malformed, detail, event: None });
    };
    decode(item, &row.place, store.default_source()).event
}
