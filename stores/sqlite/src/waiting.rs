//! Waiting events: how they enter, change, come due, and make room for the next of their key.
//!
//! Invariants: of the events that hold a key only the first by number is ever due; when it leaves,
//! the next is promoted in the same transaction; and what is there already is never overwritten by
//! entering again.

use std::collections::HashSet;

use postrider_core::source::{DueRequest, Loaded};
use postrider_core::waiting::{
    Attempted, Counts, DETAIL_BYTES_MAX, Due, NewWaiting, Placement, Reason, RowRef, WaitingChange,
    WaitingRow, WaitingState,
};
use postrider_core::{
    Cursor, DestinationId, Error, ErrorKind, KeyHash, Lease, PartitionId, Result,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::During;
use crate::row::{Decoder, EVENT_COLUMNS};
use crate::store::{millis, now, signed, span, unsigned};
use crate::{lease, page, sql};

/// Events of one key that are handed out at once behind a head: a broker with prefix order takes
/// them in one batch, and a key with thousands parked does not crowd out the others.
const RUN_MAX: usize = 16;

/// Waiting rows beyond a cursor that are loaded: more than a window of them there cannot be.
const AHEAD_MAX: i64 = 10_000;

/// Whose waiting events, and when.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) destination: &'a DestinationId,
    pub(crate) partition: PartitionId,
    pub(crate) now: i64,
}

/// Copies events into `waiting`, lowest number first, so that each sees those before it.
pub(crate) fn enter(connection: &Connection, place: Place<'_>, new: &[NewWaiting]) -> Result<()> {
    let mut new: Vec<&NewWaiting> = new.iter().collect();
    new.sort_by_key(|event| event.row.seq);
    for event in new {
        if insert(connection, place, event).during("settle")? > 0 {
            demote(connection, place, event).during("settle")?;
        }
    }
    Ok(())
}

fn insert(connection: &Connection, place: Place<'_>, new: &NewWaiting) -> rusqlite::Result<usize> {
    let none = |reason| Attempted { attempts: 0, reason, detail: String::new() };
    let (state, holds_key, next_at, attempted) = match &new.placement {
        Placement::Behind(reason) => (WaitingState::Retrying, true, place.now, none(*reason)),
        Placement::Retry { delay, attempted } => {
            let next_at = place.now.saturating_add(millis(*delay));
            (WaitingState::Retrying, true, next_at, attempted.clone())
        }
        Placement::Disabled { attempted, .. } => {
            (WaitingState::Disabled, true, place.now, attempted.clone())
        }
        Placement::Dead { attempted, holds_key } => {
            (WaitingState::Dead, *holds_key, place.now, attempted.clone())
        }
    };
    let endpoint = match &new.placement {
        Placement::Disabled { endpoint, .. } => Some(&**endpoint),
        _ => None,
    };
    connection.prepare_cached(sql::WAITING_INSERT)?.execute(params![
        place.destination.as_str(),
        place.partition.0,
        signed(new.row.seq),
        new.key_hash.0.cast_signed(),
        state.as_str(),
        holds_key,
        next_at,
        attempted.attempts,
        attempted.reason.as_str(),
        cut(&attempted.detail),
        place.now,
        endpoint
    ])
}

/// Later events of the key that were due wait behind one that enters and holds the key.
fn demote(connection: &Connection, place: Place<'_>, new: &NewWaiting) -> rusqlite::Result<usize> {
    if matches!(new.placement, Placement::Dead { holds_key: false, .. }) {
        return Ok(0);
    }
    let row = params![place.destination.as_str(), place.partition.0, signed(new.row.seq)];
    connection.prepare_cached(sql::WAITING_DEMOTE)?.execute(row)
}

/// A detail, cut to the longest that is kept, between two characters.
fn cut(detail: &str) -> &str {
    &detail[..detail.floor_char_boundary(DETAIL_BYTES_MAX)]
}

/// Carries out what happened to events that were waiting.
pub(crate) fn change(
    connection: &Connection,
    place: Place<'_>,
    changes: &[WaitingChange],
) -> Result<()> {
    for change in changes {
        change_one(connection, place, change).during("settle")?;
    }
    Ok(())
}

fn change_one(
    connection: &Connection,
    place: Place<'_>,
    change: &WaitingChange,
) -> rusqlite::Result<()> {
    let destination = place.destination.as_str();
    let next_at = |delay| place.now.saturating_add(millis(delay));
    match change {
        WaitingChange::Delivered(row) | WaitingChange::Erased(row) => {
            if let Some(key) = key_of(connection, place, *row)? {
                connection
                    .prepare_cached(sql::WAITING_DELETE)?
                    .execute(params![destination, signed(row.seq)])?;
                promote(connection, place, &key)?;
            }
        }
        WaitingChange::Retry { row, delay, attempted } => {
            connection.prepare_cached(sql::WAITING_RETRY)?.execute(params![
                destination,
                signed(row.seq),
                next_at(*delay),
                attempted.attempts,
                attempted.reason.as_str(),
                cut(&attempted.detail),
                place.now
            ])?;
        }
        WaitingChange::Dead { row, attempted, holds_key } => {
            bury(connection, place, *row, attempted, *holds_key)?
        }
        WaitingChange::Disabled { row, endpoint, attempted } => {
            connection.prepare_cached(sql::WAITING_DISABLE)?.execute(params![
                destination,
                signed(row.seq),
                endpoint,
                attempted.reason.as_str(),
                cut(&attempted.detail),
                place.now
            ])?;
        }
        WaitingChange::Postpone { row, delay } => {
            connection.prepare_cached(sql::WAITING_POSTPONE)?.execute(params![
                destination,
                signed(row.seq),
                next_at(*delay)
            ])?;
        }
    }
    Ok(())
}

fn bury(
    connection: &Connection,
    place: Place<'_>,
    row: RowRef,
    attempted: &Attempted,
    holds_key: bool,
) -> rusqlite::Result<()> {
    let Some(key) = key_of(connection, place, row)? else {
        return Ok(());
    };
    connection.prepare_cached(sql::WAITING_BURY)?.execute(params![
        place.destination.as_str(),
        signed(row.seq),
        holds_key,
        attempted.attempts,
        attempted.reason.as_str(),
        cut(&attempted.detail),
        place.now
    ])?;
    if holds_key {
        return Ok(());
    }
    promote(connection, place, &key)
}

/// The key of a waiting event. As bytes, because the key of a row that is no event may be no text.
fn key_of(
    connection: &Connection,
    place: Place<'_>,
    row: RowRef,
) -> rusqlite::Result<Option<rusqlite::types::Value>> {
    connection
        .prepare_cached(sql::WAITING_READ_KEY)?
        .query_row(params![place.destination.as_str(), place.partition.0, signed(row.seq)], |row| {
            row.get(0)
        })
        .optional()
}

fn promote(
    connection: &Connection,
    place: Place<'_>,
    key: &rusqlite::types::Value,
) -> rusqlite::Result<()> {
    connection.prepare_cached(sql::WAITING_PROMOTE)?.execute(params![
        place.destination.as_str(),
        place.partition.0,
        key,
        place.now
    ])?;
    Ok(())
}

/// What is due, and which due rows cannot be read as events.
pub(crate) struct Found {
    pub(crate) due: Due,
    pub(crate) unreadable: Vec<(RowRef, String)>,
}

struct Head {
    seq: i64,
    key: rusqlite::types::Value,
    key_hash: KeyHash,
    holds_key: bool,
}

/// The runs whose heads are due, up to the limits.
pub(crate) fn due(connection: &Connection, request: &DueRequest) -> Result<Found> {
    let now = now(connection)?;
    let except: HashSet<KeyHash> = request.except.iter().copied().collect();
    let mut taking = Taking {
        connection,
        request,
        decoder: Decoder::new(&page::default_source(connection)?),
        bytes: 0,
        found: Found { due: Due::default(), unreadable: Vec::new() },
    };
    let place = params![request.destination.as_str(), request.lease.partition.0, now];
    let mut statement = connection.prepare_cached(sql::WAITING_DUE_HEADS).during("due")?;
    let mut rows = statement.query(place).during("due")?;
    let mut room = true;
    while room && let Some(row) = rows.next().during("due")? {
        let head = read_head(row).during("due")?;
        if !except.contains(&head.key_hash) {
            room = taking.take(&head).during("due")?;
        }
    }
    let next: Option<i64> = connection
        .prepare_cached(sql::WAITING_NEXT_DUE)
        .and_then(|mut statement| statement.query_row(place, |row| row.get(0)))
        .during("due")?;
    taking.found.due.next_in = next.map(|next| span(now, next));
    Ok(taking.found)
}

fn read_head(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        seq: row.get(0)?,
        key: row.get(1)?,
        key_hash: KeyHash(row.get::<_, i64>(2)?.cast_unsigned()),
        holds_key: row.get(3)?,
    })
}

/// An answer that grows run by run.
struct Taking<'a> {
    connection: &'a Connection,
    request: &'a DueRequest,
    decoder: Decoder,
    bytes: u64,
    found: Found,
}

impl Taking<'_> {
    /// Takes a head and what is parked directly behind it. Says whether there is room for more.
    fn take(&mut self, head: &Head) -> rusqlite::Result<bool> {
        let destination = self.request.destination.as_str();
        let mut statement;
        let mut rows = if head.holds_key {
            statement = self.connection.prepare_cached(sql::WAITING_RUN)?;
            let run = params![destination, self.request.lease.partition.0, head.key, head.seq];
            statement.query(run)?
        } else {
            statement = self.connection.prepare_cached(sql::WAITING_ONE)?;
            statement.query(params![destination, head.seq])?
        };
        let mut taken = 0;
        while let Some(row) = rows.next()? {
            let state: String = row.get(EVENT_COLUMNS)?;
            if taken > 0 && state != WaitingState::Parked.as_str() {
                break;
            }
            if taken == RUN_MAX {
                break;
            }
            if !self.push(row)? {
                return Ok(false);
            }
            taken += 1;
        }
        Ok(true)
    }

    /// Adds an event. Says no if there is no room for it.
    fn push(&mut self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let decoded = self.decoder.decode(row);
        let event = match decoded.event {
            Ok(event) => event,
            Err(malformed) => {
                self.found.unreadable.push((decoded.row, malformed.detail));
                return Ok(true);
            }
        };
        let rows = &mut self.found.due.rows;
        let full = rows.len() >= self.request.rows_max.max(1) as usize
            || (!rows.is_empty()
                && self.bytes.saturating_add(decoded.bytes) > self.request.bytes_max);
        if full {
            return Ok(false);
        }
        self.bytes = self.bytes.saturating_add(decoded.bytes);
        rows.push(WaitingRow {
            row: decoded.row,
            key_hash: KeyHash(row.get::<_, i64>(EVENT_COLUMNS + 3)?.cast_unsigned()),
            event,
            attempts: row.get(EVENT_COLUMNS + 1)?,
            late: row.get(EVENT_COLUMNS + 2)?,
            suspect: row.get::<_, String>(EVENT_COLUMNS + 4)? == Reason::Suspect.as_str(),
        });
        Ok(true)
    }
}

/// Puts back among the dead what came due and cannot be read: redriving it cannot help, and it
/// would be due for ever.
pub(crate) fn bury_unreadable(
    connection: &Connection,
    lease: &Lease,
    destination: &DestinationId,
    rows: &[(RowRef, String)],
) -> Result<()> {
    lease::fence(connection, lease, "due")?;
    let place = Place { destination, partition: lease.partition, now: now(connection)? };
    for (row, detail) in rows {
        let attempted =
            Attempted { attempts: 0, reason: Reason::Malformed, detail: detail.clone() };
        bury(connection, place, *row, &attempted, true).during("due")?;
    }
    Ok(())
}

/// Where a destination stands, and what waits there.
pub(crate) fn load(
    connection: &Connection,
    partition: PartitionId,
    destination: &DestinationId,
) -> Result<Loaded> {
    let place = params![destination.as_str(), partition.0];
    let read = || -> rusqlite::Result<Option<Loaded>> {
        let position: Option<i64> = connection
            .prepare_cached(sql::SETTLE_POSITION)?
            .query_row(place, |row| row.get(0))
            .optional()?;
        let Some(position) = position else {
            return Ok(None);
        };
        let waiting_keys = connection
            .prepare_cached(sql::WAITING_KEYS)?
            .query_map(place, |row| {
                Ok((KeyHash(row.get::<_, i64>(0)?.cast_unsigned()), row.get(1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        let waiting_ahead = connection
            .prepare_cached(sql::WAITING_AHEAD)?
            .query_map(params![destination.as_str(), partition.0, position, AHEAD_MAX], |row| {
                row.get(0).map(unsigned)
            })?
            .collect::<rusqlite::Result<_>>()?;
        let cursor = Cursor::number(unsigned(position));
        Ok(Some(Loaded { cursor, waiting_keys, waiting_ahead, replay_through: 0 }))
    };
    read().during("load")?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "load")
            .message("the destination is not in the store")
            .context("destination", destination)
    })
}

/// How many events of a destination wait.
pub(crate) fn counts(connection: &Connection, destination: &DestinationId) -> Result<Counts> {
    let mut statement = connection.prepare_cached(sql::WAITING_COUNTS).during("counts")?;
    let mut rows = statement.query([destination.as_str()]).during("counts")?;
    let mut counts = Counts::default();
    while let Some(row) = rows.next().during("counts")? {
        let (state, count): (String, i64) = row.try_into().during("counts")?;
        let count = unsigned(count);
        match state.parse::<WaitingState>()? {
            WaitingState::Retrying => counts.retrying = count,
            WaitingState::Parked => counts.parked = count,
            WaitingState::Held => counts.held = count,
            WaitingState::Disabled => counts.disabled = count,
            WaitingState::Dead => counts.dead = count,
            WaitingState::Discarded => {}
        }
    }
    Ok(counts)
}
