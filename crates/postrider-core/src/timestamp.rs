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
        let mut plain = [0; PLAIN_BYTES_MAX];
        if let Some(text) = write_plain(self.0, &mut plain) {
            return f.write_str(text);
        }
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
        if let Some(time) = parse_plain(text.as_bytes()).or_else(|| parse_last_day(text)) {
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

/// The general parser ends 26 hours before the year 9999 does, so that each of its moments has a place in every zone. The
/// last day is what many write who mean that there is no end.
fn parse_last_day(text: &str) -> Option<Timestamp> {
    let day = text.strip_suffix('Z').filter(|text| text.starts_with("9999-12-3"))?;
    let epoch = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);
    let since = day.parse::<jiff::civil::DateTime>().ok()?.duration_since(epoch);
    i64::try_from(since.as_micros()).ok().map(Timestamp)
}

/// `YYYY-MM-DDTHH:MM:SS.mmmmmmZ`.
const PLAIN_BYTES_MAX: usize = 27;

/// Writes a moment from 1970 to 9999, which an event has twice; anything else goes to the general printer. As that
/// one does it, a fraction has no zeros at its end, and a full second none at all.
fn write_plain(micros: i64, text: &mut [u8; PLAIN_BYTES_MAX]) -> Option<&str> {
    /// The last one of the year 9999.
    const LAST: u64 = 253_402_300_799_999_999;
    let micros = u64::try_from(micros).ok().filter(|micros| *micros <= LAST)?;
    let (seconds, mut fraction) = (micros / 1_000_000, micros % 1_000_000);
    // Counted from 1 March of the year 0, so that the leap day is the last day of its year.
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + years + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    text.copy_from_slice(b"0000-00-00T00:00:00.000000Z");
    let mut put = |from: usize, to: usize, mut number: u64| {
        for digit in text[from..to].iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
        }
    };
    put(0, 4, year);
    put(5, 7, month);
    put(8, 10, day);
    put(11, 13, hour);
    put(14, 16, minute);
    put(17, 19, second);
    let mut places = 6;
    while places > 0 && fraction % 10 == 0 {
        (fraction, places) = (fraction / 10, places - 1);
    }
    put(20, 20 + places, fraction);
    let end = if places == 0 { 19 } else { 20 + places };
    text[end] = b'Z';
    std::str::from_utf8(&text[..=end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_at_the_edges_are_written_as_the_general_printer_does() {
        let last = 253_402_207_200_000_000;
        let leap_day = 1_709_164_800_000_000;
        for micros in [-1, 0, 1, leap_day - 1, leap_day, leap_day + 86_400_000_000, last] {
            let general = jiff::Timestamp::from_microsecond(micros).unwrap().to_string();
            assert_eq!(Timestamp(micros).to_string(), general);
        }
    }

    /// A moment is a time for every reader until the year 9999 has ended.
    #[test]
    fn the_last_day_of_all_is_written_and_read() {
        let last = 253_402_300_799_999_999;
        for (micros, text) in [
            (last, "9999-12-31T23:59:59.999999Z"),
            (last - 86_399_999_999, "9999-12-31T00:00:00Z"),
            (253_402_207_200_000_001, "9999-12-30T22:00:00.000001Z"),
        ] {
            assert_eq!(Timestamp(micros).to_string(), text);
            assert_eq!(text.parse::<Timestamp>().unwrap(), Timestamp(micros));
        }
        assert_eq!("9999-12-31 00:00:00Z".parse::<Timestamp>().unwrap().0, last - 86_399_999_999);
        assert!("9999-12-32T00:00:00Z".parse::<Timestamp>().is_err());
        assert_eq!(Timestamp(last + 1).to_string(), format!("{}us", last + 1));
    }

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
        fn the_fast_printer_agrees_with_the_general_one(micros in -62_000_000_000_000_000i64..253_000_000_000_000_000, round in 0u32..8) {
            let micros = micros / 10i64.pow(round) * 10i64.pow(round);
            let general = jiff::Timestamp::from_microsecond(micros).unwrap().to_string();
            prop_assert_eq!(Timestamp(micros).to_string(), general);
        }

        #[test]
        fn text_round_trips(micros in -62_000_000_000_000_000i64..253_000_000_000_000_000) {
            let time = Timestamp::from_micros(micros);
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
    }
}
