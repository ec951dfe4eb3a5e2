//! The facts of a history, one record each, as they are written down.

use std::collections::BTreeSet;

use postrider_core::EventId;
use postrider_core::waiting::WaitingState;
use serde::{Deserialize, Serialize};

/// One fact. As JSON, an object whose `kind` says which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// An event was committed.
    Commit(Commit),
    /// The transaction of an event was rolled back.
    Rollback {
        /// The event that never was.
        id: EventId,
    },
    /// An event arrived.
    Delivery(Delivery),
    /// At the end of the history an event is visible in the store.
    Waiting(Waiting),
    /// A handler's effect is there.
    Effect(Effect),
    /// The broker acknowledged an event.
    Ack(Ack),
    /// The store's record says that an event was published.
    Published(Published),
    /// Something that has a limit was measured.
    Gauge(Gauge),
    /// A destination was looked at for progress.
    Progress(Progress),
    /// How long an event took.
    Delay(Delay),
}

/// An event was committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The event.
    pub id: EventId,
    /// Who said it.
    #[serde(default)]
    pub source: String,
    /// Its ordering key.
    pub key: String,
    /// Its place in the commit order; greater is later.
    pub order: u64,
    /// Where it must arrive; `None` means anywhere, and an empty set nowhere (its routes drop it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destinations: Option<BTreeSet<String>>,
    /// Its writer did not own the key's serialisation point when it enqueued, so its place in the
    /// key's order is not promised.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unserialised: bool,
}

/// An event arrived at a broker or a consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Where.
    pub destination: String,
    /// The event.
    pub id: EventId,
    /// Its place in the order of arrival; greater is later.
    pub order: u64,
    /// Marked `postrider-late`: out of its key's order on purpose.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late: bool,
    /// When, in milliseconds since the start of the run, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// An event is visible in the store: in `waiting`, or not yet passed by the cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Of which destination.
    pub destination: String,
    /// The event.
    pub id: EventId,
    /// How it stands there.
    pub state: Standing,
    /// Whether later events of its key must not pass it.
    pub holds_key: bool,
}

/// How an event that was not delivered is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It stands in the outbox, and no cursor has passed it: the run ended before its turn.
    Pending,
    /// It is tried again.
    Retrying,
    /// It waits behind another of its key.
    Parked,
    /// Its endpoint refuses all events of its type; it is tried again.
    Held,
    /// Its endpoint is disabled.
    Disabled,
    /// It is a dead letter.
    Dead,
    /// An operator let it go.
    Discarded,
}

impl From<WaitingState> for Standing {
    fn from(state: WaitingState) -> Standing {
        match state {
            WaitingState::Retrying => Standing::Retrying,
            WaitingState::Parked => Standing::Parked,
            WaitingState::Held => Standing::Held,
            WaitingState::Disabled => Standing::Disabled,
            WaitingState::Dead => Standing::Dead,
            WaitingState::Discarded => Standing::Discarded,
        }
    }
}

/// A handler's effect is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// Who said what it acts on.
    #[serde(default)]
    pub source: String,
    /// The event it acts on.
    pub id: EventId,
    /// Who acted.
    pub handler: String,
    /// How often.
    #[serde(default = "once")]
    pub count: u64,
}

/// The broker acknowledged an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Which destination.
    pub destination: String,
    /// The event.
    pub id: EventId,
    /// When, in an order shared with [`Published`].
    pub order: u64,
}

/// The store's record says that an event was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// To which destination.
    pub destination: String,
    /// The event.
    pub id: EventId,
    /// When that was recorded, in an order shared with [`Ack`].
    pub order: u64,
}

/// Something that has a limit was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// What, with its unit: `window_bytes`.
    pub name: String,
    /// How much there was.
    pub value: u64,
    /// How much there may be.
    pub limit: u64,
}

/// A destination was looked at over a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Which destination.
    pub destination: String,
    /// Events that were there to be sent during all of the span.
    pub backlog: u64,
    /// Whether a cursor of it moved, or a waiting event left.
    pub moved: bool,
    /// Whether the broker took events during all of the span.
    pub broker_healthy: bool,
    /// Who holds it, as health says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
}

/// How long an event took from its commit to its arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Where it arrived.
    pub destination: String,
    /// The event.
    pub id: EventId,
    /// How long it took, in milliseconds.
    pub delay_ms: u64,
    /// How long it may take while its own key and route are well, in milliseconds.
    pub bound_ms: u64,
    /// Its own key or route is the one with the fault; then it may take longer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub afflicted: bool,
}

fn once() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_false(flag: &bool) -> bool {
    !flag
}
