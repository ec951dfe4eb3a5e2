//! The memory store: one state behind one lock, so that every operation is atomic, as a database's
//! transaction is. The operations stand in files of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use postrider_core::source::{Malformed, SourceCapabilities};
use postrider_core::waiting::{Passed, RowRef};
use postrider_core::{
    Clock, DestinationId, DestinationRow, Error, ErrorKind, Event, EventId, EventLimits, InboxKey,
    KeyHash, NewEvent, RelayId, Result, Timestamp,
};
use tokio::sync::watch;

use super::inbox::InboxRow;
use super::lease::{LeaseRow, RelayRow};
use super::request::Request;
use super::schedule::Scheduled;
use super::waiting::Stored;
use super::{MemoryClock, MemoryTransaction, lock};

/// An outbox and an inbox in memory. Clones are handles on the same store, as other processes have
/// them.
///
/// Numbers are drawn when an event is enqueued, and events become visible when their transaction
/// commits, so numbers and commits may be in different orders and rolled-back numbers are gaps, as
/// in a server with many writers. Therefore a cursor here is a position in the *commit* order, which
/// a row gets inside the commit; a cursor on the drawn number would lose rows.
#[derive(Debug)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
    /// How many commits this handle's last wake-up has seen.
    pub(super) woken: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) clock: MemoryClock,
    /// How many commits there were: what wakes relays.
    pub(super) commits: watch::Sender<u64>,
    pub(super) partitions: u16,
    pub(super) source: Arc<str>,
    pub(super) limits: EventLimits,
}

/// Everything the store holds.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last number drawn. Never goes back, also when a transaction is rolled back.
    pub(super) seq_last: u64,
    /// The last place given in the commit order.
    pub(super) position_last: u64,
    /// Numbers that are drawn by transactions that are still open.
    pub(super) open: BTreeSet<u64>,
    /// Committed rows, by partition, ascending in position.
    pub(super) log: Vec<Vec<LogRow>>,
    /// The position of each committed number.
    positions: BTreeMap<u64, u64>,
    /// Every id that was ever committed: ids are unique.
    pub(super) ids: BTreeSet<EventId>,
    pub(super) scheduled: BTreeMap<(Timestamp, u64), Scheduled>,
    pub(super) leases: Vec<LeaseRow>,
    pub(super) relays: BTreeMap<RelayId, RelayRow>,
    pub(super) definitions: u64,
    pub(super) destinations: BTreeMap<DestinationId, DestinationRow>,
    pub(super) cursors: BTreeMap<(DestinationId, u16), u64>,
    pub(super) waiting: BTreeMap<DestinationId, BTreeMap<u64, Stored>>,
    pub(super) settled: BTreeMap<DestinationId, Vec<(RowRef, Passed)>>,
    /// Endpoints that are disabled, with what they answered.
    pub(super) endpoints: BTreeMap<(DestinationId, Box<str>), String>,
    /// Partitions that an operator paused.
    pub(super) paused: BTreeSet<u16>,
    /// Up to which number events are sent again, because a destination was rewound.
    pub(super) replay: BTreeMap<(DestinationId, u16), u64>,
    /// What operators asked for, oldest first.
    pub(super) requests: Vec<Request>,
    /// What retention has deleted, for checkers.
    pub(super) retired: Vec<LogRow>,
    /// When the youngest event was created that retention has deleted.
    pub(super) retired_at: Option<Timestamp>,
    pub(super) inbox: BTreeMap<InboxKey, InboxRow>,
    /// Markers of transactions that are open: whoever wants the same one has to wait.
    pub(super) accepting: BTreeSet<InboxKey>,
    pub(super) effects: Vec<InboxKey>,
}

/// A committed row.
#[derive(Clone, Debug)]
pub(super) struct LogRow {
    pub(super) position: u64,
    pub(super) row: RowRef,
    pub(super) key_hash: KeyHash,
    pub(super) key: Arc<str>,
    pub(super) event: Result<Arc<Event>, Malformed>,
}

/// A committed event, as the store's own record shows it to a checker.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedRow {
    /// Its place in the commit order, from 1.
    pub position: u64,
    /// Its number and id.
    pub row: RowRef,
    /// Its key.
    pub key: Arc<str>,
    /// The event; `None` if the row cannot be read as one.
    pub event: Option<Arc<Event>>,
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        let seen = *self.shared.commits.borrow();
        MemoryStore { shared: Arc::clone(&self.shared), woken: AtomicU64::new(seen) }
    }
}

impl MemoryStore {
    /// A store with so many partitions (at least one) and the source `/memory`, on a clock.
    pub fn new(partitions: u16, clock: MemoryClock) -> MemoryStore {
        MemoryStore::named(partitions, clock, "/memory")
    }

    /// A store with a source of its own, for tests of two services.
    pub fn named(partitions: u16, clock: MemoryClock, source: &str) -> MemoryStore {
        let partitions = partitions.max(1);
        let state = State {
            log: vec![Vec::new(); usize::from(partitions)],
            leases: vec![LeaseRow::default(); usize::from(partitions)],
            ..State::default()
        };
        MemoryStore {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                clock,
                commits: watch::Sender::new(0),
                partitions,
                source: Arc::from(source),
                limits: EventLimits::default(),
            }),
            woken: AtomicU64::new(0),
        }
    }

    /// The store's clock.
    pub fn clock(&self) -> &MemoryClock {
        &self.shared.clock
    }

    /// What this store can do.
    pub fn source_capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::least();
        capabilities.overlapping_writers = true;
        capabilities.many_destinations = true;
        capabilities.many_partitions = self.shared.partitions > 1;
        capabilities.scheduled = true;
        capabilities.wakes = true;
        capabilities
    }

    /// Begins a producer's transaction, beside any others.
    pub fn begin(&self) -> MemoryTransaction {
        MemoryTransaction::new(Arc::clone(&self.shared))
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
        let state = self.state();
        let all = state.log.iter().flatten().chain(&state.retired);
        let mut rows: Vec<CommittedRow> = all.map(LogRow::view).collect();
        rows.sort_by_key(|row| row.position);
        rows
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
        let row = {
            let mut state = self.state();
            state.insert_malformed(self.shared.partitions)
        };
        self.shared.commits.send_modify(|commits| *commits += 1);
        row
    }

    /// Loses everything committed and starts numbering anew, as a restore of an old copy does;
    /// cursors stay where they are.
    pub fn rewind(&self) {
        let mut state = self.state();
        state.log.iter_mut().for_each(Vec::clear);
        state.retired.clear();
        state.positions.clear();
        state.position_last = 0;
        state.seq_last = 0;
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

/// The partition of a key: its hash modulo P, as every store computes it.
pub(super) fn partition_of(key_hash: KeyHash, partitions: u16) -> u16 {
    u16::try_from(key_hash.0 % u64::from(partitions)).expect("invariant: less than a u16")
}

impl LogRow {
    fn view(&self) -> CommittedRow {
        CommittedRow {
            position: self.position,
            row: self.row,
            key: Arc::clone(&self.key),
            event: self.event.as_ref().ok().cloned(),
        }
    }
}

impl State {
    /// Draws the next number. A number that is not used is a gap for ever.
    pub(super) fn draw_seq(&mut self) -> u64 {
        self.seq_last += 1;
        self.seq_last
    }

    /// Makes a row visible at the end of the commit order.
    pub(super) fn append(&mut self, seq: u64, event: Event, partitions: u16) -> RowRef {
        let row = RowRef { seq, id: event.id };
        let key_hash = event.key_hash();
        let key = Arc::from(event.key());
        self.push(key_hash, key, row, Ok(Arc::new(event)), partitions);
        row
    }

    fn insert_malformed(&mut self, partitions: u16) -> RowRef {
        let row = RowRef { seq: self.draw_seq(), id: EventId::mint() };
        let malformed = Malformed {
            reason: postrider_core::waiting::Reason::Malformed,
            detail: "headers: not a JSON object".to_owned(),
        };
        let key = "order/malformed";
        let hash = KeyHash::of(key);
        self.push(hash, Arc::from(key), row, Err(malformed), partitions);
        row
    }

    fn push(
        &mut self,
        key_hash: KeyHash,
        key: Arc<str>,
        row: RowRef,
        event: Result<Arc<Event>, Malformed>,
        partitions: u16,
    ) {
        self.position_last += 1;
        self.positions.insert(row.seq, self.position_last);
        let partition = partition_of(key_hash, partitions);
        self.log[usize::from(partition)].push(LogRow {
            position: self.position_last,
            row,
            key_hash,
            key,
            event,
        });
    }

    /// A number has no row any more.
    pub(super) fn forget_position(&mut self, seq: u64) {
        self.positions.remove(&seq);
    }

    /// The committed row of a number.
    pub(super) fn row_of(&self, partition: u16, seq: u64) -> Option<&LogRow> {
        let position = self.positions.get(&seq)?;
        let log = self.log.get(usize::from(partition))?;
        let index = log.binary_search_by_key(position, |row| row.position).ok()?;
        Some(&log[index])
    }

    /// The rows of a partition behind a position.
    pub(super) fn rows_after(&self, partition: u16, position: u64) -> Result<&[LogRow]> {
        let Some(log) = self.log.get(usize::from(partition)) else {
            return Err(Error::new(ErrorKind::NotFound, "read outbox")
                .message("no such partition")
                .context("partition", partition));
        };
        let start = log.partition_point(|row| row.position <= position);
        Ok(&log[start..])
    }
}
