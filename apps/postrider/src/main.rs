//! The postrider binary: relay, init, and demo.

fn main() {}
