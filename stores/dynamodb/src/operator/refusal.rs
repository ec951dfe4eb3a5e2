//! What this store does not do: each with the reason, and what to do instead.
//!
//! Invariant: a refusal is an error. Nothing was changed, and nothing was lost.

use postrider_core::{BoxFuture, Error, ErrorKind, Result};

pub(super) const SCHEDULED: &str = "events cannot be scheduled in DynamoDB, so there are none; nothing was \
    changed: let EventBridge Scheduler write the event when it is due";
pub(super) const SEQUENCE: &str = "a DynamoDB store has no sequence that a restore could set back: an event's \
    item says itself whether it is pending; nothing was changed, and nothing is to be repaired";
pub(super) const ADOPT: &str = "a DynamoDB store is no file that could be copied: a restored table is another \
    table, and is published from by whoever is given its name; nothing was changed";
pub(super) const RECOUNT: &str = "a DynamoDB store keeps no settled log to compare with: each event's item has \
    its own mark, set only after the broker acknowledged it; nothing was changed, and what is pending is \
    published without it";
pub(super) const REWIND: &str = "a DynamoDB store has no cursor to set back: each event's item has its own mark; \
    nothing was changed: list the events and requeue them, which sends them again, late";
pub(super) const RENAME: &str = "what waits in DynamoDB stands under its destination's name, and cannot be moved in \
    one write, so a destination keeps its id; nothing was changed: only operators see it";

pub(super) const DERIVED: &str = "an event of a business item is not kept, so it cannot be sent again; nothing was \
    changed: a write of the item with a new stamp is a new event";

/// The answer to what this store does not do.
pub(super) fn refused<'a, T: Send + 'a>(
    operation: &'static str,
    message: &'static str,
) -> BoxFuture<'a, Result<T>> {
    let error = Error::new(ErrorKind::Invalid, operation).message(message);
    Box::pin(std::future::ready(Err(error)))
}
