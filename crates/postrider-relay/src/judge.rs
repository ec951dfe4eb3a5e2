//! Who fails: the event, or its endpoint? A pure function, because an outage must kill nothing, and
//! a poison event must not hold its endpoint (INV-1, INV-5).

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Fault, Outcome, RetryClass, Tick, planted, reach};

/// What the attempt looked like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Whether the batch had only this event, so that whatever failed, failed for it.
    pub(crate) alone: bool,
    /// When this event was tried before, by this process.
    pub(crate) before: Option<Tick>,
    /// When this attempt was sent.
    pub(crate) sent: Tick,
    /// When the endpoint last acknowledged an event.
    pub(crate) last_ack: Option<Tick>,
}

/// Whose fault it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// Delivered.
    Delivered,
    /// The attempt counts against the event.
    Counts { fault: Fault, after: Option<Duration> },
    /// The endpoint is to blame; no attempt counts.
    Endpoint { fault: Fault, after: Option<Duration> },
    /// A part of the endpoint is to blame, and others take what is theirs; no attempt counts. The event was
    /// tried so long ago before, if it was.
    Hindered { fault: Fault, since: Option<Duration> },
    /// The endpoint wants nothing any more; no attempt counts.
    Gone { fault: Fault },
    /// The destination will never take this event.
    Refused { fault: Fault },
    /// The event was not tried.
    Untried,
}

/// Judges one event's outcome.
///
/// A transient failure counts against the event only if the answer names it, or it was sent alone,
/// and the same endpoint acknowledged another event since the attempt before (or, at a first
/// attempt, since this one was sent).
///
/// What hinders an event without being its fault is the endpoint's, too, unless that goes on taking others.
pub(crate) fn judge(outcome: Outcome, attempt: Attempt) -> Judgement {
    let passes = attempt.last_ack.is_some_and(|ack| ack >= attempt.before.unwrap_or(attempt.sent));
    match outcome {
        Outcome::Acked => Judgement::Delivered,
        Outcome::Skipped if planted!(SkippedCountsAsAcked) => Judgement::Delivered,
        Outcome::Skipped => Judgement::Untried,
        Outcome::Rejected(fault) => Judgement::Refused { fault },
        Outcome::Unroutable(fault) => Judgement::Endpoint { fault, after: None },
        Outcome::Gone(fault) => Judgement::Gone { fault },
        Outcome::Hindered(fault) if passes && planted!(HinderedCounts) => {
            Judgement::Counts { fault, after: None }
        }
        Outcome::Hindered(fault) if passes => {
            let since = attempt.before.map(|before| attempt.sent.since(before));
            Judgement::Hindered { fault, since }
        }
        Outcome::Hindered(fault) => Judgement::Endpoint { fault, after: None },
        Outcome::Retry { fault, after } => {
            if passes || planted!(OutageCountsAgainstEvents) {
                Judgement::Counts { fault, after }
            } else {
                Judgement::Endpoint { fault, after }
            }
        }
    }
}

/// Judges one event of a batch that failed as a whole.
pub(crate) fn judge_unnamed(error: &Error, attempt: Attempt) -> Judgement {
    if error.kind() == ErrorKind::Timeout && planted!(TimeoutCountsAsAcked) {
        return Judgement::Delivered;
    }
    reach!(BatchFailedWhole, if !attempt.alone);
    let fault = Fault::new(error.kind(), error.to_string());
    // What a person must mend, and what the client itself refuses to go on with, is never the
    // event's doing, however often it comes back.
    let transient = error.retry_class() == RetryClass::Transient;
    if attempt.alone && transient && error.kind() != ErrorKind::Closed {
        judge(Outcome::Retry { fault, after: None }, attempt)
    } else {
        Judgement::Endpoint { fault, after: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(before: Option<u64>, last_ack: Option<u64>) -> Attempt {
        Attempt {
            alone: false,
            before: before.map(Tick),
            sent: Tick(100),
            last_ack: last_ack.map(Tick),
        }
    }

    fn transient() -> Outcome {
        Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, "503"), after: None }
    }

    fn counts(judgement: &Judgement) -> bool {
        matches!(judgement, Judgement::Counts { .. })
    }

    #[test]
    fn an_outage_counts_against_no_event() {
        for before in [None, Some(50), Some(99)] {
            assert!(!counts(&judge(transient(), attempt(before, None))));
            assert!(!counts(&judge(transient(), attempt(before, Some(10)))));
        }
    }

    #[test]
    fn a_failure_counts_when_the_endpoint_took_another_event_meanwhile() {
        assert!(counts(&judge(transient(), attempt(Some(50), Some(60)))));
        assert!(counts(&judge(transient(), attempt(None, Some(100)))));
        assert!(!counts(&judge(transient(), attempt(None, Some(99)))));
    }

    /// INV-1, INV-5: an outage of a part kills nothing, and does not pause the others.
    #[test]
    fn what_hinders_an_event_never_counts() {
        let hindered = || Outcome::Hindered(Fault::new(ErrorKind::Timeout, "no leader"));
        let judged = |before, last_ack| judge(hindered(), attempt(before, last_ack));
        for before in [None, Some(50)] {
            assert!(matches!(judged(before, Some(10)), Judgement::Endpoint { .. }));
        }
        let Judgement::Hindered { since, .. } = judged(Some(50), Some(60)) else { panic!() };
        assert_eq!(since, Some(Tick(100).since(Tick(50))));
        assert!(matches!(judged(None, Some(100)), Judgement::Hindered { since: None, .. }));
    }

    #[test]
    fn a_failure_that_names_no_event_counts_only_for_one_sent_alone() {
        let error = Error::new(ErrorKind::Unavailable, "publish");
        let together = attempt(Some(50), Some(60));
        assert!(!counts(&judge_unnamed(&error, together)));
        assert!(counts(&judge_unnamed(&error, Attempt { alone: true, ..together })));
        let denied = Error::new(ErrorKind::Unauthorized, "publish");
        assert!(!counts(&judge_unnamed(&denied, Attempt { alone: true, ..together })));
    }
}
