//! The operator's side of a store: what is there, what waits and why, and what may be done about it.
//!
//! Nothing here publishes and nothing un-parks a key. What changes deliveries is *submitted* as a
//! request with the rows that were counted; the partition's owner carries it out under its lease
//! ([`OutboxSource::carry_out`](crate::OutboxSource::carry_out)), so that a key's order holds while
//! events flow (INV-3). What changes nothing that is under way (to cancel, erase, pause, forget) is one
//! atomic write. Every change leaves a row in the audit table, in the same transaction.

mod bloat;
mod filter;
pub mod findings;
mod inbox;
pub mod listing;
mod overview;
mod recount;
mod request;
mod view;

pub use bloat::Bloat;
pub use filter::{Filter, Listed, PageRequest, Status};
pub use inbox::{Forgotten, InboxFilter, InboxName, InboxState, InboxView, Marked};
pub use overview::{
    BacklogGroup, DestinationView, ErrorGroup, Overview, PartitionView, RelayView, SettledTotals,
};
pub use recount::{Recounted, missing};
pub use request::{Note, RequestId, RequestState, RowKey, Submission, Verb};
pub use view::{
    AuditEntry, Cancelled, DeliveryView, Difference, Erasure, EventDetail, EventView, Finding,
    Level, ScheduledView, WaitingView,
};

use crate::source::DefinitionChange;
use crate::{
    BoxFuture, DestinationId, DestinationState, EventId, NewEvent, PartitionId, Result, Timestamp,
};

/// A store, as an operator sees it. Object-safe.
///
/// **Reading** is bounded: pages by key, never by offset; counts may stop at a stated limit.
/// **Writing** is atomic per call, on the store's clock, and audited with its [`Note`].
/// **Concurrency.** Everything may be called while relays and consumers run.
/// **Cancellation.** A future that is dropped may or may not have taken effect.
pub trait Operator: Send + Sync {
    /// The state of everything, in one reading.
    fn overview(&self) -> BoxFuture<'_, Result<Overview>>;

    /// What the database keeps of rows that nobody needs, from its own statistics. `None` where the store has none.
    fn bloat(&self) -> BoxFuture<'_, Result<Option<Bloat>>> {
        Box::pin(async { Ok(None) })
    }

    /// What a destination has not passed yet, by the fields that routes match. Counts at most
    /// `rows_max` events, oldest first, so that a large backlog costs a bounded reading.
    fn backlog<'a>(
        &'a self,
        destination: &'a DestinationId,
        rows_max: u64,
    ) -> BoxFuture<'a, Result<Vec<BacklogGroup>>>;

    /// Events of the outbox, newest first, with what became of each at each destination.
    fn events<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<EventView>>>;

    /// One event with its payload, also one that waits though the outbox has forgotten it, or that
    /// is scheduled.
    ///
    /// # Errors
    /// `NotFound`.
    fn event(&self, id: EventId) -> BoxFuture<'_, Result<EventDetail>>;

    /// Waiting events (retrying, parked, held, disabled, dead, discarded), in (destination, seq)
    /// order.
    fn waiting<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<WaitingView>>>;

    /// Scheduled events, next due first.
    fn scheduled<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<ScheduledView>>>;

    /// Takes a scheduled event back, unless it has entered the outbox already.
    fn cancel<'a>(&'a self, id: EventId, note: &'a Note) -> BoxFuture<'a, Result<Cancelled>>;

    /// Asks the owners of the partitions for a change of deliveries.
    ///
    /// # Errors
    /// `Invalid` if there are no rows or too many ([`Submission::ROWS_MAX`]), or for a rewind to where
    /// the destination has not been yet; `NotFound` if the destination does not exist or a rewind would
    /// go before the history that is kept.
    fn submit<'a>(&'a self, submission: &'a Submission) -> BoxFuture<'a, Result<RequestId>>;

    /// How far a request is carried out.
    ///
    /// # Errors
    /// `NotFound`.
    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>>;

    /// Requests that are not finished, oldest first, 1,000 at most.
    fn open_requests(&self) -> BoxFuture<'_, Result<Vec<RequestState>>>;

    /// Adds, changes, and removes destinations, as
    /// [`OutboxSource::apply`](crate::OutboxSource::apply) does, audited.
    fn apply<'a>(
        &'a self,
        change: &'a DefinitionChange,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<u64>>;

    /// Gives a destination another id. Its cursors, waiting events, and settled log go with it.
    ///
    /// # Errors
    /// `NotFound` if there is no such destination, `Conflict` if the new id is taken.
    fn rename<'a>(
        &'a self,
        from: &'a DestinationId,
        to: &'a DestinationId,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>>;

    /// Lets a destination's events flow, or wait. Owners hear of it within a heartbeat.
    ///
    /// # Errors
    /// `NotFound`.
    fn set_destination<'a>(
        &'a self,
        destination: &'a DestinationId,
        state: DestinationState,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>>;

    /// Lets a partition be owned, or not. Its owner lets it go within a heartbeat, gracefully.
    ///
    /// # Errors
    /// `NotFound`.
    fn set_partition<'a>(
        &'a self,
        partition: PartitionId,
        paused: bool,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>>;

    /// What an erasure of a key would reach.
    fn erasable<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Erasure>>;

    /// Erases the payloads and headers of a key's events everywhere in this store: outbox, waiting,
    /// scheduled, and results in the inbox. Ids, times, and checksums stay. What was not delivered
    /// settles as erased, and its key flows.
    ///
    /// A large key is erased in several writes, the row of the audit table with the first; to call it
    /// again finishes what was interrupted. What a relay or a broker has in its hands is not reached.
    /// The store says what may remain on its disk.
    fn erase<'a>(&'a self, key: &'a str, note: &'a Note) -> BoxFuture<'a, Result<Erasure>>;

    /// Compares the settled log with a recount of the outbox, bucket by bucket, as far as the
    /// destination's cursors reach. Nothing is changed. What cannot be judged is counted: what was not
    /// passed yet, and a bucket that the kept history begins in, whose log counts what is gone.
    ///
    /// Ends where the events that are named are as many as one request takes
    /// ([`Submission::ROWS_MAX`]). A [`Verb::Requeue`] of all that a difference names corrects the log
    /// in the same write, so that the next recount finds it whole, and what is left.
    fn recount<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Recounted>>;

    /// Raises the store's sequence above everything that cursors have passed, so that new events are
    /// not taken for old ones; returns (before, after). Refused while a relay owns a partition, and where the store
    /// lets several write at once, while a transaction that wrote to the outbox does not end.
    fn repair_sequence<'a>(&'a self, note: &'a Note) -> BoxFuture<'a, Result<(u64, u64)>>;

    /// Says that this copy of the store is the one to publish from.
    fn adopt<'a>(&'a self, note: &'a Note) -> BoxFuture<'a, Result<()>>;

    /// Rows of the inbox, newest first.
    fn inbox<'a>(
        &'a self,
        filter: &'a InboxFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<InboxView>>>;

    /// Forgets that a handler was done with an event, so that its next delivery acts again. Leaves a
    /// tombstone. Refused while the row is claimed and its lease runs.
    fn forget<'a>(
        &'a self,
        name: &'a InboxName,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Forgotten>>;

    /// Records that a handler is done with an event, because a person did its work by hand. Refused
    /// while the row is claimed and its lease runs.
    fn mark_processed<'a>(
        &'a self,
        name: &'a InboxName,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Marked>>;

    /// How many of these events, from the first on, one call of [`stage`](Self::stage) takes, where a
    /// store's transactions have limits. At least one, if there is one: what is too large by itself is
    /// refused by `stage`, which says why.
    fn stage_max(&self, events: &[NewEvent]) -> usize {
        events.len()
    }

    /// Stages events in one transaction of their own: for tests, scripts, and repairs. Applications
    /// enqueue in the transaction of their change. More than [`stage_max`](Self::stage_max) are refused
    /// (`TooLarge`), and nothing is written.
    fn stage<'a>(&'a self, events: &'a [NewEvent]) -> BoxFuture<'a, Result<Vec<EventId>>>;

    /// What was changed, by whom, and why, newest first.
    fn audit<'a>(&'a self, page: &'a PageRequest) -> BoxFuture<'a, Result<Listed<AuditEntry>>>;

    /// Looks for what will go wrong: each finding that is not good with a code and what to do. `now` is the caller's wall clock,
    /// to be compared with the store's.
    fn doctor(&self, now: Timestamp) -> BoxFuture<'_, Result<Vec<Finding>>>;
}
