//! How PostgreSQL's errors become Postrider's: by what a caller can do about them.
//!
//! The store's own functions raise errors of the class `PR`, so that a refusal by the fence is told from
//! any other. What a server says of an address or a password is not passed on.

use postrider_core::{Code, Error, ErrorKind, Result};
use tokio_postgres::error::SqlState;

/// Raised by a function whose lease was lost.
pub(crate) const FENCED: &str = "PRF01";
/// Raised by a function that found something else than its caller expects.
pub(crate) const CONFLICT: &str = "PRC01";
/// Raised by a function whose subject is not there.
pub(crate) const NOT_FOUND: &str = "PRN01";
/// Raised by a function that refuses its arguments.
pub(crate) const INVALID: &str = "PRI01";

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
    let (kind, message, code) = classify(told.code(), told.message());
    let mut ours = Error::new(kind, operation).message(message).source(error);
    if let Some(code) = code {
        ours = ours.code(code);
    }
    ours
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
    if text.contains("connecting") || text.contains("communicating") || text.contains("TLS") {
        return (ErrorKind::Unavailable, "the database cannot be reached, or went away");
    }
    if text.contains("authentication") || text.contains("password") {
        return (ErrorKind::Unauthorized, "the database does not accept the user or password");
    }
    (ErrorKind::Internal, "the driver could not read what the database answered")
}

type Class = (ErrorKind, String, Option<Code>);

fn classify(state: &SqlState, text: &str) -> Class {
    let plain = |kind, message: &str| (kind, message.to_owned(), None);
    match state.code() {
        FENCED => plain(ErrorKind::Fenced, "the lease was taken over; nothing was written"),
        CONFLICT => (ErrorKind::Conflict, text.to_owned(), None),
        NOT_FOUND => (ErrorKind::NotFound, text.to_owned(), None),
        INVALID => (ErrorKind::Invalid, text.to_owned(), None),
        // 57P01 to 57P03: stopped by an operator, by a crash of another process, or starting up.
        "57P01" | "57P02" | "57P03" | "57P05" => {
            plain(ErrorKind::Unavailable, "the database is stopping or starting")
        }
        "57014" => plain(ErrorKind::Timeout, "the database cancelled the statement"),
        "53100" => plain(ErrorKind::DiskFull, "the database's disk is full; nothing was written"),
        "53300" => plain(ErrorKind::Unavailable, "the database has no connection left for us"),
        "25006" => (
            ErrorKind::ReadOnly,
            "the database cannot be written to: it is a standby, or set to read-only".to_owned(),
            Some(Code::ReadOnly),
        ),
        "42501" => (
            ErrorKind::Unauthorized,
            format!("the user of the database lacks a privilege: {text}"),
            None,
        ),
        "40001" | "40P01" | "55P03" => {
            plain(ErrorKind::Busy, "the rows are locked by another writer; nothing was written")
        }
        "42P01" | "42703" | "42883" | "3F000" => (
            ErrorKind::SchemaMissing,
            format!("the database has no Postrider tables of this version: {text}"),
            None,
        ),
        "23505" => (ErrorKind::Conflict, format!("it is there already: {text}"), None),
        // The server prepares a statement anew when a table it reads was changed.
        "0A000" if text.contains("cached plan") => {
            plain(ErrorKind::Unavailable, "a table was changed while it was read")
        }
        code => by_class(code, text),
    }
}

/// By the two characters that begin a state (PostgreSQL's documentation, Appendix A).
fn by_class(code: &str, text: &str) -> Class {
    let (kind, message) = match code.get(..2).unwrap_or_default() {
        "08" => (ErrorKind::Unavailable, "the connection to the database was lost".to_owned()),
        "22" | "23" => (ErrorKind::Invalid, format!("refused: {text}")),
        "28" => (
            ErrorKind::Unauthorized,
            "the database does not accept the user or password".to_owned(),
        ),
        "3D" => (ErrorKind::Unavailable, "the server has no such database".to_owned()),
        "53" | "57" => (ErrorKind::Unavailable, format!("the database lacks a resource: {text}")),
        "58" => (ErrorKind::Unavailable, format!("the server's disk failed: {text}")),
        "XX" if code != "XX000" => (ErrorKind::Corrupt, format!("the database is damaged: {text}")),
        _ => (ErrorKind::Internal, format!("PostgreSQL refused a statement: {text}")),
    };
    (kind, message, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_the_kind_that_says_what_to_do() {
        for (state, kind) in [
            ("PRF01", ErrorKind::Fenced),
            ("PRC01", ErrorKind::Conflict),
            ("57P03", ErrorKind::Unavailable),
            ("08006", ErrorKind::Unavailable),
            ("53100", ErrorKind::DiskFull),
            ("53300", ErrorKind::Unavailable),
            ("25006", ErrorKind::ReadOnly),
            ("42501", ErrorKind::Unauthorized),
            ("40P01", ErrorKind::Busy),
            ("42P01", ErrorKind::SchemaMissing),
            ("23505", ErrorKind::Conflict),
            ("23514", ErrorKind::Invalid),
            ("22P02", ErrorKind::Invalid),
            ("28P01", ErrorKind::Unauthorized),
            ("XX001", ErrorKind::Corrupt),
            ("42601", ErrorKind::Internal),
        ] {
            assert_eq!(classify(&SqlState::from_code(state), "text").0, kind, "{state}");
        }
    }
}
