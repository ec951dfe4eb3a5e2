//! How a worker works, and its limits.
//!
//! Invariant: options that pass the check bring every message to an end: done, or a dead letter that says why.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result, RetryPolicy};

/// How a worker works, and its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// Keys, or groups, that are worked on at once. Default 8: a function has little memory and one processor.
    pub at_once: usize,
    /// How long the queue hides a message: as it is set there, and in the subscription's settings. Default 6 min, six
    /// times the function's time, which is what the service asks for.
    pub visibility: Duration,
    /// The function's time. Default 1 min.
    pub function_time: Duration,
    /// How long a claim lasts without a heartbeat. Default 30 s, as the inbox has it.
    pub lease: Duration,
    /// After how many receives the queue itself moves a message away, without a reason. Default 100.
    pub receives_max: u32,
    /// After how many receives, tries or not, a message is a dead letter here, with a reason. Default 90, below
    /// `receives_max`: what ends its process never gets a verdict, and only the queue's count knows of it.
    pub deliveries_max: u32,
    /// When what failed comes again, and after how many tries it is a dead letter. Tries are counted by the process, and in the
    /// inbox by receivers that do.
    pub retry: RetryPolicy,
    /// What is kept of an invocation's time for settling and the answer. Default 2 s.
    pub reserve: Duration,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
            at_once: 8,
            visibility: Duration::from_secs(360),
            function_time: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            receives_max: 100,
            deliveries_max: 90,
            retry: RetryPolicy::default(),
            reserve: Duration::from_secs(2),
        }
    }
}

impl WorkerOptions {
    /// Checks that the times fit each other: whichever ends first, lease or visibility, a message is done in the end.
    ///
    /// # Errors
    /// `Config`, with the two values that contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.at_once == 0 || self.retry.attempts_max == 0 || self.lease.is_zero() {
            return refuse("at_once, attempts_max, and the lease are above zero".to_owned());
        }
        if self.reserve >= self.function_time {
            return refuse(format!(
                "of {:?} nothing is left beside the reserve of {:?}",
                self.function_time, self.reserve
            ));
        }
        if self.visibility < self.function_time {
            return refuse(format!(
                "a message is hidden for {:?} and the function may take {:?}: it would come again while it is worked on",
                self.visibility, self.function_time
            ));
        }
        // A worker that was killed holds its claim for a lease; each time that the message comes meanwhile is counted
        // by the queue, and is nobody's fault.
        let busy = self.lease.as_secs_f64() / self.visibility.as_secs_f64();
        let needed = f64::from(self.retry.attempts_max) + busy.ceil();
        if f64::from(self.receives_max) < needed {
            return refuse(format!(
                "the queue gives a message up after {} receives, and {needed} may be needed: {} tries, and those that \
                 find the lease of {:?} taken",
                self.receives_max, self.retry.attempts_max, self.lease
            ));
        }
        if f64::from(self.deliveries_max) < needed || self.deliveries_max >= self.receives_max {
            return refuse(format!(
                "a message is given up here after {} receives: {needed} may be needed, and the queue gives it up \
                 after {}, without a reason",
                self.deliveries_max, self.receives_max
            ));
        }
        Ok(())
    }
}

/// The refusal of what contradicts itself.
pub(crate) fn refuse(what: String) -> Result<()> {
    Err(Error::new(ErrorKind::Config, "configure worker").message(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R082: times that would make a message come again while it is worked on, or give it up while its lease runs,
    /// are refused with both values; either of lease and visibility may be the longer one.
    #[test]
    fn times_that_contradict_each_other_are_refused() {
        let sound = WorkerOptions::default();
        assert!(sound.check().is_ok());
        let long_lease = WorkerOptions { lease: Duration::from_secs(3_600), ..sound };
        assert!(long_lease.check().is_ok(), "ten receives find it taken");
        for (wrong, words) in [
            (
                WorkerOptions { visibility: Duration::from_secs(30), ..sound },
                "while it is worked on",
            ),
            (WorkerOptions { receives_max: 19, ..long_lease }, "19 receives"),
            (WorkerOptions { deliveries_max: 19, ..long_lease }, "19 receives"),
            (WorkerOptions { deliveries_max: 100, ..sound }, "without a reason"),
            (WorkerOptions { reserve: sound.function_time, ..sound }, "nothing is left"),
            (WorkerOptions { at_once: 0, ..sound }, "above zero"),
        ] {
            let error = wrong.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
