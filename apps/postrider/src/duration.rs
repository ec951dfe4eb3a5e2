//! Durations as people write them: a whole number and its unit, like `500ms`, `2s`, `5m`.

use std::time::Duration;

/// Units, largest last, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// The longest duration that is taken: a day. Longer ones are a mistake in every flag there is.
const MILLIS_MAX: u64 = 24 * 3_600_000;

/// Reads a duration, as a clap value parser.
///
/// # Errors
/// What is wrong, and how it is written instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return Err("a duration is a whole number and a unit, like 500ms, 2s, 5m, or 1h".to_owned());
    }
    if unit.is_empty() {
        return Err(format!("the unit is missing: write {number}s, {number}ms, or {number}m"));
    }
    let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("unknown unit `{}`; known are ms, s, m, and h", unit.escape_debug()));
    };
    let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
    match total {
        Some(0) => Err("the duration must be longer than nothing".to_owned()),
        Some(total) if total <= MILLIS_MAX => Ok(Duration::from_millis(total)),
        _ => Err("at most 24h".to_owned()),
    }
}

/// The same, and `0` for none.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_needs_no_unit() {
        assert_eq!(parse_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(parse_or_zero("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_or_zero("60").unwrap_err().contains("write 60s"));
    }

    #[test]
    fn numbers_with_units_are_read() {
        for (text, millis) in [("500ms", 500), ("2s", 2_000), ("5m", 300_000), ("24h", 86_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("60", "write 60s"),
            ("", "whole number"),
            ("-1s", "whole number"),
            ("2 s", "unknown unit"),
            ("3d", "unknown unit `d`"),
            ("0s", "longer than nothing"),
            ("25h", "at most 24h"),
            ("99999999999999999999s", "at most 24h"),
        ];
        for (text, expected) in cases {
            let message = parse(text).unwrap_err();
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }
}
