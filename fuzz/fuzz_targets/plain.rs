//! The payload with headers beside it.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::plain(input));
