//! Filters and pages: which rows an operator asks for, and how many at a time.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::{DestinationId, Error, ErrorKind, EventId, Glob, Timestamp};

/// Which events: all the conditions that are given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Filter {
    /// Exactly this event.
    pub id: Option<EventId>,
    /// Events of this ordering key.
    pub key: Option<String>,
    /// The event's type.
    pub event_type: Option<Glob>,
    /// The aggregate's type.
    pub aggregate_type: Option<Glob>,
    /// The tenant.
    pub tenant: Option<String>,
    /// At this destination.
    pub destination: Option<DestinationId>,
    /// In one of these states; empty means any.
    pub status: Vec<Status>,
    /// Created at or after.
    pub since: Option<Timestamp>,
    /// Created before.
    pub until: Option<Timestamp>,
    /// The reason or the detail contains this text, whatever its case.
    pub error: Option<String>,
    /// At least so many attempts counted.
    pub attempts_min: Option<u32>,
}

impl Filter {
    /// Whether nothing is asked, so that everything matches.
    pub fn is_everything(&self) -> bool {
        *self == Filter::default()
    }
}

/// What became of an event at a destination, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Committed, and not passed by the cursor.
    Pending,
    /// The broker acknowledged it.
    Published,
    /// Passed by the cursor; whether the broker acknowledged it is not proved: in its bucket some events
    /// belonged elsewhere and the routes have changed since, or it was erased, or it is asked for again.
    Settled,
    /// No route of this destination matches it.
    Elsewhere,
    /// A route dropped it.
    Dropped,
    /// Its payload was erased before it was delivered.
    Erased,
    /// From before the destination began.
    BeforeStart,
    /// It is tried again at its time.
    Retrying,
    /// It waits behind an earlier event of its key.
    Parked,
    /// Its endpoint refuses all events of its type; it is tried again at its time.
    Held,
    /// Its endpoint is disabled.
    Disabled,
    /// A dead letter.
    Dead,
    /// An operator let it go.
    Discarded,
    /// Its time has not come.
    Scheduled,
}

impl Status {
    /// Every status.
    pub const ALL: [Status; 14] = [
        Status::Pending,
        Status::Published,
        Status::Settled,
        Status::Elsewhere,
        Status::Dropped,
        Status::Erased,
        Status::BeforeStart,
        Status::Retrying,
        Status::Parked,
        Status::Held,
        Status::Disabled,
        Status::Dead,
        Status::Discarded,
        Status::Scheduled,
    ];

    /// The name as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Published => "published",
            Status::Settled => "settled",
            Status::Elsewhere => "elsewhere",
            Status::Dropped => "dropped",
            Status::Erased => "erased",
            Status::BeforeStart => "before_start",
            Status::Retrying => "retrying",
            Status::Parked => "parked",
            Status::Held => "held",
            Status::Disabled => "disabled",
            Status::Dead => "dead",
            Status::Discarded => "discarded",
            Status::Scheduled => "scheduled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Status, Error> {
        Status::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let names = Status::ALL.map(Status::as_str);
            let nearest = crate::template::nearest(text, &names);
            Error::new(ErrorKind::Invalid, "read status").message(format!(
                "unknown status `{}`; did you mean `{nearest}`?",
                text.escape_debug()
            ))
        })
    }
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Where the page before ended, as [`Listed::next`] said.
    pub after: Option<String>,
    /// At most so many rows, 1 to 10,000. Default 50: a screen.
    pub limit: u32,
}

impl PageRequest {
    /// The largest page: what a client holds in memory at once without noticing.
    pub const LIMIT_MAX: u32 = 10_000;

    /// How many rows are asked for, checked.
    ///
    /// # Errors
    /// `Invalid` if the limit is 0 or more than [`PageRequest::LIMIT_MAX`].
    pub fn check(&self) -> Result<usize, Error> {
        if (1..=PageRequest::LIMIT_MAX).contains(&self.limit) {
            return Ok(self.limit as usize);
        }
        Err(Error::new(ErrorKind::Invalid, "read page")
            .message(format!("a page has 1 to {} rows", PageRequest::LIMIT_MAX))
            .context("limit", self.limit))
    }
}

impl Default for PageRequest {
    fn default() -> PageRequest {
        PageRequest { after: None, limit: 50 }
    }
}

/// A page of a list.
///
/// It may have fewer rows than were asked for, or none, and still be followed by another: one call
/// looks at a bounded number of rows, however few of them its filter lets through.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins; `None` at the end. Opaque: it is handed back as it was given.
    pub next: Option<String>,
}
