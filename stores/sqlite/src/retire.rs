//! Retiring: deleting events that nobody needs any more, a bounded number at a time.
//!
//! Invariants: only what every cursor has passed, what waits nowhere, and what is old enough goes, and
//! that is asked of each row again in the transaction that deletes it; what is asked for again stays
//! until it waits; every event from `history_start` on is there; and the next number is never given
//! anew, also if nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::{Event, PartitionId, Result};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::During;
use crate::row::Decoder;
use crate::settle::BUCKET;
use crate::store::{millis, now, signed, unsigned};
use crate::{lease, page, schema, sql};

/// Rows that are looked at in one go: enough for a page of thousands, and read in milliseconds. Where
/// nothing may be deleted, as among dead letters, the next look begins behind them.
const LOOK_MAX: usize = 4_000;

/// How often one call for an archive looks, where it finds nothing.
const LOOKS_MAX: usize = 16;

/// After so many rows in a row that are too young, all that follow are taken to be. Producers may say
/// what they like about the age of an event, so one is not enough.
const YOUNG_MAX: usize = 200;

/// What an archive is handed at once, in bytes of events, but at least one event.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// From where to look on, by the number before. Begins again from 0 when the end is reached, because
/// what was in the way may have gone meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Place(AtomicU64);

/// What may be deleted.
pub(crate) struct Found {
    seqs: Vec<u64>,
    /// A request that was finished long ago.
    request: bool,
    more: bool,
}

impl Found {
    /// The answer if there is nothing to delete.
    pub(crate) fn nothing(&self) -> Option<Retired> {
        let nothing = self.seqs.is_empty() && !self.request;
        nothing.then_some(Retired { rows: 0, more: self.more })
    }
}

/// The oldest events that may be deleted, by number. What is no event cannot be archived, and stays.
pub(crate) fn retirable(
    connection: &Connection,
    request: &RetireRequest,
    place: &Place,
) -> Result<Vec<Arc<Event>>> {
    for _ in 0..LOOKS_MAX {
        let found = look(connection, request, place)?;
        let events = events(connection, &found.seqs)?;
        if !events.is_empty() || !found.more {
            return Ok(events);
        }
        if let Some(last) = found.seqs.last() {
            place.0.store(*last, Ordering::Relaxed);
        }
    }
    Ok(Vec::new())
}

/// Those of the rows that can be read as events, up to the limit of bytes.
fn events(connection: &Connection, seqs: &[u64]) -> Result<Vec<Arc<Event>>> {
    let mut decoder = Decoder::new(&page::default_source(connection)?);
    let mut statement = connection.prepare_cached(sql::OUTBOX_FETCH).during("retire")?;
    let mut events = Vec::new();
    let mut bytes = 0u64;
    for seq in seqs.iter().copied().map(signed) {
        let decoded =
            statement.query_row((seq - 1, seq), |row| Ok(decoder.decode(row))).during("retire")?;
        let Ok(event) = decoded.event else { continue };
        bytes = bytes.saturating_add(decoded.bytes);
        if !events.is_empty() && bytes > BYTES_MAX {
            break;
        }
        events.push(event);
    }
    Ok(events)
}

/// Finds what may be deleted, without a lock.
pub(crate) fn find(
    connection: &Connection,
    request: &RetireRequest,
    place: &Place,
) -> Result<Found> {
    let mut found = match &request.only {
        None => look(connection, request, place)?,
        Some(_) => named(connection, request)?,
    };
    found.request = finished_before(connection, cutoff(connection, request)?)?.is_some();
    Ok(found)
}

/// Created before this moment is old enough.
fn cutoff(connection: &Connection, request: &RetireRequest) -> Result<i64> {
    Ok(now(connection)?.saturating_sub(millis(request.older_than)))
}

/// The number that every destination has passed; 0 while something of the partition is to be sent again
/// and not taken up. The recount has booked it as waiting, and would not find it a second time.
fn floor(connection: &Connection, partition: PartitionId) -> Result<i64> {
    let asked = connection
        .prepare_cached(sql::RETIRE_ASKED)
        .and_then(|mut statement| statement.exists([partition.0]))
        .during("retire")?;
    if asked {
        return Ok(0);
    }
    connection
        .prepare_cached(sql::RETIRE_FLOOR)
        .and_then(|mut statement| {
            statement.query_row([partition.0], |row| row.get::<_, Option<i64>>(0))
        })
        .map(Option::unwrap_or_default)
        .during("retire")
}

fn look(connection: &Connection, request: &RetireRequest, place: &Place) -> Result<Found> {
    lease::fence(connection, &request.lease, "retire")?;
    let partition = request.lease.partition;
    let (from, floor) = (place.0.load(Ordering::Relaxed), floor(connection, partition)?);
    let cutoff = cutoff(connection, request)?;
    let mut statement = connection.prepare_cached(sql::RETIRE_LOOK).during("retire")?;
    let mut rows =
        statement.query(params![signed(from), floor, cutoff, partition.0]).during("retire")?;
    let mut found = Found { seqs: Vec::new(), request: false, more: false };
    let (mut looked, mut young_run, mut last, mut cut) = (0, 0, from, false);
    while young_run < YOUNG_MAX
        && let Some(row) = rows.next().during("retire")?
    {
        let (seq, young, waits): (i64, bool, bool) = row.try_into().during("retire")?;
        let free = !young && !waits;
        let full = free && found.seqs.len() >= rows_max(request);
        found.more = full || looked == LOOK_MAX;
        if found.more {
            cut = !full;
            break;
        }
        if free {
            found.seqs.push(unsigned(seq));
        }
        (looked, last) = (looked + 1, unsigned(seq));
        young_run = if young { young_run + 1 } else { 0 };
    }
    // What is found is looked at again until it is deleted; of what is in its way only what fits.
    let next = match (cut, found.seqs.first()) {
        (true, Some(first)) => first.saturating_sub(1),
        (true, None) => last,
        (false, Some(_)) => from,
        (false, None) => 0,
    };
    place.0.store(next, Ordering::Relaxed);
    Ok(found)
}

/// The numbers of the events that the request names.
fn named(connection: &Connection, request: &RetireRequest) -> Result<Found> {
    lease::fence(connection, &request.lease, "retire")?;
    let ids = request.only.as_deref().unwrap_or_default();
    let mut statement = connection.prepare_cached(sql::RETIRE_SEQ).during("retire")?;
    let mut seqs = Vec::with_capacity(ids.len());
    for id in ids {
        let seq = statement.query_row([id.to_string()], |row| row.get(0).map(unsigned));
        seqs.extend(seq.optional().during("retire")?);
    }
    seqs.sort_unstable();
    let more = seqs.len() > rows_max(request);
    seqs.truncate(rows_max(request));
    Ok(Found { seqs, request: false, more })
}

fn rows_max(request: &RetireRequest) -> usize {
    request.rows_max.max(1) as usize
}

/// Deletes what was found and may still go, in the caller's transaction.
pub(crate) fn retire(
    connection: &Connection,
    request: &RetireRequest,
    found: &Found,
) -> Result<Retired> {
    lease::fence(connection, &request.lease, "retire")?;
    let partition = request.lease.partition;
    let (floor, cutoff) = (floor(connection, partition)?, cutoff(connection, request)?);
    let mut gone = Retired { rows: 0, more: found.more };
    let mut deleted: Option<(u64, u64)> = None;
    for seq in &found.seqs {
        let row = params![signed(*seq), floor, cutoff, partition.0];
        if delete(connection, row).during("retire")? {
            gone.rows += 1;
            deleted = Some((deleted.map_or(*seq, |(first, _)| first), *seq));
        }
    }
    if let Some((first, last)) = deleted {
        let discarded = params![signed(first), signed(last), partition.0];
        connection
            .prepare_cached(sql::RETIRE_DELETE_DISCARDED)
            .and_then(|mut statement| statement.execute(discarded))
            .during("retire")?;
        move_history_start(connection, partition, last + 1)?;
    }
    gone.more |= forget_requests(connection, cutoff, rows_max(request))?;
    Ok(gone)
}

fn delete(connection: &Connection, row: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<bool> {
    let deleted = connection.prepare_cached(sql::RETIRE_DELETE)?.execute(row)?;
    Ok(deleted > 0)
}

/// The history begins behind what was deleted, and the settled log with it.
fn move_history_start(connection: &Connection, partition: PartitionId, behind: u64) -> Result<()> {
    let start = schema::read_number(connection, "history_start")?.max(behind);
    connection
        .execute(sql::META_WRITE, ("history_start", start.to_string()))
        .and_then(|_| {
            connection
                .prepare_cached(sql::RETIRE_DELETE_SETTLED)?
                .execute(params![partition.0, signed(start / BUCKET)])
        })
        .map(drop)
        .during("retire")
}

fn finished_before(connection: &Connection, cutoff: i64) -> Result<Option<i64>> {
    connection
        .prepare_cached(sql::RETIRE_REQUEST)
        .and_then(|mut statement| statement.query_row([cutoff], |row| row.get(0)).optional())
        .during("retire")
}

/// Deletes requests that were finished long ago with their rows, so many rows at most. Says whether
/// there are more.
fn forget_requests(connection: &Connection, cutoff: i64, rows_max: usize) -> Result<bool> {
    let mut room = rows_max;
    while let Some(request) = finished_before(connection, cutoff)? {
        if room == 0 {
            return Ok(true);
        }
        let rows = forget_rows(connection, request, room).during("retire")?;
        connection
            .prepare_cached(sql::RETIRE_DELETE_REQUEST)
            .and_then(|mut statement| statement.execute([request]))
            .during("retire")?;
        room = room.saturating_sub(rows.max(1));
    }
    Ok(false)
}

/// Deletes rows of a request, so many at most.
fn forget_rows(connection: &Connection, request: i64, limit: usize) -> rusqlite::Result<usize> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows: Vec<(i64, String, i64)> = connection
        .prepare_cached(sql::RETIRE_REQUEST_ROWS)?
        .query_map([request, limit], |row| row.try_into())?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare_cached(sql::RETIRE_DELETE_REQUEST_ROW)?;
    for (partition, destination, seq) in &rows {
        statement.execute(params![request, partition, destination, seq])?;
    }
    Ok(rows.len())
}
