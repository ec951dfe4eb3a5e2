//! Pace: how fast a command goes that runs for long, as a line on the terminal that is written over
//! and over, or as a line in a log now and then.

use std::time::{Duration, Instant};

use crate::terminal::Progress;

/// How often a log file gets a line while something is done.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The pace of a running command.
pub(crate) struct Pace {
    pub(crate) progress: Progress,
    pub(crate) started: Instant,
    /// What was done in about the last second.
    pub(crate) rate: u64,
    /// Where the rate is measured from.
    since: (Instant, u64),
    logged: (Instant, u64),
}

impl Pace {
    pub(crate) fn new() -> Pace {
        let now = Instant::now();
        let began = (now, 0);
        Pace { progress: Progress::new(), started: now, rate: 0, since: began, logged: began }
    }

    /// So much is done by now.
    pub(crate) fn measure(&mut self, done: u64) {
        let (then, before) = self.since;
        let span = then.elapsed();
        if span >= Duration::from_secs(1) {
            self.rate = per_second(done.saturating_sub(before), span);
            self.since = (Instant::now(), done);
        }
    }

    /// Shows a line, or logs it if more is done than at the last one.
    pub(crate) fn show(&mut self, line: &str, done: u64) {
        let now = Instant::now();
        if self.progress.is_live() {
            self.progress.show(line);
        } else if now >= self.logged.0 + LOG_EVERY {
            if done > self.logged.1 {
                self.progress.note(line);
            }
            self.logged = (now, done);
        }
    }
}

/// So many in such a time, as a rate.
pub(crate) fn per_second(number: u64, span: Duration) -> u64 {
    let rate = number as f64 / span.as_secs_f64().max(0.001);
    rate.round() as u64
}
