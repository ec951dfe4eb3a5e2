//! How the errors of `tokio-postgres` become Postrider's.

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::error::DbError;

use crate::state::{CLOSED, of_state};

/// Says during which operation an error of PostgreSQL happened.
pub(crate) trait During<T> {
    /// Turns the error into one of ours, with the operation's name.
    fn during(self, operation: &'static str) -> Result<T>;
}

impl<T> During<T> for Result<T, tokio_postgres::Error> {
    fn during(self, operation: &'static str) -> Result<T> {
        self.map_err(|error| of_postgres(operation, error))
    }
}

/// The error of ours that an error of the driver or the server is.
pub(crate) fn of_postgres(operation: &'static str, error: tokio_postgres::Error) -> Error {
    let Some(told) = error.as_db_error() else {
        let (kind, message) = of_driver(&error);
        return Error::new(kind, operation).message(message).source(error);
    };
    let state = match told.code().code() {
        _ if refuses_as_standby(told) => STANDBY,
        // While it connects, and for no other reason there.
        "55000" if told.routine() == Some("CheckMyDatabase") => CLOSED,
        state => state,
    };
    of_state(operation, state, told.message()).source(error)
}

/// What the server said.
pub(crate) fn told(error: &Error) -> Option<&DbError> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<tokio_postgres::Error>()?.as_db_error()
}

fn of_driver(error: &tokio_postgres::Error) -> (ErrorKind, &'static str) {
    if error.is_closed() {
        return (ErrorKind::Unavailable, "the connection to the database was lost");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.is::<std::io::Error>() {
            return (ErrorKind::Unavailable, "the database cannot be reached, or went away");
        }
        cause = inner.source();
    }
    let text = error.to_string();
    if text.contains("connecting")
        || text.contains("communicating")
        || text.contains("TLS")
        || text.contains("timeout")
    {
        return (ErrorKind::Unavailable, "the database cannot be reached, or went away");
    }
    if text.contains("authentication") || text.contains("password") {
        return (ErrorKind::Unauthorized, "the database does not accept the user or password");
    }
    (ErrorKind::Internal, "the driver could not read what the database answered")
}

/// Read-only: what a standby says to a statement that writes.
const STANDBY: &str = "25006";

/// Functions of the log, and tables that are not logged, refuse on a standby with states that say little; the
/// names of the server's own functions are not translated.
fn refuses_as_standby(told: &DbError) -> bool {
    match (told.code().code(), told.routine()) {
        ("55000", Some(routine)) => routine.starts_with("pg_current_wal"),
        ("0A000", Some(routine)) => routine == "get_relation_info",
        _ => false,
    }
}
