//! The overview: the state of a store, its relays, partitions, and destinations, in one reading.

use std::time::Duration;

use crate::source::StoreFacts;
use crate::waiting::Counts;
use crate::{DestinationId, DestinationState, Hindrance, PartitionId, RelayId, Timestamp};

/// The state of everything, by the store's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// The store.
    pub facts: StoreFacts,
    /// The store's clock.
    pub now: Timestamp,
    /// The version of the destinations' definitions.
    pub definitions: u64,
    /// How many events were ever committed, as far as the sequence tells.
    pub enqueued: u64,
    /// How many are in the outbox now, at most; the sequence may have gaps.
    pub kept: u64,
    /// When the oldest of them was created.
    pub oldest: Option<Timestamp>,
    /// Relays that renewed within their lease.
    pub relays: Vec<RelayView>,
    /// Every partition.
    pub partitions: Vec<PartitionView>,
    /// Every destination, `unrouted` included.
    pub destinations: Vec<DestinationView>,
    /// Scheduled events.
    pub scheduled: u64,
    /// When the next of them is due.
    pub scheduled_next: Option<Timestamp>,
    /// Requests that are not finished.
    pub requests: u64,
    /// Bytes of the table for events that no other table was made for, in a store that has one.
    pub stray_bytes: Option<u64>,
    /// Whether this is not the place that published last: a copy, or a restored backup. No relay publishes from it until
    /// somebody adopts it, and none counts as alive here.
    pub copy: bool,
}

/// A relay that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayView {
    /// Its name.
    pub owner: RelayId,
    /// Whether its definitions are the store's.
    pub current: bool,
    /// How long until it counts as gone.
    pub expires_in: Duration,
    /// What keeps it from delivering, as it told the store; nothing where it does not tell.
    pub hindrances: Vec<Hindrance>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Which.
    pub partition: PartitionId,
    /// Who owns it, if the lease runs.
    pub owner: Option<RelayId>,
    /// On which host, if it said so.
    pub host: Option<String>,
    /// How long until the lease expires.
    pub expires_in: Option<Duration>,
    /// How often in a row it was taken over from owners that died, with nothing settled between.
    pub takeovers: u32,
    /// An operator paused it.
    pub paused: bool,
}

/// A destination.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationView {
    /// Which.
    pub id: DestinationId,
    /// The kind of broker.
    pub kind: String,
    /// The version of its definition.
    pub version: u64,
    /// Whether its events flow.
    pub state: DestinationState,
    /// Events that its cursors have not passed, at most; the sequence may have gaps.
    pub pending: u64,
    /// When the oldest of these was created.
    pub pending_since: Option<Timestamp>,
    /// Events that wait, by state.
    pub waiting: Counts,
    /// Keys of which more waits than is counted there: so many [ranges](crate::range) stand for the rest.
    pub ranges: u64,
    /// When the oldest waiting event was created, dead ones left out.
    pub waiting_since: Option<Timestamp>,
    /// When the oldest dead letter became one.
    pub dead_since: Option<Timestamp>,
    /// When the next waiting event is tried.
    pub retry_next: Option<Timestamp>,
    /// What became of everything its cursors have passed, since the history that is kept.
    pub settled: SettledTotals,
    /// When the cursor before the oldest of what is pending was last saved: if it stands, it says so, however often
    /// others are saved that have nothing before them. Where nothing is pending, when any was.
    pub saved_at: Option<Timestamp>,
    /// The reasons of its waiting events, most frequent first, at most 10.
    pub errors: Vec<ErrorGroup>,
    /// Endpoints that are disabled, at most 100.
    pub disabled: Vec<String>,
}

/// Sums of the settled log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettledTotals {
    /// Everything.
    pub count: u64,
    /// Acknowledged by the broker.
    pub acked: u64,
    /// Without a route of this destination.
    pub other_route: u64,
    /// Dropped by a route.
    pub dropped: u64,
    /// Left to `waiting`.
    pub waiting: u64,
    /// Erased before delivery.
    pub erased: u64,
}

/// Waiting events with the same reason and answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorGroup {
    /// The reason's name.
    pub reason: String,
    /// What was answered, its first line.
    pub detail: String,
    /// How many.
    pub count: u64,
}

/// Events of a backlog that routes cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogGroup {
    /// The event's type.
    pub event_type: String,
    /// The aggregate's type.
    pub aggregate_type: String,
    /// The tenant.
    pub tenant: Option<String>,
    /// How many.
    pub count: u64,
    /// When the oldest was created.
    pub oldest: Timestamp,
}
