//! Taking the payloads of a key out of the store.
//!
//! Invariants: ids, times, and checksums stay, so that what was delivered is still proved and nothing
//! is delivered twice; and the row of the audit table commits before or with the first payload that
//! goes. To do it again finishes what a crash left.
//!
//! **What is left on the disk.** Erased bytes are overwritten with zeros as their pages are written
//! (`secure_delete`), and the write-ahead log, which holds the pages as they were, is emptied behind
//! it. What remains, and must be taken care of elsewhere: copies that had left `waiting` or the
//! schedule before, in pages that are free and not used again (`vacuum` takes them); the log, if
//! another program reads an old state for longer than 2 s; blocks that the file system or the drive
//! keeps; backups. An event that a relay has in its hands at that moment is still delivered.

use postrider_core::operate::{Erasure, Note, RowKey, Submission, Verb};
use postrider_core::{DestinationId, Result};
use rusqlite::{Connection, TransactionBehavior, params};

use super::value::{self, count, invalid, shown};
use super::{audit, request, sql};
use crate::error::During;
use crate::page;
use crate::store::{SqliteStore, signed};

/// Numbers of the outbox that are looked through at once, so that the reading thread is free again
/// soon.
const STRETCH: u64 = 100_000;

/// Events that are erased in one transaction: a fraction of a second of the write lock.
const BATCH: usize = 10_000;

/// The events of a key, by number.
#[derive(Clone, Default)]
struct Found {
    seqs: Vec<u64>,
    scheduled: Vec<u64>,
    /// How far the outbox and the schedule were looked through.
    through: u64,
    through_scheduled: u64,
}

/// What an erasure would reach.
pub(super) async fn erasable(store: &SqliteStore, key: &str) -> Result<Erasure> {
    let found = find(store, key).await?;
    let mut erasure = Erasure::default();
    for batch in found.seqs.chunks(BATCH) {
        let batch = batch.to_vec();
        let part = store.read("erasable", move |tx| look(tx, &batch)).await?;
        erasure = sum(erasure, part);
    }
    let scheduled = found.scheduled;
    let left = store.read("erasable", move |tx| {
        let mut left = 0;
        for seq in scheduled {
            let one =
                value::first(tx, "erasable", sql::ERASE_LOOK_SCHEDULED, [signed(seq)], |row| {
                    count(row, 0)
                })?;
            left += one.unwrap_or_default();
        }
        Ok(left)
    });
    erasure.scheduled = left.await?;
    Ok(erasure)
}

/// Erases. Up to 10,000 events in one transaction; more in several, the first of which has the row of
/// the audit table.
pub(super) async fn erase(store: &SqliteStore, key: &str, note: &Note) -> Result<Erasure> {
    let found = find(store, key).await?;
    let mut rest = found.seqs.clone();
    let first: Vec<u64> = rest.drain(..rest.len().min(BATCH)).collect();
    let (key, author) = (key.to_owned(), note.clone());
    let mut erasure = securely(store, move |tx| begin(tx, &key, &author, &found, &first)).await?;
    for batch in rest.chunks(BATCH) {
        let (batch, note) = (batch.to_vec(), note.clone());
        let part = securely(store, move |tx| erase_events(tx, &batch, &note)).await?;
        erasure = sum(erasure, part);
    }
    store.writer.call("erase", |connection| empty_log(connection)).await?;
    Ok(erasure)
}

fn sum(a: Erasure, b: Erasure) -> Erasure {
    Erasure {
        outbox: a.outbox + b.outbox,
        waiting: a.waiting + b.waiting,
        scheduled: a.scheduled + b.scheduled,
        inbox: a.inbox + b.inbox,
    }
}

/// Looks for the events of a key, a stretch at a time, without the write lock.
async fn find(store: &SqliteStore, key: &str) -> Result<Found> {
    if key.is_empty() {
        return Err(invalid("erase", "no event has an empty key"));
    }
    let name = key.to_owned();
    let mut found = store
        .read("erasable", move |tx| {
            let growth = value::first(tx, "erasable", crate::sql::OUTBOX_GROWTH, (), |row| {
                (count(row, 0), count(row, 1))
            })?;
            let (through, through_scheduled) = growth.unwrap_or_default();
            Ok(Found {
                seqs: numbers(tx, sql::ERASE_FIND_WAITING, params![name])?,
                scheduled: numbers(tx, sql::ERASE_FIND_SCHEDULED, params![0, name])?,
                through,
                through_scheduled,
            })
        })
        .await?;
    let mut from = 1;
    while from <= found.through {
        let through = found.through.min(from.saturating_add(STRETCH - 1));
        let (name, stretch) = (key.to_owned(), (signed(from), signed(through)));
        let part = store.read("erasable", move |tx| {
            // From the first that is there on: what was retired is not looked through.
            let next = value::first(tx, "erasable", sql::SEQUENCE, (), |row| count(row, 1))?;
            let of = params![stretch.0, stretch.1, name];
            Ok((next.unwrap_or_default(), numbers(tx, sql::ERASE_FIND, of)?))
        });
        let (first, part) = part.await?;
        found.seqs.extend(part);
        from = first.max(through + 1);
    }
    found.seqs.sort_unstable();
    found.seqs.dedup();
    Ok(found)
}

fn numbers(
    connection: &Connection,
    statement: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<u64>> {
    value::all(connection, "erase", statement, values, |row| count(row, 0))
}

fn destinations(connection: &Connection) -> Result<Vec<DestinationId>> {
    let names =
        value::all(connection, "erase", crate::sql::DESTINATION_LIST, (), |row| shown(row, 0))?;
    names.into_iter().map(DestinationId::new).collect()
}

/// Counts what is left to erase of some events.
fn look(connection: &Connection, seqs: &[u64]) -> Result<Erasure> {
    let destinations = destinations(connection)?;
    let mut erasure = Erasure::default();
    for seq in seqs {
        let event = Event::read(connection, &destinations, *seq)?;
        erasure.outbox += u64::from(event.in_outbox);
        erasure.waiting += event.copies.iter().filter(|copy| copy.left).count() as u64;
        if let Some((source, id)) = &event.named {
            let left = value::first(
                connection,
                "erasable",
                sql::ERASE_LOOK_INBOX,
                params![source, id],
                |row| count(row, 0),
            )?;
            erasure.inbox += left.unwrap_or_default();
        }
    }
    Ok(erasure)
}

/// An event as it stands before it is erased.
struct Event<'d> {
    in_outbox: bool,
    copies: Vec<WaitingCopy<'d>>,
    /// Its source and id, if it is anywhere.
    named: Option<(String, String)>,
}

struct WaitingCopy<'d> {
    destination: &'d DestinationId,
    left: bool,
    dead: bool,
}

impl<'d> Event<'d> {
    fn read(
        connection: &Connection,
        destinations: &'d [DestinationId],
        seq: u64,
    ) -> Result<Event<'d>> {
        let found = value::first(connection, "erase", sql::ERASE_LOOK, [signed(seq)], |row| {
            (count(row, 0) != 0, (shown(row, 2), shown(row, 1)))
        })?;
        let (in_outbox, mut named) =
            found.map_or((false, None), |(left, named)| (left, Some(named)));
        let mut copies = Vec::new();
        for destination in destinations {
            let place = params![destination.as_str(), signed(seq)];
            let copy = value::first(connection, "erase", sql::ERASE_LOOK_WAITING, place, |row| {
                let copy =
                    WaitingCopy { destination, left: count(row, 0) != 0, dead: count(row, 1) != 0 };
                (copy, (shown(row, 3), shown(row, 2)))
            })?;
            if let Some((copy, name)) = copy {
                copies.push(copy);
                named.get_or_insert(name);
            }
        }
        Ok(Event { in_outbox, copies, named })
    }
}

/// The first transaction: the row of the audit table, what came since the search, what is scheduled,
/// and the first events.
fn begin(
    connection: &Connection,
    key: &str,
    note: &Note,
    found: &Found,
    first: &[u64],
) -> Result<Erasure> {
    let mut seqs = first.to_vec();
    let newest = page::sequence(connection)?;
    let since = params![signed(found.through + 1), signed(newest), key];
    seqs.extend(numbers(connection, sql::ERASE_FIND, since)?);
    let mut scheduled = found.scheduled.clone();
    let since = params![signed(found.through_scheduled), key];
    scheduled.extend(numbers(connection, sql::ERASE_FIND_SCHEDULED, since)?);
    let subject = format!(
        "key {key}: {} events, {} scheduled",
        found.seqs.len() + seqs.len() - first.len(),
        scheduled.len()
    );
    audit::write(connection, note, "erase", &subject)?;
    let mut erasure = erase_events(connection, &seqs, note)?;
    let mut statement = connection.prepare_cached(sql::ERASE_SCHEDULED).during("erase")?;
    for seq in scheduled {
        erasure.scheduled += statement.execute([signed(seq)]).during("erase")? as u64;
    }
    Ok(erasure)
}

/// Erases some events everywhere, and asks for their dead letters to be sent again: the owner finds
/// nothing to send, settles them as erased, and their key flows.
fn erase_events(connection: &Connection, seqs: &[u64], note: &Note) -> Result<Erasure> {
    let destinations = destinations(connection)?;
    let mut erasure = Erasure::default();
    let mut dead = Vec::new();
    for seq in seqs {
        let event = Event::read(connection, &destinations, *seq)?;
        let number = signed(*seq);
        if event.in_outbox {
            erasure.outbox += run(connection, sql::ERASE_OUTBOX, params![number])?;
        }
        for copy in &event.copies {
            let place = params![copy.destination.as_str(), number];
            run(connection, sql::ERASE_WAITING, place)?;
            erasure.waiting += u64::from(copy.left);
            if copy.dead {
                dead.push(RowKey { destination: copy.destination.clone(), seq: *seq });
            }
        }
        if let Some((source, id)) = &event.named {
            erasure.inbox += erase_results(connection, source, id)?;
        }
    }
    for rows in dead.chunks(Submission::ROWS_MAX) {
        let verb = Verb::Redrive(rows.to_vec());
        request::submit_rows(connection, &Submission { verb, note: note.clone() })?;
    }
    Ok(erasure)
}

fn erase_results(connection: &Connection, source: &str, id: &str) -> Result<u64> {
    let event = params![source, id];
    let left = value::first(connection, "erase", sql::ERASE_LOOK_INBOX, event, |r| count(r, 0))?;
    run(connection, sql::ERASE_INBOX, event)?;
    run(connection, sql::ERASE_STEPS, event)?;
    Ok(left.unwrap_or_default())
}

fn run(connection: &Connection, statement: &str, values: impl rusqlite::Params) -> Result<u64> {
    connection
        .prepare_cached(statement)
        .and_then(|mut statement| statement.execute(values))
        .map(|rows| rows as u64)
        .during("erase")
}

/// Runs a write on a connection that overwrites what it deletes.
async fn securely<T: Send + 'static>(
    store: &SqliteStore,
    work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
) -> Result<T> {
    let run = move |connection: &mut Connection| {
        let before: i64 =
            connection.query_row("pragma secure_delete", (), |row| row.get(0)).during("erase")?;
        secure_delete(connection, 1)?;
        let outcome = in_transaction(connection, work);
        // Other writes need not pay for it.
        let restored = secure_delete(connection, before);
        let done = outcome?;
        restored?;
        Ok(done)
    };
    store.writer.call("erase", run).await
}

fn in_transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let tx =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).during("erase")?;
    let done = work(&tx)?;
    tx.commit().during("erase")?;
    Ok(done)
}

/// The pragma answers with what it was set to.
fn secure_delete(connection: &Connection, value: i64) -> Result<()> {
    connection.pragma_update_and_check(None, "secure_delete", value, |_| Ok(())).during("erase")
}

/// Writes the log into the file and cuts it to nothing. Who reads an old state keeps it from that for
/// as long; then the next checkpoint of anybody does it.
fn empty_log(connection: &Connection) -> Result<()> {
    connection.query_row("pragma wal_checkpoint(truncate)", (), |_| Ok(())).during("erase")
}
