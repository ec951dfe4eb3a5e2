//! A message that comes again to a handler whose marker lives in its own transaction: there, a try that fails leaves
//! nothing behind that could be counted.
//!
//! So from the second delivery on, the store claims the event before it acts, for no time at all: the claim keeps nobody out, and
//! counts. What ends the process leaves the claim; what was merely given back takes it back.

use crate::inbox::{ClaimLease, Tried, Verdict};
use crate::{ErrorKind, Fault, Result};

/// Tries of one message without an end, after which it is refused without asking the handler, by default: twice the
/// attempts of the default policy. What kills the process never gets a verdict, and only a count that outlives it knows.
pub const DELIVERIES_MAX: u32 = 20;

/// How often a message was tried, this time included, of which the broker says that it was delivered `count` times: it
/// counts what was given back, and the claim does not. Its first delivery was not claimed.
///
/// ```
/// use std::sync::Arc;
/// use postrider_core::{ClaimLease, Event, EventId, HandlerName, InboxKey, inbox::tries};
/// # let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
/// # event.source = Arc::from("/shop");
/// # let key = InboxKey::of(&event, &HandlerName::new("billing")?)?;
/// let lease = ClaimLease { key, token: 9, tries: 1 };
/// assert_eq!(tries(&lease, 50), 2);
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn tries(lease: &ClaimLease, count: u32) -> u32 {
    lease.tries.saturating_add(1).min(count)
}

/// Why a message is not begun any more that was tried so often before, if that is more than `max`.
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
            format!("begun {before} times without a verdict: it may stop the consumer's process");
        Fault::new(ErrorKind::Internal, detail)
    })
}

/// Says in a verdict how often the message was tried, and what is to become of the claim; nothing where the try counts, or
/// the row is done.
///
/// ```
/// use std::time::Duration;
/// use postrider_core::inbox::{Tried, Verdict, counted};
/// let busy = Verdict::Busy { retry_in: Duration::ZERO };
/// assert_eq!(counted(Ok(busy), 3).1, Some(Tried::NotCounted));
/// assert_eq!(counted(Ok(Verdict::Done), 3).1, None);
/// ```
pub fn counted(answer: Result<Verdict>, tries: u32) -> (Result<Verdict>, Option<Tried>) {
    let tried = match &answer {
        Ok(Verdict::Done | Verdict::Duplicate | Verdict::Retry { .. }) => None,
        Ok(Verdict::Reject(_)) => Some(Tried::Refused),
        Ok(Verdict::Busy { .. }) => Some(Tried::NotCounted),
        Err(error) => (!error.kind().blames_event()).then_some(Tried::NotCounted),
    };
    let answer = answer.map(|verdict| match verdict {
        Verdict::Retry { after, fault, .. } => Verdict::Retry { after, fault, tries: Some(tries) },
        verdict => verdict,
    });
    (answer, tried)
}
