//! Waiting events: those that left the window unacknowledged, or have a counted failure.
//!
//! | state | set by | left by |
//! |---|---|---|
//! | `retrying` | a counted failure; promotion when the one before it left | delivered, another failure, giving up |
//! | `parked` | an earlier event of its key waits | promotion; the operator |
//! | `held` | its endpoint refuses all events of its type, so it is not given up | tried at its time like `retrying`; the operator |
//! | `disabled` | its endpoint said that it is gone, or was disabled | the operator enables the endpoint, or discards it |
//! | `dead` | it gave up, was refused for good, or nothing can deliver it | redrive, discard |
//! | `discarded` | the operator | retirement of its sequence number |

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::range::RangeChange;
use crate::{Cursor, DestinationId, Error, ErrorKind, Event, EventId, KeyHash, Lease};

/// Names one event in one partition of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowRef {
    /// The source's number of the event. With the destination it identifies a waiting row.
    pub seq: u64,
    /// The event's id, for the checksums of the settled log.
    pub id: EventId,
}

/// The state of a waiting event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitingState {
    /// It is tried again at its time.
    Retrying,
    /// It waits behind an earlier event of its key.
    Parked,
    /// Its endpoint refuses all events of its type: it is not given up, and tried again at its time.
    Held,
    /// Its endpoint is disabled. It is not tried; what follows of its key is parked behind it.
    Disabled,
    /// It gave up, and is kept with its reason.
    Dead,
    /// An operator let it go. The row stays so that a crash does not bring the event back.
    Discarded,
}

/// Why an event waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An earlier event of its key waits, or its key fills too much of the window.
    Behind,
    /// The last attempt failed and another follows.
    Failed,
    /// All attempts failed.
    GaveUp,
    /// The destination refused it for good.
    Rejected,
    /// It is larger than the destination takes.
    TooLarge,
    /// The row cannot be read as an event.
    Malformed,
    /// Its format is newer than this relay knows.
    UnknownFormat,
    /// No route of any destination matches it.
    NoRoute,
    /// Its endpoint does not take anything at present.
    EndpointDown,
    /// It was under way when the relay died, more than once: it is tried alone, and each attempt is
    /// saved before it is made.
    Suspect,
    /// Its endpoint refuses all events of its type: what refuses them is to be mended, not this event.
    Held,
    /// Its endpoint is disabled.
    Disabled,
    /// An operator had it sent again after it was dead.
    Redriven,
    /// An operator, or reconcile, had it sent again after its cursor had passed it.
    Requeued,
}

macro_rules! text_enum {
    ($type:ident, $what:literal, $($variant:ident => $text:literal),+ $(,)?) => {
        impl $type {
            /// The name as stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $($type::$variant => $text),+ }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl FromStr for $type {
            type Err = Error;
            fn from_str(text: &str) -> Result<$type, Error> {
                match text {
                    $($text => Ok($type::$variant),)+
                    _ => Err(Error::new(ErrorKind::Invalid, "read waiting row")
                        .message(format!("unknown {} `{}`", $what, text.escape_debug()))),
                }
            }
        }
    };
}

text_enum!(WaitingState, "state",
    Retrying => "retrying", Parked => "parked", Held => "held", Disabled => "disabled", Dead => "dead",
    Discarded => "discarded");
text_enum!(Reason, "reason",
    Behind => "behind", Failed => "failed", GaveUp => "gave_up", Rejected => "rejected",
    TooLarge => "too_large", Malformed => "malformed", UnknownFormat => "unknown_format",
    NoRoute => "no_route", EndpointDown => "endpoint_down",
    Suspect => "suspect", Held => "held", Disabled => "disabled", Redriven => "redriven",
    Requeued => "requeued");

impl WaitingState {
    /// The state of an event that is due at a time, by its reason. Either is given out alike when that has come.
    pub const fn of_timed(reason: Reason) -> WaitingState {
        match reason {
            Reason::Held => WaitingState::Held,
            _ => WaitingState::Retrying,
        }
    }
}

/// The longest detail that is kept with a waiting event, in bytes: an answer's first screen.
pub const DETAIL_BYTES_MAX: usize = 2_048;

/// The outcome of an attempt, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempted {
    /// Attempts that counted so far.
    pub attempts: u32,
    /// Why it waits now.
    pub reason: Reason,
    /// What was answered, cut to [`DETAIL_BYTES_MAX`]. Never a secret.
    pub detail: String,
}

/// An event that enters `waiting`, in the transaction of the settlement that names it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewWaiting {
    /// Which event.
    pub row: RowRef,
    /// Its key's hash.
    pub key_hash: KeyHash,
    /// The event, for sources that cannot copy the row themselves; `None` where it cannot be read.
    pub event: Option<Arc<Event>>,
    /// Where it stands there.
    pub placement: Placement,
}

/// How an event enters `waiting`.
///
/// Whatever is asked, an event that is not dead becomes `parked` if an earlier event of its key
/// holds the key, and later events of its key that were due become `parked` behind one that enters
/// and holds the key. The store decides both inside its transaction, by the key itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// Behind its key, or at its head and due at once.
    Behind(Reason),
    /// Tried again after a delay; its state is what [`WaitingState::of_timed`] says of its reason.
    Retry {
        /// From now, on the database's clock.
        delay: Duration,
        /// The attempt that failed.
        attempted: Attempted,
    },
    /// Its endpoint is disabled: it is not tried until an operator enables that. If that has happened
    /// by the time it is written, nobody would let it out: it is due at once then.
    Disabled {
        /// Which topic, subject, queue, or URL.
        endpoint: Box<str>,
        /// What the endpoint answered when it was disabled. No attempt counts.
        attempted: Attempted,
    },
    /// Given up.
    Dead {
        /// The attempt that failed, or why there was none.
        attempted: Attempted,
        /// Whether its successors wait behind it.
        holds_key: bool,
    },
}

/// What happened to an event that was already waiting.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitingChange {
    /// It was delivered: the row goes, and the next of its key is promoted.
    Delivered(RowRef),
    /// The attempt failed, and another follows after the delay; its state is what [`WaitingState::of_timed`] says of its reason.
    Retry {
        /// Which event.
        row: RowRef,
        /// From now, on the database's clock.
        delay: Duration,
        /// The attempt that failed.
        attempted: Attempted,
    },
    /// It gave up. If it does not hold its key, the next of its key is promoted.
    Dead {
        /// Which event.
        row: RowRef,
        /// The last attempt.
        attempted: Attempted,
        /// Whether its successors wait behind it.
        holds_key: bool,
    },
    /// Its endpoint is disabled, and it holds its key there. One whose endpoint is in service by the
    /// time this is written is due at once.
    Disabled {
        /// Which event.
        row: RowRef,
        /// Which topic, subject, queue, or URL.
        endpoint: Box<str>,
        /// What the endpoint answered. No attempt counts.
        attempted: Attempted,
    },
    /// Its payload was erased before it was delivered: the row goes, and the next of its key is
    /// promoted, as if it had been delivered.
    Erased(RowRef),
    /// No attempt counts: the endpoint is to blame. It is due again after the delay, in the state and with the reason that it has.
    Postpone {
        /// Which event.
        row: RowRef,
        /// From now, on the database's clock.
        delay: Duration,
    },
}

impl WaitingChange {
    /// Which event it is about.
    pub fn row(&self) -> RowRef {
        match self {
            WaitingChange::Delivered(row)
            | WaitingChange::Erased(row)
            | WaitingChange::Disabled { row, .. }
            | WaitingChange::Retry { row, .. }
            | WaitingChange::Dead { row, .. }
            | WaitingChange::Postpone { row, .. } => *row,
        }
    }
}

/// What became of an event that a cursor passes. The settled log counts each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passed {
    /// The broker acknowledged it.
    Acked,
    /// No route of this destination matches it; another destination's does.
    OtherRoute,
    /// A route matched it and drops.
    Dropped,
    /// It stands in `waiting`.
    Waiting,
    /// Its payload was erased before it was delivered.
    Erased,
}

/// One atomic, fenced write: everything that changed for the destinations of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// The right to write. If the store's row has another owner or token, nothing is written.
    pub lease: Lease,
    /// One entry per destination.
    pub parts: Vec<SettlementPart>,
}

/// What changed for one destination of the partition.
#[derive(Clone, Debug, PartialEq)]
pub struct SettlementPart {
    /// Which destination.
    pub destination: DestinationId,
    /// The saved cursor, from where to where, if it moves: everything up to and including the second
    /// is acknowledged, or waits. The first makes the write idempotent: a store that already stands
    /// at the second does not count the passed events again.
    pub cursor: Option<(Cursor, Cursor)>,
    /// What became of each event the cursor passes, in order.
    pub passed: Vec<(RowRef, Passed)>,
    /// Events that enter `waiting`. One that is already there, in any state, is left as it is.
    pub waiting: Vec<NewWaiting>,
    /// What happened to events that were there before.
    pub changes: Vec<WaitingChange>,
    /// Endpoints that are disabled from now on. One that is already is left as it is. The version of
    /// the definitions grows, so that other relays hear of it.
    pub disabled: Vec<DisabledEndpoint>,
    /// What becomes of [ranges](crate::range::Range), in order. Empty where the store keeps none.
    pub ranges: Vec<RangeChange>,
}

/// An endpoint that takes nothing until an operator enables it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisabledEndpoint {
    /// Which topic, subject, queue, or URL of the destination.
    pub topic: Box<str>,
    /// What it answered, cut to [`DETAIL_BYTES_MAX`]. Never a secret.
    pub detail: String,
}

impl SettlementPart {
    /// An empty part.
    pub fn new(destination: DestinationId) -> SettlementPart {
        SettlementPart {
            destination,
            cursor: None,
            passed: Vec::new(),
            waiting: Vec::new(),
            changes: Vec::new(),
            disabled: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.cursor.is_none()
            && self.waiting.is_empty()
            && self.changes.is_empty()
            && self.disabled.is_empty()
            && self.ranges.is_empty()
    }
}

/// An event out of `waiting` whose turn has come.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingRow {
    /// Which event.
    pub row: RowRef,
    /// Its key's hash.
    pub key_hash: KeyHash,
    /// The event.
    pub event: Arc<Event>,
    /// Attempts that counted so far.
    pub attempts: u32,
    /// Delivered late on purpose: redriven, or found by reconcile.
    pub late: bool,
    /// Whether its reason is [`Reason::Suspect`].
    pub suspect: bool,
    /// Whether its reason is [`Reason::Held`].
    pub held: bool,
}

/// The answer to a question for what is due.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Due {
    /// Runs of events, each run one key in sequence order, its head due and the others parked
    /// directly behind it.
    pub rows: Vec<WaitingRow>,
    /// When the next head becomes due, if one will.
    pub next_in: Option<Duration>,
}

/// How many events of a destination wait, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// To be tried again.
    pub retrying: u64,
    /// Behind another.
    pub parked: u64,
    /// Refused with all others of their type, to be tried again.
    pub held: u64,
    /// For an endpoint that is disabled.
    pub disabled: u64,
    /// Given up.
    pub dead: u64,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.retrying + self.parked + self.held + self.disabled + self.dead
    }
}
