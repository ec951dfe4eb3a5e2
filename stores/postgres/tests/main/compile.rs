//! What must not compile: an event beside a transaction, and an answer that is not looked at.

/// R003, R075: only a transaction is accepted.
#[test]
fn events_beside_a_transaction_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/refused/*.rs");
    cases.pass("tests/accepted/*.rs");
}
