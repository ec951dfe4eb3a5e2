//! What must not compile: an event beside a transaction, one that is forgotten, an answer that is not looked
//! at, and mistakes in an event's own text.

use crate::compiler;

/// R016: a version is a number from 1 in the struct's own text. R025: where `unused_must_use` is an
/// error, a dropped event is one, and so is a struct that is never made an event.
#[test]
fn mistakes_are_told_where_they_are() {
    compiler().refuses("tests/refused/cases/event-refused").unwrap();
    compiler().accepts("tests/refused/cases/event-accepted").unwrap();
}

/// R003, R075: PostgreSQL's store accepts only a transaction.
#[test]
fn events_beside_a_transaction_of_postgres_do_not_compile() {
    compiler().refuses("tests/refused/cases/postgres-refused").unwrap();
    compiler().accepts("tests/refused/cases/postgres-accepted").unwrap();
}

/// R003, R075: SQLite's store accepts only a transaction. R025: a dropped event is an error where
/// `unused_must_use` is one, and a warning elsewhere.
#[test]
fn events_beside_a_transaction_of_sqlite_do_not_compile() {
    compiler().refuses("tests/refused/cases/sqlite-refused").unwrap();
    compiler().refuses("tests/refused/cases/sqlx-refused").unwrap();
    compiler().accepts("tests/refused/cases/sqlite-accepted").unwrap();
}

/// A finding that is not good has a code, which has a page: nothing else can be written.
#[test]
fn findings_without_a_code_do_not_compile() {
    compiler().refuses("tests/refused/cases/finding-refused").unwrap();
}
