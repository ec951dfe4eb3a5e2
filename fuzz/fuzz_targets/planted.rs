//! The control: a panic behind four bytes that no luck finds. Only a fuzzer that sees how far it came does.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let magic = b"\xf0zz!";
    let reached = magic.iter().zip(input).take_while(|(wanted, given)| wanted == given).count();
    // One branch for each byte, so that each is news.
    for step in 0..magic.len() {
        if reached == step {
            return;
        }
    }
    panic!("the planted panic was found");
});
