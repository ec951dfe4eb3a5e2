//! Sizes as people write them: a whole number and its unit, like `256KiB` or `16MiB`.
//!
//! Invariant: what is displayed is read back as the same size. There is no default unit.

use std::fmt;
use std::str::FromStr;

/// Units with their bytes, in the order in which they are preferred for display.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes.
///
/// ```
/// use postrider_config::Size;
/// assert_eq!("16MiB".parse::<Size>().unwrap().bytes(), 16 * 1024 * 1024);
/// assert_eq!(Size::from_bytes(2000).to_string(), "2kB");
/// assert!("16".parse::<Size>().unwrap_err().contains("write 16KiB"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// A size from its bytes.
    pub const fn from_bytes(bytes: u64) -> Size {
        Size(bytes)
    }

    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, rest) = text.split_at(split);
        if number.is_empty() {
            return Err("a size is a whole number and a unit: write 256KiB, 16MiB, or 1MB".into());
        }
        let unit = rest.trim();
        if unit.is_empty() {
            if let Some(bytes) = number.parse().ok().filter(|bytes| *bytes >= 1024) {
                let size = Size(bytes);
                return Err(format!("the unit is missing: write {size} if bytes are meant"));
            }
            return Err(format!(
                "the unit is missing: write {number}KiB, {number}MiB, {number}kB or {number}B"
            ));
        }
        if let Some((_, bytes)) = UNITS.iter().find(|(name, _)| *name == rest) {
            let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*bytes));
            return total.map(Size).ok_or_else(|| "the number is too large".into());
        }
        if rest.starts_with('.') {
            return Err("no fractions: write a whole number of a smaller unit, like 1536KiB".into());
        }
        // `16M` and `16mb` leave open which of the two is meant; the larger is the usual one.
        let meant = match unit.to_ascii_lowercase().as_str() {
            "k" | "kb" | "kib" => "KiB",
            "m" | "mb" | "mib" => "MiB",
            "g" | "gb" | "gib" => "GiB",
            "b" | "byte" | "bytes" => "B",
            _ => {
                let unit: String = unit.chars().take(12).collect();
                return Err(format!(
                    "unknown unit `{}`; known are B, kB, KiB, MB, MiB, GB, and GiB",
                    unit.escape_debug()
                ));
            }
        };
        Err(format!("the unit is not spelled so: write {number}{meant}"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, bytes): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*bytes);
        match UNITS.iter().find(fits) {
            Some((name, bytes)) => write!(f, "{}{name}", self.0 / bytes),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("16", "write 16KiB, 16MiB"),
            ("", "whole number"),
            ("-1B", "whole number"),
            ("16M", "write 16MiB"),
            ("16 MiB", "write 16MiB"),
            ("16kb", "write 16KiB"),
            ("1.5MiB", "no fractions"),
            ("1TiB", "unknown unit `TiB`"),
            ("99999999999999999999B", "too large"),
        ];
        for (text, expected) in cases {
            let message = text.parse::<Size>().unwrap_err();
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }

    proptest! {
        #[test]
        fn displayed_sizes_are_read_back(bytes: u64, shift in 0u32..40) {
            let size = Size(bytes >> shift << shift.min(20));
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            if let Ok(size) = text.parse::<Size>() {
                prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
            }
        }
    }
}
