//! What must not compile: an event beside a transaction, and an event that is forgotten.

/// R003, R075: only a transaction is accepted. R025: a dropped event is an error where
/// `unused_must_use` is one, and a warning elsewhere.
#[test]
fn events_beside_a_transaction_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/refused/*.rs");
    cases.pass("tests/accepted/*.rs");
    #[cfg(feature = "sqlx")]
    cases.compile_fail("tests/refused_sqlx/*.rs");
}
