//! Requests of webhooks at a receiver.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postrider_fuzzed::received(input));
