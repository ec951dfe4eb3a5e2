//! Cursors and snapshots of PostgreSQL.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::snapshot(input));
