//! Ranges, for people: of which keys more waits than is copied.

use postrider_core::{KeyHash, Result, Timestamp};
use rusqlite::Connection;

use super::sql;
use super::value::{self, count, moment, shown};
use crate::store::signed;

/// A range as it stands.
pub(super) struct RangeRow {
    pub(super) destination: String,
    pub(super) partition: u16,
    pub(super) key_hash: KeyHash,
    pub(super) key: String,
    pub(super) position: u64,
    pub(super) version: u64,
    pub(super) opened_at: Timestamp,
}

/// All of them, oldest first: there are few of each destination.
pub(super) fn read(connection: &Connection) -> Result<Vec<RangeRow>> {
    value::all(connection, "read ranges", sql::RANGES, (), |row| RangeRow {
        destination: shown(row, 0),
        partition: u16::try_from(count(row, 1)).unwrap_or(u16::MAX),
        key_hash: KeyHash(row.get::<_, i64>(2).unwrap_or_default().cast_unsigned()),
        key: shown(row, 3),
        position: count(row, 4),
        version: count(row, 5),
        opened_at: moment(signed(count(row, 6))),
    })
}
