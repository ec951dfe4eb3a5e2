//! From what a handler answered to what becomes of its message: a pure table.
//!
//! Invariants: only a failure that names the message counts against it; and what is given up here is given up with
//! its reason, before the queue moves it away without one.

use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::{Error, ErrorKind, Fault, Jitter, RetryPolicy};

use crate::options::WorkerOptions;

/// How a handler ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// With a verdict.
    Verdict(Verdict),
    /// The inbox itself did not answer.
    Failed(Error),
    /// By a panic, with its text.
    Panicked(String),
    /// It was at work when the function's time was up.
    Late,
}

/// What becomes of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Done,
    Duplicate,
    Bury(Fault),
    Again { delay: Duration, counted: bool },
}

/// How often a message came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// Tries of this process that count, this one included.
    pub(crate) tries: u32,
    /// Receives that the queue counted, whoever they went to and whatever became of them.
    pub(crate) receives: u32,
}

/// Decides what becomes of a message.
pub(crate) fn settle(
    answer: Answer,
    came: Came,
    options: &WorkerOptions,
    jitter: &mut Jitter,
) -> Next {
    let mut came = came;
    let (after, fault) = match answer {
        Answer::Verdict(Verdict::Done) => return Next::Done,
        Answer::Verdict(Verdict::Duplicate) => return Next::Duplicate,
        Answer::Verdict(Verdict::Reject(fault)) => return Next::Bury(fault),
        // Somebody is at it: when the lease has ended, it is done, or ours to do.
        Answer::Verdict(Verdict::Busy { retry_in }) => {
            return Next::Again { delay: retry_in, counted: false };
        }
        // A function cannot see to that, and says so; here it is tried in any case.
        Answer::Verdict(Verdict::Alone) => {
            return Next::Again { delay: Duration::ZERO, counted: false };
        }
        Answer::Verdict(Verdict::Retry { after, fault, tries }) => {
            // Other environments tried it as well, and the inbox knows; and it knows of an earlier life of the event, of
            // which the queue has counted nothing.
            came.tries = came.tries.max(tries.unwrap_or_default().min(came.receives));
            (after, fault)
        }
        Answer::Panicked(text) => {
            (None, Fault::new(ErrorKind::Internal, format!("the handler panicked: {text}")))
        }
        Answer::Late if came.receives >= options.deliveries_max => {
            (None, Fault::new(ErrorKind::Timeout, "it was not done in the function's time"))
        }
        Answer::Late => {
            return Next::Again { delay: options.lease.min(options.visibility), counted: true };
        }
        Answer::Failed(error) => match error.kind() {
            // The event's own: it fails for ever, and others do not.
            ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::Conflict => {
                (None, Fault::new(error.kind(), error.to_string()))
            }
            // Somebody else's turn.
            ErrorKind::Fenced => return away(1, options, jitter),
            // An inbox that is down is asked ever more seldom: each receive is one of the queue's count.
            _ => return away(came.receives, options, jitter),
        },
    };
    match options.retry.delay(came.tries, after, jitter) {
        Some(delay) if came.receives < options.deliveries_max => {
            Next::Again { delay, counted: true }
        }
        _ => {
            let Came { tries, receives } = came;
            let detail =
                format!("gave up after {tries} tries, {receives} receives: {}", fault.detail);
            Next::Bury(Fault::new(fault.kind, detail))
        }
    }
}

/// It comes again, and was no try.
fn away(failures: u32, options: &WorkerOptions, jitter: &mut Jitter) -> Next {
    let patient = RetryPolicy { attempts_max: u32::MAX, ..options.retry };
    let delay = patient.delay(failures, None, jitter).unwrap_or(options.retry.delay_max);
    Next::Again { delay, counted: false }
}

/// Why a message is not begun any more, if so.
pub(crate) fn too_often(receives: u32, options: &WorkerOptions) -> Option<Fault> {
    (receives > options.deliveries_max).then(|| {
        let detail = format!(
            "given out {} times without an end: it may end the function's process, or have waited for what does",
            receives - 1
        );
        Fault::new(ErrorKind::Internal, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(answer: Answer, tries: u32, receives: u32) -> Next {
        let options = WorkerOptions::default();
        settle(answer, Came { tries, receives }, &options, &mut Jitter::seeded(7))
    }

    fn failed(kind: ErrorKind, receives: u32) -> Next {
        decide(Answer::Failed(Error::new(kind, "claim")), 1, receives)
    }

    fn retry() -> Answer {
        let fault = Fault::new(ErrorKind::Unavailable, "no answer from the bank");
        Answer::Verdict(Verdict::Retry { after: None, fault, tries: None })
    }

    fn delay(next: &Next) -> Duration {
        let Next::Again { delay, counted: false } = next else { panic!("{next:?}") };
        *delay
    }

    /// R079: what somebody else has in work waits for the rest of the lease, and is no try.
    #[test]
    fn busy_is_no_try() {
        let retry_in = Duration::from_secs(17);
        let next = decide(Answer::Verdict(Verdict::Busy { retry_in }), 10, 89);
        assert_eq!(next, Next::Again { delay: retry_in, counted: false });
    }

    #[test]
    fn an_inbox_that_is_down_is_asked_ever_more_seldom_and_never_counts() {
        let (first, fifth) = (failed(ErrorKind::Unavailable, 1), failed(ErrorKind::Unavailable, 5));
        assert!(delay(&first) <= Duration::from_secs(1));
        assert!(delay(&fifth) >= Duration::from_secs(8), "{fifth:?}");
        assert!(delay(&failed(ErrorKind::Timeout, 1_000)) <= Duration::from_secs(600));
        assert!(delay(&failed(ErrorKind::Fenced, 50)) <= Duration::from_secs(1), "a turn is short");
    }

    #[test]
    fn an_error_that_is_the_events_own_counts() {
        for kind in [ErrorKind::Invalid, ErrorKind::TooLarge, ErrorKind::Conflict] {
            assert!(matches!(failed(kind, 1), Next::Again { counted: true, .. }), "{kind:?}");
            let last = decide(Answer::Failed(Error::new(kind, "claim")), 10, 10);
            assert!(matches!(last, Next::Bury(fault) if fault.kind == kind), "{kind:?}");
        }
    }

    #[test]
    fn tries_give_a_message_up_and_receives_do_not_before_the_queue_would() {
        assert!(matches!(decide(retry(), 9, 80), Next::Again { counted: true, .. }));
        for (tries, receives) in [(10, 10), (1, 90)] {
            let Next::Bury(fault) = decide(retry(), tries, receives) else { panic!("{tries}") };
            assert!(fault.detail.contains("no answer from the bank"), "{fault}");
        }
        let options = WorkerOptions::default();
        assert!(too_often(90, &options).is_none() && too_often(91, &options).is_some());
    }

    /// Tries of other environments are the inbox's to count, and those of an earlier life of the event are none.
    #[test]
    fn what_the_inbox_counts_is_a_try_wherever_it_was_made() {
        let counted = |inbox| match retry() {
            Answer::Verdict(Verdict::Retry { after, fault, .. }) => {
                Answer::Verdict(Verdict::Retry { after, fault, tries: Some(inbox) })
            }
            other => other,
        };
        assert!(matches!(decide(counted(10), 1, 12), Next::Bury(_)), "by others");
        assert!(matches!(decide(counted(9), 1, 12), Next::Again { counted: true, .. }));
        assert!(
            matches!(decide(counted(10), 1, 1), Next::Again { counted: true, .. }),
            "sent again"
        );
    }

    /// F19: a panic counts, and says what it said.
    #[test]
    fn a_panic_is_a_try() {
        let panicked = || Answer::Panicked("index out of bounds".to_owned());
        assert!(matches!(decide(panicked(), 1, 1), Next::Again { counted: true, .. }));
        let Next::Bury(fault) = decide(panicked(), 10, 10) else { panic!("the last try") };
        assert!(fault.detail.contains("index out of bounds"), "{fault}");
    }

    #[test]
    fn what_the_time_was_up_for_comes_again_until_the_last_receive() {
        assert!(matches!(decide(Answer::Late, 50, 50), Next::Again { counted: true, .. }));
        assert!(matches!(decide(Answer::Late, 50, 90), Next::Bury(_)));
    }
}
