//! Ranges: what of a key the cursor has passed and nobody has copied, from a number on.
//!
//! Invariants: a range changes only where it stands as the relay believes, in the transaction of what it is about; and what it
//! stands for is neither deleted nor sent again by hand before it was copied.

use postrider_core::range::{Range, RangeChange};
use postrider_core::{Cursor, KeyHash, Result};
use rusqlite::{Connection, params};

use crate::error::During;
use crate::sql;
use crate::store::{signed, unsigned};
use crate::waiting::Place;

/// Carries out what a settlement says of ranges, in order.
pub(crate) fn change(
    connection: &Connection,
    place: Place<'_>,
    changes: &[RangeChange],
) -> Result<()> {
    changes.iter().try_for_each(|change| change_one(connection, place, change)).during("settle")
}

fn change_one(
    connection: &Connection,
    place: Place<'_>,
    change: &RangeChange,
) -> rusqlite::Result<()> {
    let (destination, partition) = (place.destination.as_str(), place.partition.0);
    let number = |cursor: &Cursor| signed(cursor.position());
    let hash = |key_hash: &KeyHash| key_hash.0.cast_signed();
    match change {
        RangeChange::Open(range) => connection.prepare_cached(sql::RANGE_OPEN)?.execute(params![
            destination,
            partition,
            hash(&range.key_hash),
            &*range.key,
            number(&range.cursor),
            signed(range.version),
            place.now
        ]),
        RangeChange::Move { key_hash, from, to } => connection
            .prepare_cached(sql::RANGE_MOVE)?
            .execute(params![destination, partition, hash(key_hash), number(from), number(to)]),
        RangeChange::Close { key_hash, from } => connection
            .prepare_cached(sql::RANGE_CLOSE)?
            .execute(params![destination, partition, hash(key_hash), number(from)]),
    }
    .map(drop)
}

/// The ranges of a destination, oldest first.
pub(crate) fn list(
    connection: &Connection,
    place: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Vec<Range>> {
    let mut statement = connection.prepare_cached(sql::RANGE_LIST)?;
    let rows = statement.query_map(place, |row| {
        Ok(Range {
            key_hash: KeyHash(row.get::<_, i64>(0)?.cast_unsigned()),
            key: row.get(1)?,
            cursor: Cursor::number(unsigned(row.get(2)?)),
            version: unsigned(row.get(3)?),
        })
    })?;
    rows.collect()
}

/// Whether a range stands for an event that the cursor has passed and that does not wait.
pub(crate) fn covers(
    connection: &Connection,
    place: Place<'_>,
    key_hash: KeyHash,
    seq: i64,
) -> rusqlite::Result<bool> {
    let event =
        params![place.destination.as_str(), place.partition.0, key_hash.0.cast_signed(), seq];
    connection.prepare_cached(sql::RANGE_COVERS)?.exists(event)
}

/// The first number that a range of the destination may stand for, if it has any.
pub(crate) fn first(connection: &Connection, place: Place<'_>) -> rusqlite::Result<Option<u64>> {
    let least: Option<i64> = connection
        .prepare_cached(sql::RANGE_LEAST)?
        .query_row(params![place.destination.as_str(), place.partition.0], |row| row.get(0))?;
    Ok(least.map(|position| unsigned(position) + 1))
}

/// Ends all of a destination, whose cursor was set back to before them.
pub(crate) fn end(connection: &Connection, place: Place<'_>) -> rusqlite::Result<()> {
    let of = params![place.destination.as_str(), place.partition.0];
    connection.prepare_cached(sql::RANGE_END)?.execute(of).map(drop)
}
