//! Requests: what an operator asks of the partitions' owners, and how far it is done.

use std::fmt;

use serde::Serialize;

use crate::{DestinationId, Error, ErrorKind, Result, Start};

/// Who changes something, and why: one row of the audit table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The person or program, like `anna@db1`. 1 to 255 bytes without control characters.
    pub who: String,
    /// The reason, at most 1,024 bytes. Empty where a command does not ask for one.
    pub why: String,
}

impl Note {
    /// A note, checked.
    ///
    /// # Errors
    /// `Invalid` if a part is too long, `who` is empty, or there are control characters.
    pub fn new(who: impl Into<String>, why: impl Into<String>) -> Result<Note> {
        let note = Note { who: who.into(), why: why.into() };
        let plain = |text: &str| !text.chars().any(char::is_control);
        let fits = (1..=255).contains(&note.who.len()) && note.why.len() <= 1_024;
        if fits && plain(&note.who) && plain(&note.why) {
            return Ok(note);
        }
        Err(Error::new(ErrorKind::Invalid, "write audit").message(
            "a name has 1 to 255 bytes and a reason at most 1,024, without control characters",
        ))
    }
}

/// Names a request for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One event at one destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RowKey {
    /// At which destination.
    pub destination: DestinationId,
    /// The source's number of the event.
    pub seq: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verb {
    /// Send dead letters again. One that holds its key comes out in its place; one that does not
    /// (policy `skip`, no route) is marked late. A row that is not dead any more is skipped.
    Redrive(Vec<RowKey>),
    /// Let dead letters and events of disabled endpoints go for good; the next of the key comes out.
    /// A row in another state is skipped.
    Discard(Vec<RowKey>),
    /// Send events again that the cursor has passed and that do not wait, marked late. Others are
    /// skipped.
    Requeue(Vec<RowKey>),
    /// Take an endpoint into service again: its events come out in order.
    Enable {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: String,
    },
    /// Send a destination's history again from a point on, marked as a replay.
    Rewind {
        /// Which destination.
        destination: DestinationId,
        /// From where; `Now` is refused.
        to: Start,
    },
}

impl Verb {
    /// The name as stored and shown.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Verb::Redrive(_) => "redrive",
            Verb::Discard(_) => "discard",
            Verb::Requeue(_) => "requeue",
            Verb::Enable { .. } => "enable",
            Verb::Rewind { .. } => "rewind",
        }
    }
}

/// A request that is to be written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// What is asked.
    pub verb: Verb,
    /// Who asks, and why.
    pub note: Note,
}

impl Submission {
    /// Rows of one request: what is shown, counted, and held in memory at once. More are asked for
    /// in several requests.
    pub const ROWS_MAX: usize = 100_000;
}

/// How far a request is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestState {
    /// Which one.
    pub id: RequestId,
    /// What was asked, like `redrive`.
    pub verb: String,
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
    /// Rows, or parts of it by partition.
    pub total: u64,
    /// Those that are done.
    pub done: u64,
    /// Those that were not in the state they were counted in any more, and were left alone.
    pub skipped: u64,
    /// Whether nothing is left to do.
    pub finished: bool,
    /// The relay that did the last part.
    pub relay: Option<String>,
}
