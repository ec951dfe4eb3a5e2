//! Values out of rows for people to look at: what cannot be read is shown as far as it can.

use postrider_core::{Error, ErrorKind, EventId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::typed::{Moment, unsigned};

/// Text, whatever its bytes are: a database without an encoding hands on what it was given.
struct Lossy(String);

impl<'a> FromSql<'a> for Lossy {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> Result<Lossy, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Lossy(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(of: &Type) -> bool {
        <&str as FromSql>::accepts(of)
    }
}

/// A column's text; `None` for null.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    row.try_get::<_, Option<Lossy>>(column).ok().flatten().map(|text| text.0)
}

/// A column's text, empty for null.
pub(super) fn shown(row: &Row, column: usize) -> String {
    text(row, column).unwrap_or_default()
}

/// A column as a number that is not negative; 0 where it is none.
pub(super) fn count(row: &Row, column: usize) -> u64 {
    number(row, column).map_or(0, unsigned)
}

/// A column as a number; `None` for null.
pub(super) fn number(row: &Row, column: usize) -> Option<i64> {
    row.try_get(column).ok().flatten()
}

/// A column as a number of attempts, takeovers, or the like.
pub(super) fn small(row: &Row, column: usize) -> u32 {
    let number = row.try_get::<_, Option<i32>>(column).ok().flatten();
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// A column as a partition's number.
pub(super) fn partition(row: &Row, column: usize) -> i16 {
    row.try_get::<_, Option<i16>>(column).ok().flatten().unwrap_or_default()
}

/// A column as true or false; false for null.
pub(super) fn flag(row: &Row, column: usize) -> bool {
    row.try_get::<_, Option<bool>>(column).ok().flatten().unwrap_or_default()
}

/// A column as a moment; `None` for null.
pub(super) fn time(row: &Row, column: usize) -> Option<Timestamp> {
    row.try_get::<_, Option<Moment>>(column).ok().flatten().map(Timestamp::from)
}

/// A column as an event's id, if it is one.
pub(super) fn id(row: &Row, column: usize) -> Option<EventId> {
    let uuid = row.try_get::<_, Option<Uuid>>(column).ok().flatten()?;
    Some(EventId::from_u128(uuid.as_u128()))
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
