//! What a store reads back.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::stored(input));
