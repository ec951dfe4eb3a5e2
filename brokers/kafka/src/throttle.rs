//! Quotas: servers that keep this client back. They say so in each answer, and the library in its reports alone.
//!
//! Invariant (INV-8): what waits because of a quota is said to, and not that time ran out. And it is never said of a client
//! that was not kept back within the last reports.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::statistics::{Broker, Statistics};

/// How often the library is to report: twice within the time that an event usually has. A report is some kilobytes for each
/// partition in use.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(2);

/// The longest pause that is believed: servers keep nobody back for longer than the window of their quotas, which is 11 s by default.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Option<Pause>>);

/// The longest pause that a server asked for since the report before.
#[derive(Clone, Copy, Debug)]
struct Pause {
    length: Duration,
    heard_at: Instant,
}

impl Pause {
    /// It may have begun with the report, and what was sent in it is only heard of by the next one.
    fn lasts_until(self) -> Instant {
        self.heard_at + self.length + 2 * REPORT_EVERY
    }
}

impl Throttle {
    /// The library reports.
    pub(crate) fn hear(&self, said: &Statistics, now: Instant) {
        let asked = |server: &Broker| server.throttle.as_ref().map_or(0, |pauses| pauses.max);
        let longest = said.brokers.values().map(asked).max().unwrap_or_default();
        let Ok(millis @ 1..) = u64::try_from(longest) else { return };
        let length = Duration::from_millis(millis).min(PAUSE_MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Pause { length, heard_at: now });
    }

    /// For how long servers keep this client back at a time, if they do.
    pub(crate) fn pause(&self, now: Instant) -> Option<Duration> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|pause| now < pause.lasts_until()).map(|pause| pause.length)
    }

    /// The same as a sentence for whoever reads the log at night.
    pub(crate) fn said(&self, now: Instant) -> Option<String> {
        let pause = self.pause(now)?;
        Some(format!(
            "the servers keep this client back, by a quota of theirs, for up to {} ms at a time; raise \
             `producer_byte_rate` or `request_percentage` of its user or client id, or send less",
            pause.as_millis()
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rdkafka::statistics::Window;

    use super::*;

    fn report(pauses: &[i64]) -> Statistics {
        let server = |max: &i64| {
            let throttle = Some(Window { max: *max, ..Window::default() });
            (max.to_string(), Broker { throttle, ..Broker::default() })
        };
        let brokers: HashMap<_, _> = pauses.iter().map(server).collect();
        Statistics { brokers, ..Statistics::default() }
    }

    #[test]
    fn the_longest_pause_counts_until_it_must_be_over() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        throttle.hear(&report(&[0, 0]), now);
        assert_eq!(throttle.pause(now), None, "nobody keeps it back");
        throttle.hear(&report(&[0, 700, 300]), now);
        let pause = Duration::from_millis(700);
        // A server that answers nobody while it keeps a client back adds nothing to the next report.
        throttle.hear(&report(&[0]), now + REPORT_EVERY);
        assert_eq!(throttle.pause(now + REPORT_EVERY), Some(pause));
        let said = throttle.said(now).expect("a sentence");
        assert!(said.contains("700 ms") && said.contains("producer_byte_rate"), "{said}");
        assert_eq!(throttle.pause(now + pause + 2 * REPORT_EVERY), None, "it is over");
        throttle.hear(&report(&[i64::MAX]), now);
        assert_eq!(throttle.pause(now), Some(PAUSE_MAX), "whatever a server says");
        throttle.hear(&report(&[-1]), now);
        assert_eq!(throttle.pause(now), Some(PAUSE_MAX), "and what it cannot mean changes nothing");
    }
}
