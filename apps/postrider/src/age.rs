//! Moments as people write them, `2h` ago or RFC 3339, and spans as people read them.

use std::time::Duration;

use postrider_core::Timestamp;

/// Units of an age, with their seconds.
const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 604_800)];

/// The longest age that is taken: a century. More is a slip of the finger.
const SECONDS_MAX: u64 = 36_525 * 86_400;

/// A moment, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// On the calendar.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl Moment {
    /// On the calendar.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(time) => time,
            Moment::Ago(span) => {
                let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros))
            }
        }
    }
}

/// Reads a moment, as a clap value parser.
///
/// # Errors
/// How it is written instead.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    if text.contains('-') || text.contains(':') {
        return time(text).map(Moment::At);
    }
    span(text).map(Moment::Ago)
}

/// Reads a moment on the calendar, as a clap value parser.
///
/// # Errors
/// How it is written instead.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    let shown = text.escape_debug();
    text.parse().map_err(|_| {
        format!("`{shown}` is no moment; write 2026-11-21T10:00:00Z, or an age like 2h or 3d")
    })
}

/// Reads an age, as a clap value parser.
///
/// # Errors
/// How it is written instead.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = UNITS.iter().find(|(name, _)| *name == unit).and_then(|(_, seconds)| {
        number.parse::<u64>().ok()?.checked_mul(*seconds).filter(|sum| *sum <= SECONDS_MAX)
    });
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let shown = text.escape_debug();
        format!("`{shown}` is no age; write a whole number and s, m, h, d, or w, like 30s or 2h")
    })
}

/// A span in its largest unit, and the next below where the first is small: `45s`, `3m`, `1h 20m`.
pub(crate) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    let pair = |unit: u64, name: &str, next: u64, below: &str| {
        let (whole, rest) = (seconds / unit, seconds % unit / next);
        match rest {
            0 => format!("{whole}{name}"),
            _ if whole >= 10 => format!("{whole}{name}"),
            _ => format!("{whole}{name} {rest}{below}"),
        }
    };
    match seconds {
        0 if span.as_millis() > 0 => format!("{}ms", span.as_millis()),
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => pair(3_600, "h", 60, "m"),
        _ => pair(86_400, "d", 3_600, "h"),
    }
}

/// How long ago something was: `3m ago`, `in 5s`, `now`.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let second = Duration::from_secs(1);
    match (now.since(time), time.since(now)) {
        (past, _) if past >= second => format!("{} ago", short(past)),
        (_, future) if future >= second => {
            format!("in {}", short(Duration::from_secs(future.as_secs())))
        }
        _ => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ages_or_rfc_3339() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2h", "2026-11-21T08:00:00Z"),
            ("3d", "2026-11-18T10:00:00Z"),
            ("2026-11-20T00:00:00+01:00", "2026-11-19T23:00:00Z"),
        ] {
            assert_eq!(moment(text).unwrap().at(now).to_string(), expected, "{text}");
        }
        for bad in ["", "2", "h", "2x", "yesterday", "2026-11-20", "-2h", "99999999999w"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages_are_short() {
        let cases =
            [(45, "45s"), (200, "3m"), (4_800, "1h 20m"), (90_000, "1d 1h"), (1_000_000, "11d")];
        for (seconds, expected) in cases {
            assert_eq!(short(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(short(Duration::from_millis(40)), "40ms");
        let now = Timestamp::from_micros(1_000_000_000);
        assert_eq!(relative(now, now), "now");
        assert_eq!(relative(Timestamp::from_micros(820_000_000), now), "3m ago");
        assert_eq!(relative(Timestamp::from_micros(1_005_500_000), now), "in 5s");
    }
}
