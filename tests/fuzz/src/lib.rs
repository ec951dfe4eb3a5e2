//! What must hold for any input from outside: nothing panics, what is read is written and read again the same, and
//! what is refused is refused in words.
//!
//! A target is a function that panics where that is not so. `cargo x fuzz` gives it inputs that a fuzzer makes up, led by
//! the code they reach; the test beside this gives it those that were kept, in `fuzz/corpus`. It has no state: the same input does
//! the same.

mod answer;
mod binary;
mod config;
mod endpoint;
mod event;
mod message;
mod plain;
mod received;
mod snapshot;
mod stored;
mod structured;
mod templates;
mod values;

pub use answer::answer;
pub use binary::binary;
pub use config::config;
pub use endpoint::endpoint;
pub use event::event;
pub use plain::plain;
pub use received::received;
pub use snapshot::snapshot;
pub use stored::stored;
pub use structured::structured;
pub use templates::templates;
pub use values::values;

/// Something that is done with any input.
pub type Target = fn(&[u8]);

/// All targets by name. Each has a program in `fuzz/fuzz_targets`, and inputs in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 12] = [
    ("answer", answer),
    ("binary", binary),
    ("config", config),
    ("endpoint", endpoint),
    ("event", event),
    ("plain", plain),
    ("received", received),
    ("snapshot", snapshot),
    ("stored", stored),
    ("structured", structured),
    ("templates", templates),
    ("values", values),
];
