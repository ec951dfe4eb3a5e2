//! A message that comes again and again to a handler whose marker lives in its own transaction: there, a try that fails
//! leaves nothing behind that could be counted.
//!
//! So what has been delivered suspiciously often, or may have been begun by a process that is gone, is claimed before it is acted
//! on, for no time at all: the claim keeps nobody out, and counts. What ends the process leaves the claim as it is, and is known
//! by that; what failed, and what was merely given back, lets it go.
//!
//! What ends the process leaves the claims of its neighbours as well. So whatever was left like that half as often as it may be is
//! tried alone, here and in leased inboxes: from then on each of its tries is its own doing, as far as its consumer can know.

use std::time::Duration;

use crate::inbox::{ClaimRequest, Tried, Verdict};
use crate::{ErrorKind, Event, Fault, HandlerName, Result};

/// Tries of one message without an end, after which it is refused without asking the handler, by default: twice the
/// attempts of the default policy. What kills the process never gets a verdict, and only a count that outlives it knows.
pub const DELIVERIES_MAX: u32 = 20;

/// How many deliveries of a message are nothing special, where so many are too many: half of them.
///
/// ```
/// use postrider_core::inbox::{DELIVERIES_MAX, usual_deliveries};
/// assert_eq!(usual_deliveries(DELIVERIES_MAX), 10);
/// ```
pub fn usual_deliveries(max: u32) -> u32 {
    max / 2
}

/// Whether a message that was tried so often without an end, this time included, of `max` times, is to be tried
/// [alone](Verdict::Alone).
///
/// ```
/// use postrider_core::inbox::is_suspect;
/// assert!(!is_suspect(10, 20));
/// assert!(is_suspect(11, 20));
/// ```
pub fn is_suspect(tries: u32, max: u32) -> bool {
    // Nobody is suspected at the first.
    tries > usual_deliveries(max).max(1)
}

/// The claim of an event that was delivered more often than [that](usual_deliveries). It is of any payload, so that a
/// dead letter that somebody corrects is not refused for the payload that it had.
///
/// # Errors
/// `Invalid` if the event has no source.
pub fn suspicion(event: &Event, handler: &HandlerName) -> Result<ClaimRequest> {
    let mut request = ClaimRequest::new(event, handler, Duration::ZERO)?;
    request.payload_hash = [0; 32];
    Ok(request)
}

/// Why a message is not begun any more that was tried so often without an end, this time included, if that is more than `max`.
///
/// ```
/// use postrider_core::inbox::too_often;
/// assert!(too_often(20, 20).is_none());
/// assert!(too_often(21, 20).is_some());
/// ```
pub fn too_often(tries: u32, max: u32) -> Option<Fault> {
    (tries > max).then(|| {
        let before = tries - 1;
        let detail =
            format!("begun {before} times and never done: it may stop the consumer's process");
        Fault::new(ErrorKind::Internal, detail)
    })
}

/// What becomes of a message unbegun that was lost so often before, of `max` times, if it is not begun; it is given back
/// [uncounted](Tried::NotCounted) then. `alone` is [what its delivery says](crate::Delivery::alone): where nobody can see to that,
/// its neighbours may have been the cause each time, and it is begun.
///
/// ```
/// use postrider_core::inbox::{Verdict, unbegun};
/// assert_eq!(unbegun(15, None, 10), None);
/// assert_eq!(unbegun(5, Some(false), 10), Some(Verdict::Alone));
/// assert!(matches!(unbegun(10, Some(true), 10), Some(Verdict::Reject(_))));
/// ```
pub fn unbegun(lost: u32, alone: Option<bool>, max: u32) -> Option<Verdict> {
    let nth = lost.saturating_add(1);
    alone?;
    match too_often(nth, max) {
        Some(fault) => Some(Verdict::Reject(fault)),
        None => (alone == Some(false) && is_suspect(nth, max)).then_some(Verdict::Alone),
    }
}

/// Says in a verdict how often the message was tried, and what is to become of the claim; nothing where the row is done.
///
/// Where the broker has delivered it suspiciously `often`, an error counts as a failure: the database took the claim a moment ago,
/// so what ended the handler's session or statement is more likely the event than an outage. Elsewhere none is held against it.
///
/// ```
/// use std::time::Duration;
/// use postrider_core::{Error, ErrorKind};
/// use postrider_core::inbox::{Tried, Verdict, counted};
/// let busy = Verdict::Busy { retry_in: Duration::ZERO };
/// assert_eq!(counted(Ok(busy), 3, true).1, Some(Tried::NotCounted));
/// assert_eq!(counted(Ok(Verdict::Done), 3, true).1, None);
/// let ended = || Err(Error::new(ErrorKind::Unavailable, "receive"));
/// assert!(matches!(counted(ended(), 3, true), (Ok(Verdict::Retry { tries: Some(3), .. }), Some(Tried::Failed))));
/// assert!(matches!(counted(ended(), 3, false), (Err(_), Some(Tried::NotCounted))));
/// ```
pub fn counted(
    answer: Result<Verdict>,
    tries: u32,
    often: bool,
) -> (Result<Verdict>, Option<Tried>) {
    let answer = answer.or_else(|error| match error.kind() {
        kind if often && !is_of_store(kind) => {
            let fault = Fault::new(kind, error.to_string());
            Ok(Verdict::Retry { after: None, fault, tries: None })
        }
        _ => Err(error),
    });
    let tried = match &answer {
        Ok(Verdict::Done | Verdict::Duplicate) => None,
        Ok(Verdict::Retry { .. }) => Some(Tried::Failed),
        Ok(Verdict::Reject(_)) => Some(Tried::Refused),
        Ok(Verdict::Busy { .. } | Verdict::Alone) | Err(_) => Some(Tried::NotCounted),
    };
    let answer = answer.map(|verdict| match verdict {
        Verdict::Retry { after, fault, .. } => Verdict::Retry { after, fault, tries: Some(tries) },
        verdict => verdict,
    });
    (answer, tried)
}

/// Whether such an error is never the event's doing.
fn is_of_store(kind: ErrorKind) -> bool {
    use ErrorKind::{Backpressure, Busy, DiskFull, ReadOnly};
    matches!(kind, Busy | Backpressure | DiskFull | ReadOnly)
}
