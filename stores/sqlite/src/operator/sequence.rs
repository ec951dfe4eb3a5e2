//! Raising the store's sequence above everything that was passed already.
//!
//! Invariant: it is only ever raised, and only while nobody owns a partition: an owner knows how far
//! it has read.

use postrider_core::operate::Note;
use postrider_core::{Error, ErrorKind, Result};
use rusqlite::Connection;

use super::value::{self, count, shown};
use super::{audit, sql};
use crate::error::During;
use crate::store::{now, signed, span};

/// Repairs the sequence; returns what it was and what it is.
pub(super) fn repair(connection: &Connection, note: &Note) -> Result<(u64, u64)> {
    let now = now(connection)?;
    let owner = value::first(connection, "repair sequence", sql::LEASE_RUNNING, [now], |row| {
        (shown(row, 0), signed(count(row, 1)))
    })?;
    if let Some((owner, expires_at)) = owner {
        return Err(Error::new(ErrorKind::Busy, "repair sequence")
            .message("a relay owns a partition; stop it first. Nothing was changed")
            .context("owner", owner)
            .context("lease_left", format!("{} ms", span(now, expires_at).as_millis())));
    }
    let (before, after) =
        value::first(connection, "repair sequence", sql::SEQUENCE_NEEDED, (), |row| {
            (count(row, 0), count(row, 1))
        })?
        .unwrap_or_default();
    if after > before {
        let raised =
            connection.execute(sql::SEQUENCE_RAISE, [signed(after)]).during("repair sequence")?;
        if raised == 0 {
            connection.execute(sql::SEQUENCE_BEGIN, [signed(after)]).during("repair sequence")?;
        }
        audit::write(connection, note, "repair sequence", &format!("from {before} to {after}"))?;
    }
    Ok((before, after))
}
