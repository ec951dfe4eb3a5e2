//! Which waiting events are due: the heads whose time has come, each with the run behind it.
//!
//! Invariants: of the events that hold a key only the first by number is handed out as a head; and a
//! row that cannot be read never stays due.

use std::collections::HashSet;

use postrider_core::source::DueRequest;
use postrider_core::waiting::{Attempted, Due, Reason, RowRef, WaitingRow, WaitingState};
use postrider_core::{DestinationId, KeyHash, Lease, Result};
use rusqlite::{Connection, Row, params};

use crate::error::During;
use crate::row::{Decoder, EVENT_COLUMNS};
use crate::store::{now, span};
use crate::waiting::{Place, bury};
use crate::{lease, page, sql};

/// Events of one key that are handed out at once behind a head: a broker with prefix order takes
/// them in one batch, and a key with thousands parked does not crowd out the others.
const RUN_MAX: usize = 16;

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
        let reason: String = row.get(EVENT_COLUMNS + 4)?;
        rows.push(WaitingRow {
            row: decoded.row,
            key_hash: KeyHash(row.get::<_, i64>(EVENT_COLUMNS + 3)?.cast_unsigned()),
            event,
            attempts: row.get(EVENT_COLUMNS + 1)?,
            late: row.get(EVENT_COLUMNS + 2)?,
            suspect: reason == Reason::Suspect.as_str(),
            held: reason == Reason::Held.as_str(),
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
