//! What is not good has a code: only the functions make findings.
use postrider_core::operate::{Finding, Level};

fn main() {
    let _ = Finding {
        level: Level::Critical,
        subject: "durability".to_owned(),
        message: "fsync is off".to_owned(),
        advice: None,
        code: None,
    };
}
