//! Taking the payloads of a key out of the store.
//!
//! Invariants: ids, times, and checksums stay, so that what was delivered is still proved and nothing
//! is delivered twice; and the row of the audit table commits before or with the first payload that
//! goes. To do it again finishes what a crash left. What is reached is what was committed when it began:
//! a transaction that was open then may commit another event of the key.
//!
//! **What is left on the disk.** PostgreSQL writes a new version of each row; the old one stays in the
//! table's file until vacuum takes it, and until its page is written over, and in the write-ahead log, its
//! archive, replicas that lag, and backups for as long as those are kept. `vacuum full` of what the
//! outbox's partitions and `waiting` had makes it certain for the files. An event that a relay has in its
//! hands at that moment is still delivered.

use postrider_core::Result;
use postrider_core::operate::{Erasure, Note};
use tokio_postgres::Row;

use super::note;
use super::value::invalid;
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{Param, params, signed, unsigned};

const FIND: Sql = sql!("operator/erase_find");
const FIND_ELSEWHERE: Sql = sql!("operator/erase_find_elsewhere");
const LAST_SEQ: Sql = sql!("operator/last_seq");
const LOOK: Sql = sql!("operator/erase_look");
const LOCK: Sql = sql!("operator/erase_lock");
const EVENTS: Sql = sql!("operator/erase_events");
const SCHEDULED: Sql = sql!("operator/erase_scheduled");
const WAIT: Sql = sql!("operator/erase_wait");
const LEFT: Sql = sql!("operator/erase_left");
const LEFTOVERS: Sql = sql!("operator/erase_leftovers");
const LEFTOVERS_LOOK: Sql = sql!("operator/erase_leftovers_look");

/// Numbers of the outbox that one statement looks through: far less than its deadline allows.
const STRETCH: u64 = 1_000_000;

/// Events that are erased in one transaction. Settlements of the key's partition wait for it, a second at most:
/// it takes some hundredths.
const BATCH: usize = 1_000;

/// The events of a key, by number.
#[derive(Default)]
struct Found {
    seqs: Vec<i64>,
    scheduled: Vec<i64>,
    /// How far the outbox was looked through.
    last: u64,
}

/// What an erasure would reach.
pub(super) async fn erasable(store: &PostgresStore, key: &str) -> Result<Erasure> {
    let session = store.sessions().connect("erasable").await?;
    let found = find(&session, "erasable", key).await?;
    let mut erasure = Erasure { scheduled: found.scheduled.len() as u64, ..Erasure::default() };
    let leftovers = session.row("erasable", &LEFTOVERS_LOOK, params![key]).await?;
    erasure.waiting += unsigned(leftovers.get(0));
    for batch in found.seqs.chunks(BATCH) {
        add(&mut erasure, &session.row("erasable", &LOOK, params![key, batch.to_vec()]).await?);
    }
    Ok(erasure)
}

/// Erases, in several transactions, the first of which has the row of the audit table.
pub(super) async fn erase(store: &PostgresStore, key: &str, note: &Note) -> Result<Erasure> {
    let note = note::checked(note)?;
    let session = store.sessions().connect("erase").await?;
    let found = find(&session, "erase", key).await?;
    let (events, scheduled) = (found.seqs.len(), found.scheduled.len());
    let mut begins =
        Some(note::subject(&format!("key {key}: {events} events, {scheduled} scheduled")));
    let mut erasure = Erasure::default();
    let none: &[i64] = &[];
    let first = found.seqs.is_empty().then_some(none);
    for batch in first.into_iter().chain(found.seqs.chunks(BATCH)) {
        let values = params![key, batch.to_vec(), note.who, note.why, begins];
        erase_batch(store, key, values, &mut erasure).await?;
        begins = None;
    }
    leftovers(&session, key, &mut erasure).await?;
    for batch in found.scheduled.chunks(BATCH) {
        erasure.scheduled += session.execute("erase", &SCHEDULED, params![batch.to_vec()]).await?;
    }
    let since = find_entered(&session, key, &found, erasure.scheduled).await?;
    // And a settlement may have copied an event that was not erased yet.
    session.rows("erase", &WAIT, params![key]).await?;
    let left: Vec<i64> = session.row("erase", &LEFT, params![key]).await?.get(0);
    for batch in since.chunks(BATCH).chain(left.chunks(BATCH)) {
        let values = params![key, batch.to_vec(), note.who, note.why, begins];
        erase_batch(store, key, values, &mut erasure).await?;
    }
    Ok(erasure)
}

/// One transaction. Its second statement sees what was settled before the first had its locks. Should this process stand
/// still between them, the server ends its session after 5 s (`session/setup.sql`), and the batch is undone.
async fn erase_batch(
    store: &PostgresStore,
    key: &str,
    values: &[Param<'_>],
    erasure: &mut Erasure,
) -> Result<()> {
    let tx = store.sessions().begin("erase").await?;
    tx.execute("erase", &LOCK, params![key]).await?;
    add(erasure, &tx.row("erase", &EVENTS, values).await?);
    tx.commit("erase").await
}

/// Events that have entered the outbox in between, `erased` of the scheduled ones having not. Whoever let one in has ended:
/// he was waited for at its scheduled row. But he may have drawn its number before the first look was at its end, so it
/// lies anywhere.
async fn find_entered(
    session: &Session,
    key: &str,
    found: &Found,
    erased: u64,
) -> Result<Vec<i64>> {
    let from = if erased < found.scheduled.len() as u64 { 0 } else { found.last + 1 };
    let mut entered = find_in_outbox(session, "erase", key, from).await?.seqs;
    entered.retain(|seq| found.seqs.binary_search(seq).is_err());
    Ok(entered)
}

/// Deletes what a removal that was cut off has left of the key.
async fn leftovers(session: &Session, key: &str, erasure: &mut Erasure) -> Result<()> {
    let batch = i64::try_from(BATCH).unwrap_or(i64::MAX);
    loop {
        let row = session.row("erase", &LEFTOVERS, params![key, batch]).await?;
        if row.get::<_, i64>(0) == 0 {
            return Ok(());
        }
        erasure.waiting += unsigned(row.get(1));
    }
}

fn add(erasure: &mut Erasure, row: &Row) {
    erasure.outbox += unsigned(row.get(0));
    erasure.waiting += unsigned(row.get(1));
    erasure.inbox += unsigned(row.get(2));
}

/// Looks for the events of a key.
async fn find(session: &Session, operation: &'static str, key: &str) -> Result<Found> {
    if key.is_empty() {
        return Err(invalid(operation, "no event has an empty key"));
    }
    let row = session.row(operation, &FIND_ELSEWHERE, params![key]).await?;
    let mut found = find_in_outbox(session, operation, key, 0).await?;
    found.seqs.extend(row.get::<_, Vec<i64>>(0));
    found.seqs.sort_unstable();
    found.seqs.dedup();
    found.scheduled = row.get(1);
    Ok(found)
}

/// Looks through the outbox from a number on, a stretch at a time.
async fn find_in_outbox(
    session: &Session,
    operation: &'static str,
    key: &str,
    from: u64,
) -> Result<Found> {
    let row = session.row(operation, &LAST_SEQ, params![]).await?;
    let number = |column| row.get::<_, Option<i64>>(column).map(unsigned);
    let last = number(1).unwrap_or_default();
    let mut found = Found { last: last.max(from.saturating_sub(1)), ..Found::default() };
    let mut next = number(0).map(|first| first.max(from));
    while let Some(from) = next.filter(|from| *from <= last) {
        let through = last.min(from.saturating_add(STRETCH - 1));
        let values = params![signed(from), signed(through), key];
        let row = session.row(operation, &FIND, values).await?;
        found.seqs.extend(row.get::<_, Vec<i64>>(0));
        next = row.get::<_, Option<i64>>(1).map(unsigned);
    }
    Ok(found)
}
