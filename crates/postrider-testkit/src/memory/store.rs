//! The memory store: one state behind one lock, so that every operation is atomic, as a database's
//! transaction is. The operations stand in files of their own.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use postrider_core::source::SourceCapabilities;
use postrider_core::waiting::{Passed, RowRef};
use postrider_core::{
    Clock, DestinationId, Event, EventId, EventLimits, NewEvent, Result, Timestamp,
};
use tokio::sync::watch;

use super::kind::Kind;
use super::reading::Local;
use super::state::State;
use super::{Line, MemoryClock, MemoryTransaction, lock};

/// An outbox and an inbox in memory. Clones are handles on the same store, as other processes have
/// them.
///
/// Numbers are drawn when an event is enqueued, and events become visible when their transaction
/// commits, so numbers and commits may be in different orders and rolled-back numbers are gaps, as
/// in a server with many writers. How a reader finds what is new all the same is the store's
/// [`Kind`].
#[derive(Debug)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
    /// Which handle this is.
    pub(super) number: u64,
    /// How many commits this handle's last wake-up has seen.
    pub(super) woken: AtomicU64,
    /// The way to the server, if there is one.
    pub(super) line: Option<Arc<dyn Line>>,
    /// The newest format of rows that this handle's program knows.
    pub(super) format_max: u16,
    /// What this handle remembers of its readings.
    pub(super) local: Mutex<Local>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) kind: Kind,
    pub(super) state: Mutex<State>,
    pub(super) clock: MemoryClock,
    /// How many commits there were: what wakes relays.
    pub(super) commits: watch::Sender<u64>,
    /// How many handles there were.
    pub(super) handles: AtomicU64,
    pub(super) partitions: u16,
    pub(super) source: Arc<str>,
    pub(super) limits: EventLimits,
    /// What was committed, as of a version of that.
    pub(super) listed: Mutex<(u64, Arc<[CommittedRow]>)>,
}

/// A committed event, as the store's own record shows it to a checker.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedRow {
    /// Its place in the commit order, from 1.
    pub position: u64,
    /// Its partition.
    pub partition: u16,
    /// Its number and id.
    pub row: RowRef,
    /// The version of its columns.
    pub format: u16,
    /// Its key.
    pub key: Arc<str>,
    /// The event; `None` if the row cannot be read as one.
    pub event: Option<Arc<Event>>,
}

impl MemoryStore {
    /// A store with so many partitions (at least one) and the source `/memory`, on a clock. Its log is
    /// in commit order.
    pub fn new(partitions: u16, clock: MemoryClock) -> MemoryStore {
        MemoryStore::of(Kind::ChangeLog, partitions, clock)
    }

    /// A store of a kind.
    pub fn of(kind: Kind, partitions: u16, clock: MemoryClock) -> MemoryStore {
        MemoryStore::build(kind, partitions, clock, "/memory")
    }

    /// A store with a source of its own, for tests of two services.
    pub fn named(partitions: u16, clock: MemoryClock, source: &str) -> MemoryStore {
        MemoryStore::build(Kind::ChangeLog, partitions, clock, source)
    }

    fn build(kind: Kind, partitions: u16, clock: MemoryClock, source: &str) -> MemoryStore {
        let partitions = partitions.max(1);
        MemoryStore {
            shared: Arc::new(Shared {
                kind,
                state: Mutex::new(State::new(kind, partitions)),
                clock,
                commits: watch::Sender::new(0),
                handles: AtomicU64::new(1),
                partitions,
                source: Arc::from(source),
                limits: EventLimits::default(),
                listed: Mutex::new((0, Arc::from([]))),
            }),
            number: 0,
            woken: AtomicU64::new(0),
            line: None,
            format_max: u16::MAX,
            local: Mutex::new(Local::default()),
        }
    }

    /// How this store finds what is new.
    pub fn kind(&self) -> Kind {
        self.shared.kind
    }

    /// The store's clock.
    pub fn clock(&self) -> &MemoryClock {
        &self.shared.clock
    }

    /// What this store can do.
    pub fn source_capabilities(&self) -> SourceCapabilities {
        let kind = self.shared.kind;
        let mut capabilities = SourceCapabilities::least();
        capabilities.overlapping_writers = kind != Kind::Number;
        capabilities.many_destinations = kind.many_destinations();
        capabilities.many_partitions = self.shared.partitions > 1;
        capabilities.scheduled = true;
        capabilities.wakes = true;
        capabilities.unique_ids = true;
        capabilities.ranges = !kind.marks_rows();
        capabilities
    }

    /// Begins a producer's transaction, beside any others.
    pub fn begin(&self) -> MemoryTransaction {
        MemoryTransaction::new(Arc::clone(&self.shared), self.line.clone())
    }

    /// Stages the events in one transaction and commits it; returns their numbers.
    ///
    /// # Errors
    /// What [`MemoryTransaction::enqueue`] and [`MemoryTransaction::commit`] say.
    pub fn commit(&self, events: Vec<NewEvent>) -> Result<Vec<RowRef>> {
        let mut transaction = self.begin();
        for event in events {
            transaction.enqueue(event)?;
        }
        transaction.commit()
    }

    /// Every row that was ever committed, in commit order, also what retention has deleted.
    pub fn committed(&self) -> Vec<CommittedRow> {
        self.committed_rows().to_vec()
    }

    /// The same without copying them: for whoever asks often.
    pub fn committed_rows(&self) -> Arc<[CommittedRow]> {
        let state = self.state();
        let mut listed = lock(&self.shared.listed);
        if listed.0 != state.version {
            *listed = (state.version, state.list().into());
        }
        Arc::clone(&listed.1)
    }

    /// How many rows were ever committed.
    pub fn committed_len(&self) -> usize {
        let state = self.state();
        state.log.iter().map(Vec::len).sum::<usize>() + state.retired.len()
    }

    /// Whether an event was committed, or scheduled.
    pub fn is_committed(&self, id: EventId) -> bool {
        self.state().ids.contains(&id)
    }

    /// The ids of what retention has deleted, in the order in which it went.
    pub fn retired(&self) -> Vec<EventId> {
        self.state().retired.iter().map(|row| row.row.id).collect()
    }

    /// What the store's record says became of the events a destination's cursors passed, in the
    /// order in which it was written. `Acked` is the store's claim that it was published.
    pub fn settled(&self, destination: &DestinationId) -> Vec<(RowRef, Passed)> {
        let state = self.state();
        state.settled.get(destination).cloned().unwrap_or_default()
    }

    /// Commits a row that is no event, under the key `order/malformed`.
    pub fn insert_malformed(&self) -> RowRef {
        let row = self.state().insert_malformed(self.elapsed());
        self.shared.commits.send_modify(|commits| *commits += 1);
        row
    }

    /// Loses everything committed and starts numbering anew, as a restore of an old copy does;
    /// cursors stay where they are.
    pub fn rewind(&self) {
        self.state().rewind();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.shared.clock.elapsed()
    }
}

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl State {
    /// What was ever committed, in commit order.
    fn list(&self) -> Vec<CommittedRow> {
        let all = self.log.iter().flatten().chain(&self.retired);
        let mut rows: Vec<CommittedRow> =
            all.map(|row| row.view(self.home(row.key_hash))).collect();
        rows.sort_by_key(|row| row.position);
        rows
    }
}
