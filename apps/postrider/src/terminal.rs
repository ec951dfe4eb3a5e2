//! What people see: colour only on a terminal, one line of progress that is overwritten, text that is
//! wrapped at 80 columns.

use std::io::{self, IsTerminal, Write};

/// The width that every text is made for.
const COLUMNS: usize = 80;

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// No colours.
    pub(crate) const fn plain() -> Style {
        Style { colour: false }
    }

    /// Something is right.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Something is wrong.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// Something was done on purpose that looks wrong.
    pub(crate) fn notable(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Less important than what stands beside it.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn may_colour(terminal: bool) -> Style {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Style { colour: terminal && !refused }
}

/// The style of standard error.
pub(crate) fn style() -> Style {
    may_colour(io::stderr().is_terminal())
}

/// The style of standard output.
pub(crate) fn stdout_style() -> Style {
    may_colour(io::stdout().is_terminal())
}

/// Says something to people. Nobody may be listening, and that is no error.
pub(crate) fn note(text: &str) {
    let mut out = io::stderr().lock();
    // A line of progress may stand there, which comes again by itself.
    let fresh = if out.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(out, "{fresh}{text}");
}

/// Writes data for programs.
///
/// # Errors
/// What the operating system says, a closed pipe included.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// A line on the terminal that is written over and over; nothing where there is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    live: bool,
    shown: bool,
}

impl Progress {
    /// Progress on standard error.
    pub(crate) fn new() -> Progress {
        Progress { live: io::stderr().is_terminal(), shown: false }
    }

    /// Whether there is somebody to see it.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Shows a line in the place of the last one.
    pub(crate) fn show(&mut self, line: &str) {
        if self.live {
            let line: String = line.chars().take(COLUMNS - 1).collect();
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[K{line}");
            let _ = out.flush();
            self.shown = true;
        }
    }

    /// Says something that stays, above the line.
    pub(crate) fn note(&mut self, text: &str) {
        note(text);
        self.shown = false;
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Breaks text at spaces so that lines fit, each but the first after the indent.
pub(crate) fn wrap(text: &str, indent: &str) -> String {
    let mut wrapped = String::new();
    let mut column = indent.len();
    for word in text.split(' ') {
        let width = word.chars().count();
        if !wrapped.is_empty() {
            if column + 1 + width > COLUMNS {
                wrapped.push('\n');
                wrapped.push_str(indent);
                column = indent.len();
            } else {
                wrapped.push(' ');
                column += 1;
            }
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped
}

/// A number with its thousands apart.
///
/// ```text
/// 1234567 → 1,234,567
/// ```
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let text = "word ".repeat(60);
        let wrapped = wrap(text.trim(), "    ");
        assert!(wrapped.lines().count() > 3);
        assert!(wrapped.lines().all(|line| line.chars().count() <= COLUMNS), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), 60);
    }
}
