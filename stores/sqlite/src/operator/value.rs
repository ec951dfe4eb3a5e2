//! Values out of rows for people to look at: what cannot be read is shown as far as it can.

use postrider_core::{Error, ErrorKind, EventId, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::error::During;

/// A moment of the database's clock.
pub(super) fn moment(millis: i64) -> Timestamp {
    Timestamp::from_micros(millis.saturating_mul(1_000))
}

/// A moment in milliseconds, rounded down.
pub(super) fn to_millis(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(1_000)
}

/// A column's text, whatever its bytes are; `None` for null.
pub(super) fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        Ok(ValueRef::Integer(number)) => Some(number.to_string()),
        _ => None,
    }
}

/// A column's text, empty for null.
pub(super) fn shown(row: &Row<'_>, column: usize) -> String {
    text(row, column).unwrap_or_default()
}

/// A column as a number that is not negative; 0 where it is none.
pub(super) fn count(row: &Row<'_>, column: usize) -> u64 {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(number)) => u64::try_from(number).unwrap_or_default(),
        _ => 0,
    }
}

/// A column as a number of attempts, takeovers, or the like.
pub(super) fn small(row: &Row<'_>, column: usize) -> u32 {
    u32::try_from(count(row, column)).unwrap_or(u32::MAX)
}

/// A column as an RFC 3339 time, if it is one.
pub(super) fn time(row: &Row<'_>, column: usize) -> Option<Timestamp> {
    text(row, column)?.parse().ok()
}

/// A column as an event's id, if it is one.
pub(super) fn id(row: &Row<'_>, column: usize) -> Option<EventId> {
    text(row, column)?.parse().ok()
}

/// A column of milliseconds as a moment; `None` for null.
pub(super) fn moment_at(row: &Row<'_>, column: usize) -> Option<Timestamp> {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(millis)) => Some(moment(millis)),
        _ => None,
    }
}

/// The first row of a statement, read by `read`, if there is one.
pub(super) fn first<T>(
    connection: &Connection,
    operation: &'static str,
    statement: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> T,
) -> postrider_core::Result<Option<T>> {
    connection
        .prepare_cached(statement)
        .and_then(|mut statement| statement.query_row(values, |row| Ok(read(row))).optional())
        .during(operation)
}

/// Every row of a statement, read by `read`. For statements whose answer is bounded.
pub(super) fn all<T>(
    connection: &Connection,
    operation: &'static str,
    statement: &str,
    values: impl Params,
    mut read: impl FnMut(&Row<'_>) -> T,
) -> postrider_core::Result<Vec<T>> {
    connection
        .prepare_cached(statement)
        .and_then(|mut statement| {
            let rows = statement.query_map(values, |row| Ok(read(row)))?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        })
        .during(operation)
}

/// The error for a name that is not in the store.
pub(super) fn not_found(operation: &'static str, what: &'static str, name: impl ToString) -> Error {
    Error::new(ErrorKind::NotFound, operation)
        .message(format!("there is no such {what} in the store; nothing was changed"))
        .context(what, name)
}

/// The error for input that breaks a rule.
pub(super) fn invalid(operation: &'static str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, operation).message(message)
}
