//! Waiting events: how they enter, change, and make room for the next of their key.
//!
//! Invariants: of the events that hold a key only the first by number is ever due; when it leaves,
//! the next is promoted in the same transaction; and what is there already is never overwritten by
//! entering again.

use postrider_core::source::Loaded;
use postrider_core::waiting::{
    Attempted, Counts, DETAIL_BYTES_MAX, NewWaiting, Placement, RowRef, WaitingChange, WaitingState,
};
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, KeyHash, PartitionId, Result};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::During;
use crate::store::{millis, signed, unsigned};
use crate::{endpoint, range, settle, sql};

/// Waiting rows beyond a cursor that are loaded. While a relay goes forward there is a window of them
/// at most; behind a cursor that was set back there may be all that wait, and one that is not known
/// would be sent although an operator let it go. A million numbers are a few megabytes.
const AHEAD_MAX: i64 = 1_000_000;

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
        let lets_go = matches!(event.placement, Placement::Dead { holds_key: false, .. });
        if insert(connection, place, event).during("settle")? > 0 && !lets_go {
            demote(connection, place, event.row.seq).during("settle")?;
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
            (WaitingState::of_timed(attempted.reason), true, next_at, attempted.clone())
        }
        Placement::Disabled { attempted, .. } => {
            (WaitingState::Disabled, true, place.now, attempted.clone())
        }
        Placement::Dead { attempted, holds_key } => {
            (WaitingState::Dead, *holds_key, place.now, attempted.clone())
        }
    };
    let (state, endpoint) = match &new.placement {
        Placement::Disabled { endpoint, .. } if is_disabled(connection, place, endpoint)? => {
            (state, Some(&**endpoint))
        }
        // It was enabled while this was on its way: nobody would let the event out.
        Placement::Disabled { .. } => (WaitingState::Retrying, None),
        _ => (state, None),
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

fn is_disabled(connection: &Connection, place: Place<'_>, topic: &str) -> rusqlite::Result<bool> {
    endpoint::is_disabled(connection, place.destination, topic)
}

/// Later events of the key that were due wait behind one that enters and holds the key.
pub(crate) fn demote(
    connection: &Connection,
    place: Place<'_>,
    seq: u64,
) -> rusqlite::Result<usize> {
    let row = params![place.destination.as_str(), place.partition.0, signed(seq)];
    connection.prepare_cached(sql::WAITING_DEMOTE)?.execute(row)
}

/// A detail, cut to the longest that is kept, between two characters.
pub(crate) fn cut(detail: &str) -> &str {
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
            if let Some(key) = key_of(connection, place, row.seq)? {
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
                place.now,
                WaitingState::of_timed(attempted.reason).as_str()
            ])?;
        }
        WaitingChange::Dead { row, attempted, holds_key } => {
            bury(connection, place, *row, attempted, *holds_key)?
        }
        WaitingChange::Disabled { row, endpoint, attempted } => {
            disable(connection, place, *row, endpoint, attempted)?
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

/// Has an event wait for its endpoint. One that was enabled while this was on its way lets it be due
/// again: nobody would let the event out.
fn disable(
    connection: &Connection,
    place: Place<'_>,
    row: RowRef,
    topic: &str,
    attempted: &Attempted,
) -> rusqlite::Result<()> {
    let (destination, seq) = (place.destination.as_str(), signed(row.seq));
    if !is_disabled(connection, place, topic)? {
        connection.prepare_cached(sql::WAITING_POSTPONE)?.execute(params![
            destination,
            seq,
            place.now
        ])?;
        return Ok(());
    }
    connection.prepare_cached(sql::WAITING_DISABLE)?.execute(params![
        destination,
        seq,
        topic,
        attempted.reason.as_str(),
        cut(&attempted.detail),
        place.now
    ])?;
    Ok(())
}

/// Gives an event up; the next of its key is promoted if it lets that go.
pub(crate) fn bury(
    connection: &Connection,
    place: Place<'_>,
    row: RowRef,
    attempted: &Attempted,
    holds_key: bool,
) -> rusqlite::Result<()> {
    let Some(key) = key_of(connection, place, row.seq)? else {
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
pub(crate) fn key_of(
    connection: &Connection,
    place: Place<'_>,
    seq: u64,
) -> rusqlite::Result<Option<rusqlite::types::Value>> {
    connection
        .prepare_cached(sql::WAITING_READ_KEY)?
        .query_row(params![place.destination.as_str(), place.partition.0, signed(seq)], |row| {
            row.get(0)
        })
        .optional()
}

/// The first that holds a key becomes due, if it was parked.
pub(crate) fn promote(
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

/// Where a destination stands, and what waits there.
pub(crate) fn load(
    connection: &Connection,
    partition: PartitionId,
    destination: &DestinationId,
) -> Result<Loaded> {
    let place = params![destination.as_str(), partition.0];
    let read = || -> rusqlite::Result<Option<Loaded>> {
        let Some((position, replay_through)) =
            settle::position(connection, destination, partition)?
        else {
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
            .query_map(
                params![destination.as_str(), partition.0, signed(position), AHEAD_MAX],
                |row| row.get(0).map(unsigned),
            )?
            .collect::<rusqlite::Result<_>>()?;
        let cursor = Cursor::number(position);
        let ranges = Some(range::list(connection, place)?);
        Ok(Some(Loaded { cursor, waiting_keys, waiting_ahead, replay_through, ranges }))
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
