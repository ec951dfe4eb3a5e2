//! What can go wrong between a call and the file, and which kind of error the caller sees. No error
//! of SQLite reaches a caller without a kind that says what can be done about it.

use std::path::Path;

use postrider_core::{Error, ErrorKind, Fault};
use rusqlite::ErrorCode;

/// The result of one step inside the worker.
pub(crate) type Step<T> = Result<T, Trouble>;

/// Why a step failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// SQLite said so.
    Sql(rusqlite::Error),
    /// A rule of this broker said so.
    Said(ErrorKind, String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sql(error)
    }
}

impl Trouble {
    /// What it comes to, in a form that can be told to several callers of one transaction.
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Trouble::Sql(error) => Fault::new(kind_of(error), error.to_string()),
            Trouble::Said(kind, detail) => Fault::new(*kind, detail.clone()),
        }
    }
}

/// The kind of an error of SQLite.
pub(crate) fn kind_of(error: &rusqlite::Error) -> ErrorKind {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        return ErrorKind::Internal;
    };
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => ErrorKind::Busy,
        ErrorCode::DiskFull => ErrorKind::DiskFull,
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => ErrorKind::ReadOnly,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => ErrorKind::Corrupt,
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory => {
            ErrorKind::Unavailable
        }
        ErrorCode::TooBig => ErrorKind::TooLarge,
        _ => ErrorKind::Internal,
    }
}

/// The error a caller gets: the kind, the operation, and which file it was about.
pub(crate) fn tell(operation: &'static str, path: &Path, fault: &Fault) -> Error {
    Error::new(fault.kind, operation).message(fault.detail.clone()).context("file", path.display())
}
