//! Reading what was committed, in order.
//!
//! SQLite has one writer, so numbers are given in the order of commits: everything behind a cursor
//! is everything with a greater number. Invariant: what is handed out is durable.

use postrider_core::source::{FetchRequest, FetchedRow, Page};
use postrider_core::{Cursor, Error, ErrorKind, Result};
use rusqlite::Connection;

use crate::error::During;
use crate::file::StoreFile;
use crate::row::Decoder;
use crate::store::{signed, unsigned};
use crate::{schema, settle, sql};

/// The highest number that was ever given.
pub(crate) fn sequence(connection: &Connection) -> Result<u64> {
    connection
        .prepare_cached(sql::OUTBOX_SEQUENCE)
        .and_then(|mut statement| statement.query_row((), |row| row.get(0)))
        .map(unsigned)
        .during("read sequence")
}

/// The default of `outbox.source`.
pub(crate) fn default_source(connection: &Connection) -> Result<String> {
    Ok(schema::read_meta(connection, "source")?.unwrap_or_else(|| "/outbox".to_owned()))
}

/// The page behind a cursor.
pub(crate) fn fetch(
    connection: &Connection,
    request: &FetchRequest,
    file: &StoreFile,
) -> Result<Page> {
    for destination in &request.destinations {
        let stands = settle::position(connection, destination, request.lease.partition);
        if stands.during("fetch")?.is_none() {
            // What is sent under a name that it had is not saved: a relay that has not heard reads no further.
            return Err(Error::new(ErrorKind::NotFound, "fetch")
                .message("the destination is not in the store: it was removed or renamed")
                .context("destination", destination));
        }
    }
    let after = request.after.position();
    let sequence = sequence(connection)?;
    // What lies between two cursors ends with the one that is ahead: rows up to it may have higher numbers than the sequence says.
    let ahead = request.until.as_ref().map_or(after, |until| until.position().max(after));
    if sequence < ahead {
        return Err(Error::new(ErrorKind::Rewound, "fetch")
            .message(
                "the outbox numbers lie behind the cursor: the database was restored or replaced",
            )
            .context("sequence", sequence)
            .context("cursor", ahead));
    }
    let until = request.until.as_ref().map_or(sequence, Cursor::position);
    let mut decoder = Decoder::new(&default_source(connection)?);
    let mut statement = connection.prepare_cached(sql::OUTBOX_FETCH).during("fetch")?;
    let mut found = statement.query((signed(after), signed(until))).during("fetch")?;
    let rows_max = request.rows_max.max(1) as usize;
    // A page is rarely full while the relay is idle, and rarely short while it is busy.
    let mut rows: Vec<FetchedRow> = Vec::with_capacity(rows_max.min(1_024).min(span(after, until)));
    let mut bytes = 0u64;
    let mut more = false;
    while let Some(row) = found.next().during("fetch")? {
        if rows.len() == rows_max {
            more = true;
            break;
        }
        let row = decoder.decode(row);
        if !rows.is_empty() && bytes.saturating_add(row.bytes) > request.bytes_max {
            more = true;
            break;
        }
        bytes = bytes.saturating_add(row.bytes);
        rows.push(FetchedRow {
            row: row.row,
            cursor: request.after.at(row.row.seq),
            key_hash: row.key_hash,
            bytes: row.bytes,
            event: row.event,
        });
    }
    let last = rows.last().map_or(after, |row| row.row.seq);
    if !rows.is_empty() {
        file.make_durable(last, sequence)?;
    }
    // Up to the sequence as this snapshot has it there is nothing more: what was purged is gone,
    // and what comes gets a greater number.
    let end = if more { last } else { until.max(after) };
    Ok(Page { rows, end: Cursor::number(end), more })
}

fn span(after: u64, until: u64) -> usize {
    usize::try_from(until.saturating_sub(after)).unwrap_or(usize::MAX)
}
