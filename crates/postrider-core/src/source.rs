//! The relay's side of a store.
//!
//! Four kinds of source keep this one contract: the snapshot cursor, the number cursor, the change
//! log, and the row-state table. How each fits is worked out in `docs/internals/contracts.md`.

use std::sync::Arc;
use std::time::Duration;

pub use crate::lease::RenewRequest;
use crate::lease::{AcquireRequest, Acquired, Renewed};
use crate::range::Range;
pub use crate::retire::{RetireRequest, Retired};
use crate::waiting::{Counts, Due, Reason, RowRef, Settlement};
use crate::{
    BoxFuture, Cursor, Destination, DestinationId, DestinationRow, Event, Hindrance, KeyHash,
    Lease, PartitionId, RelayId, Result, Start,
};

/// A store, as the relay sees it. Object-safe; shared by all tasks of a relay.
///
/// **Order.** Events of one partition come in an order in which events of one key are in commit
/// order (for writers that serialise on the key before they enqueue). Nothing is promised between
/// partitions.
/// **Duplicates.** Reading twice from one cursor returns the same events again, and events that were
/// committed meanwhile.
/// **Fencing.** Every method that writes under a lease is one atomic write that takes effect only if
/// the lease row has the owner and token given, and fails with [`Fenced`](crate::ErrorKind::Fenced)
/// otherwise. Reading needs no fence: what a stale owner reads, it may not publish or settle. Two reads
/// are the exception, because a lease may end before its owner's clock says so: `due`, and `fetch` where
/// rows say themselves that they are pending, are answered under the token, and fail with `Fenced` too.
/// **Clock.** All durations are measured by the store, on its clock.
/// **Durability.** When `settle` returns, what it wrote survives a crash of the store, or the store
/// says in its documentation which crash loses it; losing it means delivering again, never losing.
/// **Cancellation.** A future that is dropped may or may not have taken effect. Every write may be
/// sent again as it was.
/// **Concurrency.** Calls for different partitions run side by side. For one partition the engine
/// has at most one `settle` and one `due` under way.
pub trait OutboxSource: Send + Sync {
    /// What this source can do. Constant for its lifetime.
    fn capabilities(&self) -> SourceCapabilities;

    /// Checks that the store is there, has tables this program knows, and may be written to.
    ///
    /// # Errors
    /// `SchemaMissing`, `SchemaTooNew`, `ReadOnly`, `Corrupt`, `Unavailable`: each with what to do.
    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>>;

    /// Writes the definitions, and the built-in `unrouted`, into a store that has none, starting at
    /// the beginning; in a store that has some, does nothing. Atomic: of two relays one registers.
    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>>;

    /// Adds, changes, and removes destinations, all or nothing, and returns the new version. A
    /// change bumps the destination's own version; an equal definition changes nothing. Removing
    /// frees what the destination's cursors pinned and drops its waiting events.
    ///
    /// # Errors
    /// `Conflict` if the definitions' version is not the expected one.
    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>>;

    /// The destinations and the version of their definitions.
    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>>;

    /// Takes free or expired partitions, up to what is wanted. The token of each grows. Announces
    /// the asker, also when it wants nothing.
    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>>;

    /// Prolongs leases, and announces the asker. A lease that is not kept is lost for good. An
    /// expired lease that nobody took is kept.
    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>>;

    /// Lets leases go, so that another relay need not wait. Leases that are lost already are none
    /// of its business and no error.
    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>>;

    /// What keeps a relay from delivering, in place of what it told before: for people who read the store, and kept until the
    /// relay is gone. A relay tells what has changed, once in a heartbeat at most. A store without a place for it
    /// keeps nothing.
    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        let _ = (relay, hindrances);
        Box::pin(async { Ok(()) })
    }

    /// Where a destination stands in a partition, and what waits there. Begins a new reading: rows
    /// handed out before and not settled are handed out again.
    ///
    /// # Errors
    /// `Conflict` if what was loaded under this lease before is void, because the server lost its
    /// memory since: the engine gives the partition up, and loads it anew under another token.
    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>>;

    /// A cursor behind everything that is committed now: the target of a drain.
    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>>;

    /// The page of events after a cursor: everything committed that is not passed by it, in order,
    /// up to the limits; at least one event if there is any.
    ///
    /// # Errors
    /// `NotFound` if one of the destinations is not in the store: it was removed, or has another name now, and
    /// what is sent under the old one is not saved. The engine asks for the definitions at once then; otherwise
    /// it hears of the change by its next heartbeat. Whether it is there belongs to the answer of the page, and
    /// costs no read of its own: a source that has to read it elsewhere answers the page, and says that it
    /// [`reads_when_gone`](SourceCapabilities::reads_when_gone).
    /// `Rewound` if the store's numbers lie behind the cursor. `Conflict` if what the cursor was read
    /// from is void: another reading has begun since, or the server lost its memory. The engine gives
    /// the partition up then, and loads it anew under another token.
    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>>;

    /// Records outcomes, in one atomic fenced write. The part of a destination that was removed
    /// meanwhile is left out, and the other parts are written.
    ///
    /// # Errors
    /// `Fenced` if the lease is lost; `Conflict` if a cursor stands neither where the part says it was
    /// nor where it says it goes. Nothing is written then.
    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>>;

    /// The waiting events whose turn has come, by the store's clock, oldest due first.
    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>>;

    /// Moves scheduled events that are due into the outbox, in (due, seq) order, each in one atomic
    /// fenced write, and says when the next is due. A source without scheduling answers with
    /// nothing.
    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>>;

    /// Carries out what operators asked for in the partitions of these leases: each row in one atomic
    /// fenced write that also marks it done, so that it is never done twice. A lease that is lost is
    /// left out.
    ///
    /// What it changes is always an event that nobody has under way: a dead letter, one of a disabled
    /// endpoint, one that the cursor has passed. So it may run beside a `settle` and a `due` of the
    /// same partition; a question for what is due that was asked before it is answered may miss what
    /// it brought out.
    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        let _ = request;
        Box::pin(async { Ok(CarriedOut::default()) })
    }

    /// The oldest events that may be deleted: passed by every cursor of the partition, those of ranges included, waiting
    /// nowhere (a discarded row does not count), and older than the retention. In seq order, for an
    /// archive.
    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        let _ = request;
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Deletes them, in one atomic fenced write of bounded size, with the discarded rows and the
    /// settled log of what is gone. The beginning of the history that is kept moves in the same
    /// write.
    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        let _ = request;
        Box::pin(async { Ok(Retired::default()) })
    }

    /// How many events of a destination wait, in all partitions: for a relay's bound of them, for health, and for a
    /// drain's exit code. A relay asks once when it starts, and while few wait hardly ever again; up to a million wait,
    /// so it has to be answered from an index, or from what is counted along.
    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>>;

    /// Resolves when something may have been committed since the last call resolved. May be
    /// spurious, may be late, and may never resolve: the relay polls as well.
    fn wake(&self) -> BoxFuture<'_, ()>;
}

/// What a source can do: chooses the cases of its contract suite, and is shown in the reference.
/// The engine never asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceCapabilities {
    /// Transactions can commit in another order than they drew their numbers.
    pub overlapping_writers: bool,
    /// More than one destination can be served.
    pub many_destinations: bool,
    /// More than one partition.
    pub many_partitions: bool,
    /// Events can be scheduled.
    pub scheduled: bool,
    /// `wake` resolves within milliseconds of a commit.
    pub wakes: bool,
    /// The store itself refuses rows that cannot be delivered.
    pub refuses_malformed: bool,
    /// The store itself refuses a second event of the same id. Where it cannot, because the outbox is
    /// split by number and an index over all ids would cost every producer, ids are unique as minted,
    /// and a consumer's inbox knows the second for a duplicate.
    pub unique_ids: bool,
    /// `fetch` answers for a destination that is not there any more, because to know it would take another read
    /// for each page. What is sent of it until the next heartbeat is not saved.
    pub reads_when_gone: bool,
    /// It keeps [ranges](crate::range), and can read what lies between two cursors.
    pub ranges: bool,
}

impl SourceCapabilities {
    /// A source that can do only what every source must.
    pub const fn least() -> SourceCapabilities {
        SourceCapabilities {
            overlapping_writers: false,
            many_destinations: false,
            many_partitions: false,
            scheduled: false,
            wakes: false,
            refuses_malformed: false,
            unique_ids: false,
            reads_when_gone: false,
            ranges: false,
        }
    }
}

/// What a store says about itself when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// A name for logs and health, without secrets.
    pub name: String,
    /// P: how many partitions there are, for ever.
    pub partitions: u16,
    /// The version of the tables.
    pub schema: u32,
}

/// The destinations of a store.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Definitions {
    /// Grows with every change of any of them.
    pub version: u64,
    /// The rows, `unrouted` included, by id.
    pub rows: Vec<DestinationRow>,
    /// Endpoints that are disabled, by destination and topic.
    pub disabled: Vec<(DestinationId, Box<str>)>,
    /// Partitions that an operator paused: their owners let them go, and nobody is granted them.
    pub paused: Vec<PartitionId>,
}

/// A change of the destinations.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct DefinitionChange {
    /// Refuse if the version is another one; `None` takes any.
    pub expected: Option<u64>,
    /// Definitions to add or change, each with where it starts if it is new.
    pub put: Vec<(Destination, Start)>,
    /// Destinations to remove.
    pub remove: Vec<DestinationId>,
}

/// Where a destination stands in a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The saved cursor.
    pub cursor: Cursor,
    /// Keys held by waiting events, with how many events hold each.
    pub waiting_keys: Vec<(KeyHash, u32)>,
    /// Events that stand in `waiting` in any state though the cursor has not passed them: at most a
    /// window of them, 10,000, or behind a cursor that was set back all that wait, 1,000,000 at most.
    /// None of them is delivered before the fetch has passed it, because earlier events of its key may
    /// stand between the cursor and it.
    pub waiting_ahead: Vec<u64>,
    /// The destination was rewound: events with numbers up to this one are a replay, and say so. 0
    /// where it never was.
    pub replay_through: u64,
    /// Its ranges there. `None` where the store keeps none: all that waits is copied then.
    pub ranges: Option<Vec<Range>>,
}

/// What to read.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchRequest {
    /// The right to the partition.
    pub lease: Lease,
    /// The destinations that stand at this cursor and share the page.
    pub destinations: Vec<DestinationId>,
    /// After what.
    pub after: Cursor,
    /// Only what this cursor has passed: a head, for a drain, or the destination's own saved cursor, for a
    /// [range](crate::range). The page that reaches it says that there is no more; where the asker's cursor has passed it,
    /// nothing is left. Where either cursor knows of numbers that the store has not given (any more), and rows between
    /// the two would seem not to be there, the page is refused (`Rewound`).
    pub until: Option<Cursor>,
    /// At most so many events.
    pub rows_max: u32,
    /// At most so many bytes of events, but at least one event.
    pub bytes_max: u64,
}

/// A page of events.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The events, in order.
    pub rows: Vec<FetchedRow>,
    /// From where to read on. Beyond the last row where the source knows that nothing is between.
    pub end: Cursor,
    /// Whether there is certainly more to read at once.
    pub more: bool,
}

/// One event of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedRow {
    /// Which event.
    pub row: RowRef,
    /// The cursor that has passed this event and all before it.
    pub cursor: Cursor,
    /// Its key's hash.
    pub key_hash: KeyHash,
    /// What it weighs in the window, in bytes.
    pub bytes: u64,
    /// The event, or why it cannot be read as one.
    pub event: Result<Arc<Event>, Malformed>,
}

/// Why a committed row cannot be read as an event. It becomes a dead letter, with its bytes kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// `Malformed` or `UnknownFormat`.
    pub reason: Reason,
    /// Which column, and what is wrong with it.
    pub detail: String,
    /// The event, where it can be read and only stands where it must not: routes decide whose dead letter it is, and
    /// its key goes on without it, since what else the key has is elsewhere. Sent again, it is late.
    pub event: Option<Arc<Event>>,
}

/// A question for what is due.
#[derive(Clone, Debug, PartialEq)]
pub struct DueRequest {
    /// The right to the partition.
    pub lease: Lease,
    /// Of which destination.
    pub destination: DestinationId,
    /// Keys whose events are under way: not these.
    pub except: Vec<KeyHash>,
    /// At most so many events.
    pub rows_max: u32,
    /// At most so many bytes of events, but at least one event.
    pub bytes_max: u64,
}

/// The answer to a call for scheduled events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Admitted {
    /// How many were moved.
    pub moved: u32,
    /// When the next is due, if there is one.
    pub next_in: Option<Duration>,
}

/// A question for what operators asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CarryOutRequest {
    /// The partitions that the asker owns.
    pub leases: Vec<Lease>,
    /// At most so many rows at once.
    pub rows_max: u32,
}

/// What was carried out. Whoever owns the partitions has to act on it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CarriedOut {
    /// Rows that were changed or skipped.
    pub rows: u32,
    /// Whether there is more to do at once.
    pub more: bool,
    /// Where something may be due now.
    pub touched: Vec<(PartitionId, DestinationId)>,
    /// Waiting events that held their key and do not any more: one entry for each.
    pub freed: Vec<(PartitionId, DestinationId, KeyHash)>,
    /// Endpoints that are in service again.
    pub enabled: Vec<(DestinationId, Box<str>)>,
    /// Leases that ended with the write, because a cursor moved: they are to be acquired anew, and
    /// everything loaded.
    pub surrendered: Vec<Lease>,
    /// The version of the destinations' definitions; a change means: load them again.
    pub definitions: u64,
}
