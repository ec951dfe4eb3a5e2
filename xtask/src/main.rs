//! The project's tasks: check, test, tidy, bench, docs.

fn main() {}
