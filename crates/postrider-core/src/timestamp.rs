//! Wall-clock time, for people and envelopes.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// A moment in UTC, in microseconds since 1970-01-01T00:00:00Z.
///
/// Written and read as RFC 3339. Years 1 to 9999 are representable as text.
///
/// ```
/// use postrider_core::Timestamp;
/// let t: Timestamp = "2026-11-21T10:00:00.25Z".parse().unwrap();
/// assert_eq!(t.to_string(), "2026-11-21T10:00:00.25Z");
/// assert_eq!("2026-11-21 11:00:00.25+01:00".parse::<Timestamp>().unwrap(), t);
/// assert!("yesterday".parse::<Timestamp>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The system's wall clock, now.
    pub fn now() -> Timestamp {
        SystemTime::now().into()
    }

    /// This moment plus a span, saturating.
    #[must_use]
    pub fn plus(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The span since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(span) => Timestamp(micros(span)),
            Err(before) => Timestamp(-micros(before.duration())),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => fmt::Display::fmt(&time, f),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Timestamp, Error> {
        if let Some(time) = parse_plain(text.as_bytes()) {
            return Ok(time);
        }
        text.parse::<jiff::Timestamp>().map(|time| Timestamp(time.as_microsecond())).map_err(|e| {
            Error::new(ErrorKind::Invalid, "parse timestamp")
                .message(format!("`{}` is not an RFC 3339 timestamp", text.escape_debug()))
                .source(e)
        })
    }
}

impl TryFrom<String> for Timestamp {
    type Error = Error;
    fn try_from(text: String) -> Result<Timestamp, Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> String {
        time.to_string()
    }
}

/// The shape that stores write by default, `YYYY-MM-DDTHH:MM:SS.mmmZ`, which a relay reads for every
/// event; anything else goes to the general parser.
fn parse_plain(text: &[u8]) -> Option<Timestamp> {
    let [rest @ .., b'Z'] = text else { return None };
    if rest.len() != 23 || [rest[4], rest[7], rest[10], rest[13], rest[16], rest[19]] != *b"--T::."
    {
        return None;
    }
    let digits = |from: usize, to: usize| {
        rest[from..to].iter().try_fold(0i64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    let milli = digits(20, 23)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *month_days.get(usize::try_from(month - 1).ok()?)?;
    if day < 1 || day > length || hour > 23 || minute > 59 || second > 59 || year < 1 {
        return None;
    }
    // Days since the epoch in the proleptic Gregorian calendar, counted from 1 March so that the
    // leap day is the last day of its year.
    let shifted = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * shifted + shifted.div_euclid(4) - shifted.div_euclid(100)
        + shifted.div_euclid(400)
        + day_of_year
        - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp(seconds * 1_000_000 + milli * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for bad in ["2026-02-29T00:00:00.000Z", "2026-13-01T00:00:00.000Z", "", "now"] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
        assert!("2028-02-29T00:00:00.000Z".parse::<Timestamp>().is_ok());
    }

    proptest! {
        #[test]
        fn the_fast_parser_agrees_with_the_general_one(millis in -62_000_000_000_000i64..253_000_000_000_000) {
            let time = jiff::Timestamp::from_millisecond(millis).unwrap();
            let text = format!("{time:.3}");
            let fast = parse_plain(text.as_bytes());
            prop_assert_eq!(fast, Some(Timestamp(millis * 1_000)), "{}", text);
        }

        #[test]
        fn text_round_trips(micros in -62_000_000_000_000_000i64..253_000_000_000_000_000) {
            let time = Timestamp::from_micros(micros);
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
    }
}
