//! Any event, written and read in every format.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::event(input));
