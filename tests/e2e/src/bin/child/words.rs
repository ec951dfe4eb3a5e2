//! What a child says: one line each, whole, at once.

use std::io::Write as _;

/// Says a line. A parent that is gone hears nothing, which is no error.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}
