//! Views: rows as an operator sees them.

use crate::operate::Status;
use crate::{Code, DestinationId, Event, EventId, PartitionId, Timestamp};

/// An event of the outbox without its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct EventView {
    /// The source's number.
    pub seq: u64,
    /// The event's id.
    pub id: EventId,
    /// Its type.
    pub event_type: String,
    /// Its ordering key.
    pub key: String,
    /// Its tenant.
    pub tenant: Option<String>,
    /// When the row was written.
    pub created_at: Timestamp,
    /// The payload's size in bytes.
    pub payload_bytes: u64,
    /// What became of it, per destination; those that it does not concern are left out.
    pub deliveries: Vec<DeliveryView>,
}

/// What became of an event at a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryView {
    /// Which destination.
    pub destination: DestinationId,
    /// In a word.
    pub status: Status,
    /// Attempts that counted.
    pub attempts: u32,
    /// Why it waits.
    pub reason: Option<String>,
    /// What was answered last.
    pub detail: Option<String>,
    /// When it is tried next.
    pub next_at: Option<Timestamp>,
    /// When the cursor passed it, to the precision of a bucket.
    pub settled_at: Option<Timestamp>,
}

/// One event with everything that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDetail {
    /// The source's number; `None` for one that is scheduled.
    pub seq: Option<u64>,
    /// The event. A payload that was erased says so.
    pub event: Event,
    /// When it is due, if it is scheduled.
    pub due: Option<Timestamp>,
    /// What became of it, per destination.
    pub deliveries: Vec<DeliveryView>,
    /// Earlier events of its key that hold it up, per destination, oldest first, at most 10.
    pub behind: Vec<WaitingView>,
}

/// A waiting event without its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingView {
    /// At which destination.
    pub destination: DestinationId,
    /// In which partition.
    pub partition: PartitionId,
    /// The source's number.
    pub seq: u64,
    /// The event's id; `None` where the row cannot be read.
    pub id: Option<EventId>,
    /// Its type.
    pub event_type: Option<String>,
    /// Its ordering key.
    pub key: String,
    /// Its tenant.
    pub tenant: Option<String>,
    /// When the row was written.
    pub created_at: Option<Timestamp>,
    /// In a word.
    pub status: Status,
    /// Attempts that counted.
    pub attempts: u32,
    /// Why it waits.
    pub reason: String,
    /// What was answered last.
    pub detail: String,
    /// Its endpoint, where it waits for one that is disabled.
    pub endpoint: Option<String>,
    /// When it is tried next.
    pub next_at: Option<Timestamp>,
    /// When it came into this state.
    pub moved_at: Timestamp,
    /// Whether later events of its key wait behind it.
    pub holds_key: bool,
    /// Whether it is delivered out of its key's order.
    pub late: bool,
}

/// A scheduled event without its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledView {
    /// The schedule's own number.
    pub seq: u64,
    /// The event's id.
    pub id: EventId,
    /// Its type.
    pub event_type: String,
    /// Its ordering key.
    pub key: String,
    /// Its tenant.
    pub tenant: Option<String>,
    /// When it is due.
    pub due: Timestamp,
    /// When the row was written.
    pub created_at: Timestamp,
}

/// The answer to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be delivered.
    Cancelled,
    /// It has entered the outbox.
    TooLate,
    /// There is no such event.
    Unknown,
}

/// What an erasure reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erasure {
    /// Events in the outbox.
    pub outbox: u64,
    /// Copies in `waiting`.
    pub waiting: u64,
    /// Scheduled events.
    pub scheduled: u64,
    /// Results in the inbox of this store, steps included.
    pub inbox: u64,
}

impl Erasure {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.outbox + self.waiting + self.scheduled + self.inbox
    }
}

/// A bucket of the settled log that does not agree with the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// In which partition.
    pub partition: PartitionId,
    /// The first number of the bucket.
    pub first: u64,
    /// The last number of the bucket that the cursor covers.
    pub last: u64,
    /// How many events the settled log counts.
    pub settled: u64,
    /// How many events the outbox has.
    pub found: u64,
    /// The events that a requeue of the bucket would send again, late. Where the sums tell which are
    /// missing, these ([`missing`](super::missing)), else all that do not wait.
    pub requeue: Vec<u64>,
}

/// A row of the audit table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
    /// What: the command's name, like `dead redrive`.
    pub what: String,
    /// To what, and how many: one line of text without payloads.
    pub subject: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, and may not for long.
    Warning,
    /// Events are lost, stuck, or doubled if nothing is done.
    Critical,
}

/// One finding of an examination. It is made by the functions of [`findings`](super::findings) alone, so that
/// what is not good has a code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// What was examined, in a few words.
    pub subject: String,
    /// What was found.
    pub message: String,
    /// What to do. Always there if it is not good.
    pub advice: Option<String>,
    /// The page about it. Always there if it is not good.
    pub code: Option<Code>,
}
