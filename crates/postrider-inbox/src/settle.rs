//! From what a handler answered to how its delivery is settled: a pure table.
//!
//! Invariant: only a failure that names the event counts against it.

use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::{ErrorKind, Fault, Jitter, planted};

use crate::command::{Answer, Blame, blame};
use crate::options::ConsumerOptions;

/// How a delivery ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Ack,
    Nack { delay: Duration, counted: bool },
    Reject(Fault),
}

/// Why an answer led to its settlement, for the statistics and the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Done,
    Duplicate,
    Busy,
    Retry,
    Rejected,
    StoreFailed,
}

/// Decides how to settle, `attempts` being the counted tries, this one included.
pub(crate) fn settle(
    answer: Answer,
    attempts: u32,
    options: &ConsumerOptions,
    jitter: &mut Jitter,
) -> (Settlement, Reason) {
    let verdict = match answer {
        Answer::Verdict(verdict) => verdict,
        Answer::Panicked(text) => Verdict::Retry {
            after: None,
            fault: Fault::new(ErrorKind::Internal, format!("the handler panicked: {text}")),
            tries: None,
        },
        Answer::Failed(error) => match blame(&error) {
            // The bug: an outage of the store is taken for a failure of each event.
            whose if whose == Blame::Event || planted!(StoreFailureCountsAgainstMessage) => {
                Verdict::Retry {
                    after: None,
                    fault: Fault::new(error.kind(), error.to_string()),
                    tries: None,
                }
            }
            whose => {
                let delay = pause(1, options, jitter);
                let reason = match whose {
                    Blame::Store => Reason::StoreFailed,
                    Blame::Turn | Blame::Event => Reason::Busy,
                };
                return (uncounted(delay, options), reason);
            }
        },
    };
    match verdict {
        Verdict::Done => (Settlement::Ack, Reason::Done),
        Verdict::Duplicate => (Settlement::Ack, Reason::Duplicate),
        Verdict::Busy { retry_in } => (uncounted(retry_in, options), Reason::Busy),
        // Who is alone already has nothing to wait for here.
        Verdict::Alone => (uncounted(options.return_delay, options), Reason::Busy),
        Verdict::Reject(fault) => (Settlement::Reject(fault), Reason::Rejected),
        Verdict::Retry { after, fault, .. } => again(after, fault, attempts, options, jitter),
    }
}

fn again(
    after: Option<Duration>,
    fault: Fault,
    attempts: u32,
    options: &ConsumerOptions,
    jitter: &mut Jitter,
) -> (Settlement, Reason) {
    match options.retry.delay(attempts, after, jitter) {
        Some(delay) => {
            let delay = delay.max(options.return_delay_min);
            let counted = true;
            (Settlement::Nack { delay, counted }, Reason::Retry)
        }
        None => {
            let detail = format!("gave up after {attempts} attempts: {}", fault.detail);
            let fault = Fault::new(fault.kind, detail);
            (Settlement::Reject(fault), Reason::Rejected)
        }
    }
}

fn uncounted(delay: Duration, options: &ConsumerOptions) -> Settlement {
    Settlement::Nack { delay: delay.max(options.return_delay_min), counted: false }
}

/// The pause after so many consecutive failures of something that is down.
pub(crate) fn pause(failures: u32, options: &ConsumerOptions, jitter: &mut Jitter) -> Duration {
    options.pause().delay(failures, None, jitter).unwrap_or(options.pause_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::Error;

    fn decide(answer: Answer, attempts: u32) -> Settlement {
        let options = ConsumerOptions::default();
        settle(answer, attempts, &options, &mut Jitter::seeded(7)).0
    }

    fn retry(kind: ErrorKind) -> Verdict {
        let fault = Fault::new(kind, "no answer from the bank");
        Verdict::Retry { after: None, fault, tries: None }
    }

    #[test]
    fn done_and_duplicate_are_acknowledged() {
        assert_eq!(decide(Answer::Verdict(Verdict::Done), 1), Settlement::Ack, "done");
        assert_eq!(
            decide(Answer::Verdict(Verdict::Duplicate), 99),
            Settlement::Ack,
            "R080: what was done is acknowledged, however often it came"
        );
    }

    /// R079: a message that somebody else has in work is left on the queue and never counted.
    #[test]
    fn busy_is_left_on_the_queue_for_the_rest_of_the_lease() {
        let retry_in = Duration::from_secs(17);
        let busy = Answer::Verdict(Verdict::Busy { retry_in });
        let left = Settlement::Nack { delay: retry_in, counted: false };
        assert_eq!(decide(busy, 1_000), left, "however often it came");
    }

    #[test]
    fn the_last_attempt_goes_to_the_dead_letters_with_its_reason() {
        let last = decide(Answer::Verdict(retry(ErrorKind::Unavailable)), 10);
        let Settlement::Reject(fault) = last else { panic!("{last:?}") };
        assert_eq!(fault.kind, ErrorKind::Unavailable);
        assert!(
            fault.detail.contains("10 attempts")
                && fault.detail.contains("no answer from the bank"),
            "{fault}"
        );
        let before = decide(Answer::Verdict(retry(ErrorKind::Unavailable)), 9);
        assert!(matches!(before, Settlement::Nack { counted: true, .. }), "{before:?}");
    }

    #[test]
    fn the_stores_failures_never_count_and_the_events_own_do() {
        let failed = |kind| decide(Answer::Failed(Error::new(kind, "claim")), 1_000);
        for kind in
            [ErrorKind::Unavailable, ErrorKind::DiskFull, ErrorKind::Busy, ErrorKind::Fenced]
        {
            assert!(matches!(failed(kind), Settlement::Nack { counted: false, .. }), "{kind:?}");
        }
        assert!(matches!(failed(ErrorKind::Invalid), Settlement::Reject(_)));
    }

    /// F19: a panic counts.
    #[test]
    fn a_panic_is_a_counted_try() {
        let panicked = || Answer::Panicked("index out of bounds".to_owned());
        assert!(matches!(decide(panicked(), 1), Settlement::Nack { counted: true, .. }));
        let Settlement::Reject(fault) = decide(panicked(), 10) else { panic!("the last attempt") };
        assert!(fault.detail.contains("index out of bounds"));
    }
}
