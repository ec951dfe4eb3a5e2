//! Endpoints of webhooks.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::endpoint(input));
