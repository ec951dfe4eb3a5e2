//! The documents that `--output json` writes: one struct per document, and what each field means.
//!
//! Invariant: a field that is written once keeps its name and its meaning. Names are `snake_case`;
//! moments are RFC 3339 in UTC; spans are decimals in seconds and are named `…_seconds`; what is not
//! known is `null` and never left out. Numbers stay below 2^53, which every JSON reader keeps exact:
//! `seq` counts from 1 by one.

mod event;
mod inbox;
mod migration;
mod overview;
#[cfg(feature = "aws")]
mod queue;
mod request;
mod waiting;

pub(crate) use event::{Detail, Event, tone};
pub(crate) use inbox::{
    Adopted, Audited, CancelledEvent, Counted, Differs, Enqueued, Erased, InboxChange, InboxRow,
    Moved, Removal, Repaired,
};
pub(crate) use migration::{Migration, Reversal};
pub(crate) use overview::{
    Backlog, Blocker, Destination, Found, Partition, Relay, Status, Verdict, bad_unless_zero, words,
};
#[cfg(feature = "aws")]
pub(crate) use queue::{DeadQueue, MoveTask};
pub(crate) use request::{Affected, Plan, PlanGroup, Request};
pub(crate) use waiting::{Scheduled, Waiting};
