//! What the compiler refuses, and what it says then.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod cases;
mod judged;

use std::path::Path;

use postrider_refused::Compiler;

/// The compiler of these tests, with all that the cases name.
fn compiler() -> Compiler {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Compiler::new(&postrider_called::libraries!(), &root).unwrap().by_variable()
}
