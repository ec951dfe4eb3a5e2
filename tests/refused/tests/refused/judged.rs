//! The judge is seen to fail: whatever is not as it must be is a fault that names its case.

use std::path::Path;

use postrider_refused::Compiler;

use crate::compiler;

/// The faults of one case with this text, and of what it is expected to say.
fn judged(case: &str, said: Option<&str>, accepted: bool) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("cases")).unwrap();
    std::fs::write(folder.path().join("cases/case.rs"), case).unwrap();
    if let Some(said) = said {
        std::fs::write(folder.path().join("cases/case.txt"), said).unwrap();
    }
    let compiler = Compiler::new(&postrider_called::libraries!(), folder.path()).unwrap();
    if accepted { compiler.accepts("cases") } else { compiler.refuses("cases") }
}

const WRONG: &str = "fn main() { let _: u8 = postrider_core::no_such_name(); }\n";
const RIGHT: &str = "fn main() { let _ = postrider_core::NewEvent::new(\"a\", \"1\", \"a.b\"); }\n";
const SAID: &str = "error[E0425]: cannot find function `no_such_name` in crate `postrider_core`\n  \
                    at 1:41 not found in `postrider_core`\n";

#[test]
fn what_is_refused_with_the_words_that_are_expected_is_right() {
    judged(WRONG, Some(SAID), false).unwrap();
    judged(RIGHT, None, true).unwrap();
}

#[test]
fn what_compiles_is_not_refused() {
    let fault = judged(RIGHT, Some(SAID), false).unwrap_err();
    assert_eq!(fault, "cases/case.rs: it compiles, and must not");
}

#[test]
fn other_words_and_no_words_are_faults() {
    let other = SAID.replace("no_such_name", "another_name");
    let fault = judged(WRONG, Some(&other), false).unwrap_err();
    assert!(fault.contains("refused with other words") && fault.contains(SAID), "{fault}");
    let fault = judged(WRONG, None, false).unwrap_err();
    assert!(fault.contains("case.txt") && fault.contains(SAID), "{fault}");
}

#[test]
fn what_does_not_compile_or_ends_badly_is_not_accepted() {
    let fault = judged(WRONG, None, true).unwrap_err();
    assert!(fault.contains("it does not compile") && fault.contains("no_such_name"), "{fault}");
    let fault = judged("fn main() { panic!(\"no\") }", None, true).unwrap_err();
    assert!(fault.contains("it ended with exit status: 101"), "{fault}");
}

#[test]
fn a_folder_without_a_case_proves_nothing() {
    let fault = compiler().refuses("tests/refused/cases").unwrap_err();
    assert_eq!(fault, "tests/refused/cases: it has no case");
    let fault = compiler().accepts("tests/refused/nowhere").unwrap_err();
    assert!(fault.contains("nowhere"), "{fault}");
    Compiler::new(&[], Path::new("/no/such/folder")).unwrap_err();
}
