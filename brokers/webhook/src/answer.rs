//! What an answer means for the event: the table of the crate's documentation, as code.
//!
//! Invariant: only a 2xx status acknowledges (INV-7), and whatever else comes, or does not come, is
//! named, bounded, and free of control characters.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use hyper_util::client::legacy;
use postrider_core::{ErrorKind, Fault, Outcome};

use crate::connect::Refused;

/// A wish of a server beyond this is cut to it; the route's longest delay cuts further.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Longer than any date.
const RETRY_AFTER_BYTES_MAX: usize = 64;
/// Bytes of a `Location` that are shown.
const LOCATION_BYTES_MAX: usize = 200;
/// Characters of a cause's text that are kept.
const CAUSE_CHARS_MAX: usize = 300;

/// The outcome of a status with the beginning of its body.
pub(crate) fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> Outcome {
    let fault = |kind| Fault::new(kind, tell(status, headers, body));
    let retry = |kind| Outcome::Retry { fault: fault(kind), after: retry_after(headers, now) };
    match status.as_u16() {
        200..=299 => Outcome::Acked,
        410 => Outcome::Gone(fault(ErrorKind::Unroutable)),
        401 | 403 | 407 => Outcome::Unroutable(fault(ErrorKind::Unauthorized)),
        300..=399 | 404 | 405 => Outcome::Unroutable(fault(ErrorKind::Unroutable)),
        408 => retry(ErrorKind::Timeout),
        413 => Outcome::Rejected(fault(ErrorKind::TooLarge)),
        409 | 425 | 429 => retry(ErrorKind::Unavailable),
        400..=499 => Outcome::Rejected(fault(ErrorKind::Rejected)),
        _ => retry(ErrorKind::Unavailable),
    }
}

fn tell(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let mut text = format!("HTTP {}", status.as_u16());
    if status.is_redirection() {
        text.push_str(" (redirects are not followed)");
        if let Some(location) = headers.get(header::LOCATION) {
            let location = location.as_bytes();
            let shown = &location[..location.len().min(LOCATION_BYTES_MAX)];
            text.push_str(" to ");
            text.push_str(&clean(shown));
        }
    }
    let body = clean(body);
    if !body.is_empty() {
        text.push_str(": ");
        text.push_str(&body);
    }
    text
}

/// Text of a stranger: control characters and marks that turn the direction of writing become
/// spaces, runs of white space one space, and what is no UTF-8 is replaced.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let is_blank = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// `Retry-After`: seconds, or a date. What cannot be read is no wish.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if text.is_empty() || text.len() > RETRY_AFTER_BYTES_MAX {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number are still a very long time.
        let seconds = text.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default().min(RETRY_AFTER_MAX))
}

/// The outcome of a request that got no answer: refused by the guard, not connected, broken off, or
/// answered by something that is no HTTP.
pub(crate) fn judge_failure(error: &legacy::Error) -> Outcome {
    let mut io_kind = None;
    let mut text = String::new();
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Refused(message)) = error.downcast_ref() {
            return Outcome::Unroutable(Fault::new(ErrorKind::Config, message.clone()));
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            io_kind = io_kind.or_else(|| Some(error.kind()));
            if let Some(tls) = tls_failure(error) {
                return unavailable(format!("TLS failed: {tls}"));
            }
        }
        let link = error.to_string();
        if !text.contains(&link) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&link);
        }
        cause = error.source();
    }
    if io_kind == Some(std::io::ErrorKind::TimedOut) {
        let detail = format!("no connection in time: {}", short(&text));
        return Outcome::Retry { fault: Fault::new(ErrorKind::Timeout, detail), after: None };
    }
    let what = if error.is_connect() { "not connected" } else { "no answer" };
    unavailable(format!("{what}: {text}"))
}

/// What is wrapped in an I/O error is no source of it, and I/O errors are wrapped in one another.
fn tls_failure(error: &std::io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref().or_else(|| tls_failure(inner.downcast_ref()?))
}

fn unavailable(text: String) -> Outcome {
    let fault = Fault::new(ErrorKind::Unavailable, short(&text));
    Outcome::Retry { fault, after: None }
}

fn short(text: &str) -> String {
    clean(text.as_bytes()).chars().take(CAUSE_CHARS_MAX).collect()
}

/// The outcome of a request whose deadline passed.
pub(crate) fn too_late(deadline: Duration) -> Outcome {
    let detail = format!("no answer within {deadline:?}; the event may have arrived all the same");
    Outcome::Retry { fault: Fault::new(ErrorKind::Timeout, detail), after: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judged(status: u16, retry: Option<&str>) -> Outcome {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry {
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
        }
        judge(StatusCode::from_u16(status).unwrap(), &headers, b"no\r\nway", now())
    }

    /// 1994-11-06T08:49:37Z.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    /// R057: every status has its outcome, and only 2xx acknowledges.
    #[test]
    fn statuses_mean_what_the_table_says() {
        let word = |status| match judged(status, None) {
            Outcome::Acked => "acked",
            Outcome::Retry { .. } => "retry",
            Outcome::Rejected(_) => "rejected",
            Outcome::Unroutable(_) => "unroutable",
            Outcome::Hindered(_) => "hindered",
            Outcome::Gone(_) => "gone",
            Outcome::Skipped => "skipped",
        };
        for status in 100..=999 {
            let expected = match status {
                200..=299 => "acked",
                300..=399 | 401 | 403 | 404 | 405 | 407 => "unroutable",
                410 => "gone",
                408 | 409 | 425 | 429 => "retry",
                400..=499 => "rejected",
                _ => "retry",
            };
            assert_eq!(word(status), expected, "{status}");
        }
    }

    #[test]
    fn the_reason_is_the_status_and_the_cleaned_body() {
        let Outcome::Rejected(fault) = judged(422, None) else { panic!() };
        assert_eq!((fault.kind, &*fault.detail), (ErrorKind::Rejected, "HTTP 422: no way"));
        assert_eq!(clean("a\u{1b}[31m\u{202e}b\u{0}\n c".as_bytes()), "a [31m b c");
        assert_eq!(clean(b"\xff{\"e\": 1}"), "\u{fffd}{\"e\": 1}");
    }

    /// F25: a server that is overloaded is asked again when it says so.
    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 599] {
            let after = |value| match judged(status, Some(value)) {
                Outcome::Retry { after, .. } => after,
                other => panic!("{other:?}"),
            };
            assert_eq!(after("120"), Some(Duration::from_secs(120)));
            assert_eq!(after("0"), Some(Duration::ZERO));
            assert_eq!(after("99999999999999999999999"), Some(RETRY_AFTER_MAX));
            assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
            assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
            assert_eq!(after("Sun, 06 Nov 9994 08:00:00 GMT"), Some(RETRY_AFTER_MAX));
            for wrong in ["", "-1", "1.5", "soon", "1 2", &"9".repeat(65)] {
                assert_eq!(after(wrong), None, "{wrong}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// F21: no body and no header brings the reader down or puts a control character into a reason.
        #[test]
        fn arbitrary_answers_are_told(status in 100u16..1000, body: Vec<u8>, header: Vec<u8>) {
            let mut headers = HeaderMap::new();
            for name in [header::RETRY_AFTER, header::LOCATION] {
                if let Ok(value) = http::HeaderValue::from_bytes(&header) {
                    headers.insert(name, value);
                }
            }
            let outcome = judge(StatusCode::from_u16(status).unwrap(), &headers, &body, now());
            let detail = match outcome {
                Outcome::Acked | Outcome::Skipped => return Ok(()),
                Outcome::Retry { fault, .. } => fault.detail,
                Outcome::Rejected(fault)
                | Outcome::Unroutable(fault)
                | Outcome::Hindered(fault)
                | Outcome::Gone(fault) => fault.detail,
            };
            prop_assert!(!detail.chars().any(char::is_control), "{:?}", detail);
            // Each byte that is no UTF-8 takes three.
            prop_assert!(detail.len() <= 64 + 3 * (body.len() + LOCATION_BYTES_MAX));
        }
    }
}
