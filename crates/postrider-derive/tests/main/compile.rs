//! What compiles, what does not, and what the compiler says then.

/// R016: a version is a number from 1 in the struct's own text. R025: where `unused_must_use` is an
/// error, a dropped event is one, and so is a struct that is never made an event.
#[test]
fn mistakes_are_told_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    cases.pass("tests/compile_pass/*.rs");
}
