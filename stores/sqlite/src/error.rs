//! How SQLite's errors become Postrider's: by what a caller can do about them.

use postrider_core::{Code, Error, ErrorKind, Result};
use rusqlite::{ErrorCode, ffi};

/// Says during which operation an error of SQLite happened.
pub(crate) trait During<T> {
    /// Turns the error into one of ours, with the operation's name.
    fn during(self, operation: &'static str) -> Result<T>;
}

impl<T> During<T> for rusqlite::Result<T> {
    fn during(self, operation: &'static str) -> Result<T> {
        self.map_err(|error| of_sqlite(operation, error))
    }
}

/// The one table from SQLite's codes to ours.
pub(crate) fn of_sqlite(operation: &'static str, error: rusqlite::Error) -> Error {
    let rusqlite::Error::SqliteFailure(failure, text) = &error else {
        return Error::new(ErrorKind::Internal, operation)
            .message("the answer of SQLite was not understood")
            .source(error);
    };
    let text = text.clone().unwrap_or_default();
    of_code(operation, failure.extended_code, &text).source(error)
}

/// An error from SQLite's extended result code and its text.
pub(crate) fn of_code(operation: &'static str, extended: i32, text: &str) -> Error {
    let (kind, message, code) = classify(ffi::Error::new(extended).code, extended, text);
    let ours = Error::new(kind, operation).message(message);
    // It locks files, and no rows.
    let ours = if kind == ErrorKind::Busy { ours.of_store() } else { ours };
    match code {
        Some(code) => ours.code(code),
        None => ours,
    }
}

fn classify(code: ErrorCode, extended: i32, text: &str) -> (ErrorKind, String, Option<Code>) {
    let plain = |kind, message: &str| (kind, message.to_owned(), None);
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            plain(ErrorKind::Busy, "the database is locked by another writer; nothing was written")
        }
        ErrorCode::ReadOnly if extended == ffi::SQLITE_READONLY_DBMOVED => (
            ErrorKind::Unavailable,
            "the database file was moved or deleted while it was open".to_owned(),
            Some(Code::StoreVanished),
        ),
        ErrorCode::ReadOnly => plain(ErrorKind::ReadOnly, "the database cannot be written to"),
        ErrorCode::DiskFull => plain(
            ErrorKind::DiskFull,
            "the disk, or the database's own limit of pages, is full; nothing was written",
        ),
        ErrorCode::NotADatabase => plain(ErrorKind::Corrupt, "the file is not a SQLite database"),
        ErrorCode::DatabaseCorrupt => plain(ErrorKind::Corrupt, "the database file is damaged"),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => plain(
            ErrorKind::Unavailable,
            "the database file cannot be opened: look at its path and permissions",
        ),
        ErrorCode::SystemIoFailure => {
            plain(ErrorKind::Unavailable, "reading or writing the database file failed")
        }
        ErrorCode::TooBig => plain(ErrorKind::TooLarge, "a value is larger than SQLite takes"),
        ErrorCode::ConstraintViolation => match extended {
            ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY => {
                (ErrorKind::Conflict, format!("it is there already: {text}"), None)
            }
            _ => (ErrorKind::Invalid, format!("refused: {text}"), None),
        },
        ErrorCode::Unknown
            if text.starts_with("no such table") || text.starts_with("no such column") =>
        {
            (
                ErrorKind::SchemaMissing,
                format!("the database has no Postrider tables of this version: {text}"),
                None,
            )
        }
        _ => (ErrorKind::Internal, format!("SQLite refused a statement: {text}"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn kind_of(connection: &Connection, statement: &str) -> ErrorKind {
        connection.execute_batch(statement).during("test").unwrap_err().kind()
    }

    #[test]
    fn each_failure_has_the_kind_that_says_what_to_do() {
        let connection = Connection::open_in_memory().unwrap();
        let run = |statement: &str| connection.execute_batch(statement).unwrap();
        run("create table t (a text primary key not null, b integer check (b > 0))");
        assert_eq!(kind_of(&connection, "select * from outbox"), ErrorKind::SchemaMissing);
        assert_eq!(kind_of(&connection, "insert into t values ('a', 0)"), ErrorKind::Invalid);
        run("insert into t values ('a', 1)");
        assert_eq!(kind_of(&connection, "insert into t values ('a', 1)"), ErrorKind::Conflict);
        assert_eq!(kind_of(&connection, "nonsense"), ErrorKind::Internal);
        run("pragma query_only = on");
        assert_eq!(kind_of(&connection, "insert into t values ('b', 1)"), ErrorKind::ReadOnly);
        run("pragma query_only = off");
        run("pragma max_page_count = 1");
        let fill = "insert into t select hex(randomblob(5000)), 1";
        assert_eq!(kind_of(&connection, fill), ErrorKind::DiskFull);
    }
}
