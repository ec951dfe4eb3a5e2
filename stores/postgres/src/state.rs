//! How PostgreSQL's error states become Postrider's: by what a caller can do about them.
//!
//! The store's own functions raise errors of the class `PR`, so that a refusal by the fence is told from
//! any other. What a server says of an address or a password is not passed on.

use postrider_core::{Code, Error, ErrorKind};

/// Raised by a function whose lease was lost.
const FENCED: &str = "PRF01";
/// Raised by a function that found something else than its caller expects.
const CONFLICT: &str = "PRC01";
/// Raised by a function whose subject is not there.
const NOT_FOUND: &str = "PRN01";
/// Raised by a function that refuses its arguments.
const INVALID: &str = "PRI01";
/// Raised by a function that cannot go on before a person has changed something.
const STANDS: &str = "PRG01";

/// Raised by a function that has to see what others commit while it waits for them, and would not.
const BLIND: &str = "PRL01";

/// The database takes no connections: it has no state of its own.
pub(crate) const CLOSED: &str = "PRX01";

/// The server ended a session that stood still in a transaction.
pub(crate) const STOOD_STILL: &str = "25P03";

/// The error of ours for what the server said: its five-character state, and its text.
#[doc(hidden)]
pub fn of_state(operation: &'static str, state: &str, text: &str) -> Error {
    let (kind, message, code) = classify(state, text);
    let error = Error::new(kind, operation).message(message);
    match code {
        Some(code) => error.code(code),
        None => error,
    }
}

/// What to do where the default of isolation is another than ours, and ours cannot be set.
pub(crate) const SEEING: &str = "Let the store connect to the server itself or to a pool in session mode, or: alter role … \
     set default_transaction_isolation = 'read committed', for its user, and reconnect the pooler";

type Class = (ErrorKind, String, Option<Code>);

fn classify(state: &str, text: &str) -> Class {
    let plain = |kind, message: &str| (kind, message.to_owned(), None);
    match state {
        FENCED => plain(ErrorKind::Fenced, "the lease was taken over; nothing was written"),
        CONFLICT => (ErrorKind::Conflict, text.to_owned(), None),
        NOT_FOUND => (ErrorKind::NotFound, text.to_owned(), None),
        INVALID => (ErrorKind::Invalid, text.to_owned(), None),
        BLIND => (ErrorKind::Config, format!("{text}; nothing was done. {SEEING}"), None),
        STANDS => (ErrorKind::Config, text.to_owned(), None),
        "57P01" => plain(
            ErrorKind::Unavailable,
            "the server ended this session: somebody told it to (pg_terminate_backend), or it is stopping",
        ),
        // By a crash of another process, or starting up.
        "57P02" | "57P03" => plain(ErrorKind::Unavailable, "the database is stopping or starting"),
        STOOD_STILL => plain(
            ErrorKind::Unavailable,
            "this program stood still in a transaction, which keeps others waiting: the server ended it after 5 s, and \
             nothing of the transaction was done. Try again",
        ),
        "57P05" => plain(
            ErrorKind::Unavailable,
            "the server ends sessions that have nothing to do for a while (idle_session_timeout), and had ended this one; \
             nothing was done. Try again",
        ),
        "25P04" => plain(
            ErrorKind::Timeout,
            "the transaction took longer than the transaction_timeout of this user or database; nothing of it was done",
        ),
        "57014" => plain(ErrorKind::Timeout, "the database cancelled the statement"),
        "53100" => plain(ErrorKind::DiskFull, "the database's disk is full; nothing was written"),
        "53300" => plain(
            ErrorKind::Unavailable,
            "the database has no connection left for us: its server's max_connections, or the connection limit of this user \
             or database, is reached",
        ),
        CLOSED => plain(
            ErrorKind::Unavailable,
            "the database lets nobody in (ALLOW_CONNECTIONS is off). When it may: alter database … allow_connections true",
        ),
        "25006" => (
            ErrorKind::ReadOnly,
            "the database cannot be written to: it is a standby, was demoted to one, or is set to \
             read-only; nothing was written"
                .to_owned(),
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
        // 54: more than the server takes, like JSON nested too deep.
        "22" | "23" | "54" => (ErrorKind::Invalid, format!("refused: {text}")),
        "28" if code != "28P01" => (
            ErrorKind::Unauthorized,
            "the server does not let this user in: the role is not there or may not log in (NOLOGIN), or pg_hba.conf does not \
             take it from here, perhaps for want of TLS"
                .to_owned(),
        ),
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

    /// The server ends sessions for three reasons of time, and each is something else to whoever reads it.
    #[test]
    fn limits_of_time_are_told_apart() {
        let said = |state| of_state("test", state, "terminating connection").to_string();
        assert!(said("25P03").contains("stood still in a transaction"), "{}", said("25P03"));
        assert!(said("25P04").contains("transaction_timeout"), "{}", said("25P04"));
        let idle = said("57P05");
        assert!(idle.contains("idle_session_timeout") && !idle.contains("transaction"), "{idle}");
    }

    #[test]
    fn each_state_has_the_kind_that_says_what_to_do() {
        for (state, kind) in [
            ("PRF01", ErrorKind::Fenced),
            ("PRC01", ErrorKind::Conflict),
            ("PRL01", ErrorKind::Config),
            ("PRG01", ErrorKind::Config),
            ("57P03", ErrorKind::Unavailable),
            ("57P05", ErrorKind::Unavailable),
            ("25P03", ErrorKind::Unavailable),
            ("25P04", ErrorKind::Timeout),
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
            ("28000", ErrorKind::Unauthorized),
            (CLOSED, ErrorKind::Unavailable),
            ("XX001", ErrorKind::Corrupt),
            ("42601", ErrorKind::Internal),
        ] {
            assert_eq!(of_state("test", state, "text").kind(), kind, "{state}");
        }
    }
}
