//! The configuration file, and variables over it.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::config(input));
