//! The inbox as an operator sees it.

use std::time::Duration;

use crate::{EventId, Glob, HandlerName, Timestamp};

/// Names one row of the inbox. Only the operator's commands take it from a person: what a handler
/// uses comes from an event ([`InboxKey`](crate::InboxKey)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxName {
    /// Who said it; `None` where the event's id is enough because one source has it.
    pub source: Option<String>,
    /// What was said.
    pub event_id: EventId,
    /// Who acts on it.
    pub handler: HandlerName,
}

/// Which rows.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct InboxFilter {
    /// Of this event.
    pub event_id: Option<EventId>,
    /// Of this handler.
    pub handler: Option<HandlerName>,
    /// Of this source.
    pub source: Option<String>,
    /// Of this type.
    pub event_type: Option<Glob>,
    /// In this state.
    pub state: Option<InboxState>,
    /// Received at or after.
    pub since: Option<Timestamp>,
    /// Received before.
    pub until: Option<Timestamp>,
}

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxState {
    /// Somebody is at it.
    Leased,
    /// Somebody was at it, and the lease has run out.
    Expired,
    /// It is done.
    Processed,
    /// An operator forgot it; the tombstone remains.
    Forgotten,
}

impl InboxState {
    /// The name as shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            InboxState::Leased => "leased",
            InboxState::Expired => "expired",
            InboxState::Processed => "processed",
            InboxState::Forgotten => "forgotten",
        }
    }
}

/// A row of the inbox without its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxView {
    /// Who said it.
    pub source: String,
    /// What was said.
    pub event_id: EventId,
    /// Who acts on it.
    pub handler: String,
    /// The event's type.
    pub event_type: String,
    /// Where it stands.
    pub state: InboxState,
    /// Claims so far.
    pub attempts: u32,
    /// When it was first seen.
    pub received_at: Timestamp,
    /// When it was done, or forgotten.
    pub ended_at: Option<Timestamp>,
    /// How long the lease still runs.
    pub lease_left: Option<Duration>,
    /// The steps whose results are stored.
    pub steps: Vec<String>,
    /// The size of the stored result in bytes.
    pub result_bytes: u64,
    /// Who forgot it, and why.
    pub forgotten_by: Option<String>,
}

/// The answer to a request to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// The row is gone, and a tombstone is there.
    Forgotten,
    /// A handler is at it, for so long at most.
    Leased {
        /// The rest of the lease.
        left: Duration,
    },
    /// There is no such row.
    Unknown,
}

/// The answer to a request to mark an event as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// It is done now.
    Marked,
    /// It was done already.
    Already,
    /// A handler is at it, for so long at most.
    Leased {
        /// The rest of the lease.
        left: Duration,
    },
}
