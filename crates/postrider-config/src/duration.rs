//! Durations as people write them: a whole number and its unit, like `500ms`, `15s`, `10m`, `7d`.
//!
//! Invariant: what `print` writes, `parse` reads as the same duration. There is no default unit and
//! no fraction, because both were guessed wrong often enough elsewhere.

use std::time::Duration;

/// Units, shortest first, with their milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Other spellings, with what is written instead.
const SLIPS: [(&str, &str); 21] = [
    ("millis", "ms"),
    ("msec", "ms"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("S", "s"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("M", "m"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("H", "h"),
    ("hr", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("D", "d"),
    ("day", "d"),
    ("days", "d"),
];

/// Reads a duration.
///
/// ```
/// use std::time::Duration;
/// use postrider_config::duration;
/// assert_eq!(duration::parse("15s"), Ok(Duration::from_secs(15)));
/// assert!(duration::parse("15").unwrap_err().contains("write 15s, 15ms or 15m"));
/// ```
///
/// # Errors
/// What is wrong, and how it is written instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(split);
    if number.is_empty() {
        return Err("a duration is a whole number and a unit: write 15s, 500ms, 10m, or 7d".into());
    }
    let unit = rest.trim();
    if unit.is_empty() {
        return Err(format!("the unit is missing: write {number}s, {number}ms or {number}m"));
    }
    if rest.starts_with('.') {
        return Err(fraction(text));
    }
    if let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == rest) {
        let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
        return total.map(Duration::from_millis).ok_or_else(|| "the number is too large".into());
    }
    let known = |name: &str| UNITS.iter().find(|(known, _)| *known == name).map(|(name, _)| *name);
    let slip = SLIPS.iter().find(|(slip, _)| *slip == unit).map(|(_, right)| *right);
    Err(match slip.or_else(|| known(unit)) {
        Some(right) => {
            format!("the unit is written without a space, in short: write {number}{right}")
        }
        None if unit.starts_with(|c: char| c.is_ascii_digit()) || unit.len() > 12 => {
            "a duration is one whole number and one unit, like 90m".into()
        }
        None => format!("unknown unit `{}`; known are ms, s, m, h, and d", unit.escape_debug()),
    })
}

/// What is said about `1.5s`: the same in a smaller unit, where it is a whole number there.
fn fraction(text: &str) -> String {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let millis = UNITS.iter().find(|(name, _)| *name == &text[split..]).map(|(_, millis)| *millis);
    let number = text[..split].parse::<f64>().ok();
    let whole = number.zip(millis).map(|(number, millis)| number * millis as f64);
    match whole {
        Some(whole) if (1.0..1e12).contains(&whole) && whole.fract() == 0.0 => {
            format!("no fractions: write {}", print(Duration::from_millis(whole as u64)))
        }
        _ => "no fractions: write a whole number of a smaller unit, like 1500ms".into(),
    }
}

/// Writes a duration in the largest unit that needs no fraction; anything below a millisecond is
/// cut off.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(postrider_config::duration::print(Duration::from_secs(90)), "90s");
/// assert_eq!(postrider_config::duration::print(Duration::from_secs(7200)), "2h");
/// ```
pub fn print(span: Duration) -> String {
    let total = span.as_millis();
    if total == 0 {
        return "0s".into();
    }
    let fits = |(_, millis): &&(&str, u64)| total.is_multiple_of(u128::from(*millis));
    match UNITS.iter().rev().find(fits) {
        Some((name, millis)) => format!("{}{name}", total / u128::from(*millis)),
        None => format!("{total}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// F31: a bad duration says how it is written.
    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("60", "write 60s, 60ms or 60m"),
            ("", "whole number"),
            ("-1s", "whole number"),
            ("15 s", "write 15s"),
            ("15sec", "write 15s"),
            ("2min", "write 2m"),
            ("1.5s", "write 1500ms"),
            ("0.5h", "write 30m"),
            ("1.5", "no fractions"),
            ("1h30m", "unknown unit `h30m`"),
            ("3w", "unknown unit `w`"),
            ("99999999999999999999s", "too large"),
            ("18446744073709551615d", "too large"),
        ];
        for (text, expected) in cases {
            let message = parse(text).unwrap_err();
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }

    proptest! {
        #[test]
        fn printed_durations_are_read_back(millis in 0..u64::MAX / 2) {
            let span = Duration::from_millis(millis);
            prop_assert_eq!(parse(&print(span)), Ok(span));
        }

        #[test]
        fn every_unit_is_read_back(number in 0u64..1_000_000, unit in 0usize..5) {
            let span = Duration::from_millis(number * UNITS[unit].1);
            prop_assert_eq!(parse(&format!("{number}{}", UNITS[unit].0)), Ok(span));
            prop_assert_eq!(parse(&print(span)), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            if let Ok(span) = parse(&text) {
                prop_assert_eq!(parse(&print(span)), Ok(span));
            }
        }
    }
}
