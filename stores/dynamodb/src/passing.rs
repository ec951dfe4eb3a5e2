//! A relay in passing: the store as one sees it that is there for a moment, and for some partitions alone.
//!
//! A function that is invoked with records takes the leases of their partitions, publishes, lets go, and ends.
//! Invariants: nothing is read or marked without the lease (R044); a partition whose relay lives is left to it;
//! who passes is no rival, so the relays that stay keep their share; and who let everything go leaves no trace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use postrider_core::lease::{AcquireRequest, Acquired, Census, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, OutboxSource, Page, RenewRequest, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Lease, PartitionId, RelayId, Result,
};

use crate::collection::single;
use crate::control::SCHEMA;
use crate::invocation::{Invocation, StreamRecord};
use crate::item::text;
use crate::lease::Taken;
use crate::record::{Place, SHARD, partition_of, pending_in};
use crate::store::DynamoStore;
use crate::watch::Snapshot;
use crate::{heartbeat, lease};

/// Between two looks at a heart that may beat.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many items are read at once.
const ITEMS_AT_ONCE: usize = 8;

/// A store, as a relay in passing sees it.
#[derive(Debug)]
pub struct Passing {
    store: DynamoStore,
    all: u16,
    wanted: BTreeSet<PartitionId>,
    left: BTreeSet<PartitionId>,
    heard: BTreeMap<PartitionId, Vec<Place>>,
    /// The newest that was heard of, by its writer's clock, in microseconds.
    newest: u64,
    /// Whether somebody looks at what waits when it ends: a sweep does.
    counts: bool,
    tenure: Mutex<Tenure>,
}

/// What is held.
#[derive(Debug, Default)]
struct Tenure {
    leases: BTreeSet<(PartitionId, u64)>,
    /// An answer was lost: there may be more.
    unsure: bool,
}

/// Who holds a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Nobody, or one whose heart stood still for its whole lease.
    Nobody,
    /// Another one in passing, or one without a heartbeat.
    Passing,
    /// A relay that stays; or nobody may have it, because an operator paused it.
    Relay,
}

impl Passing {
    /// For the partitions of an invocation's records, but for those that a relay holds.
    ///
    /// # Errors
    /// Whatever the service says.
    pub async fn of(store: &DynamoStore, invocation: &Invocation) -> Result<Passing> {
        let mut passing = Passing::new(store).await?;
        for record in invocation.records() {
            let Some(place) = record.place(store.derives()) else { continue };
            let partition = partition_of(&place.pk, passing.all);
            passing.heard.entry(partition).or_default().push(place.clone());
            // What is heard of is part of the drain, though its writer's clock be ahead.
            passing.newest = passing.newest.max(record.written().saturating_add(1));
        }
        let seen = passing.look().await?;
        for &partition in passing.heard.keys() {
            match holder(&seen, partition) {
                Holder::Relay => passing.left.insert(partition),
                Holder::Nobody | Holder::Passing => passing.wanted.insert(partition),
            };
        }
        Ok(passing)
    }

    /// For every partition, but for those whose relay is seen to live. A relay whose heart does not beat is looked
    /// at for as long as its lease lasts, and no longer than is said.
    ///
    /// # Errors
    /// Whatever the service says.
    pub async fn everywhere(store: &DynamoStore, patience: Duration) -> Result<Passing> {
        let mut passing = Passing::new(store).await?;
        passing.counts = true;
        let until = Instant::now() + patience;
        let mut first: HashMap<RelayId, u64> = HashMap::new();
        loop {
            let seen = passing.look().await?;
            for (relay, heart) in &seen.relays {
                first.entry(relay.clone()).or_insert(heart.beat);
            }
            let lives = |partition: PartitionId| {
                let owner = seen.leases.get(&partition)?.owner.as_ref()?;
                Some(first.get(owner).copied()? != seen.relays.get(owner)?.beat)
            };
            let mut undecided = false;
            (passing.wanted, passing.left) = Default::default();
            for partition in (0..passing.all).map(PartitionId) {
                match (holder(&seen, partition), lives(partition)) {
                    (Holder::Relay, beats) => {
                        let paused = seen.paused.contains(&partition);
                        undecided |= !paused && beats != Some(true);
                        passing.left.insert(partition);
                    }
                    (Holder::Nobody | Holder::Passing, _) => {
                        passing.wanted.insert(partition);
                    }
                }
            }
            if !undecided || Instant::now() + LOOK_EVERY >= until {
                return Ok(passing);
            }
            // waits: a relay that lives beats; one that is dead is silent for a lease
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn new(store: &DynamoStore) -> Result<Passing> {
        let all = store.facts().await?.partitions;
        Ok(Passing {
            store: store.clone(),
            all,
            wanted: BTreeSet::new(),
            left: BTreeSet::new(),
            heard: BTreeMap::new(),
            newest: 0,
            counts: false,
            tenure: Mutex::default(),
        })
    }

    async fn look(&self) -> Result<Snapshot> {
        self.store.look("pass").await
    }

    /// The partitions that it is there for.
    pub fn wanted(&self) -> &BTreeSet<PartitionId> {
        &self.wanted
    }

    /// The partitions that are left to the relay that holds them.
    pub fn left(&self) -> &BTreeSet<PartitionId> {
        &self.left
    }

    /// The first record, in the stream's order, whose event is still pending, and left to no relay.
    ///
    /// # Errors
    /// Whatever the service says.
    pub async fn first_pending<'a>(
        &self,
        invocation: &'a Invocation,
    ) -> Result<Option<&'a StreamRecord>> {
        let reads = invocation.records().iter().map(|record| self.is_pending(record));
        let reads: Vec<_> = reads.collect();
        let mut reads = stream::iter(reads).buffered(ITEMS_AT_ONCE);
        let mut records = invocation.records().iter();
        while let (Some(pending), Some(record)) = (reads.next().await, records.next()) {
            if pending? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    async fn is_pending(&self, record: &StreamRecord) -> Result<bool> {
        let Some(place) = record.place(self.store.derives()) else { return Ok(false) };
        let partition = partition_of(&place.pk, self.all);
        if self.left.contains(&partition) {
            return Ok(false);
        }
        let item = single(self.store.connection(), "pass", place).await?;
        let pending = pending_in(partition);
        Ok(item.is_some_and(|item| text(&item, SHARD) == Some(&pending)))
    }

    /// Takes the heartbeat away of one that has let everything go, so that the control items do not grow with
    /// every invocation. Where it is not sure, the heartbeat stays until its lease is over.
    ///
    /// # Errors
    /// Whatever the service says. Nothing depends on it.
    pub async fn leave(&self, owner: &RelayId) -> Result<()> {
        let free = {
            let tenure = self.tenure();
            tenure.leases.is_empty() && !tenure.unsure
        };
        if free { heartbeat::leave(self.store.connection(), owner).await } else { Ok(()) }
    }

    fn tenure(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self, request: &AcquireRequest) -> Result<Acquired> {
        let answer = lease::acquire(&self.store, self.all, request, Some(&self.wanted)).await;
        let mut tenure = self.tenure();
        match answer {
            Ok(Taken { mut acquired, failed }) => {
                tenure.unsure |= failed.is_some();
                let granted = acquired.granted.iter().map(|granted| &granted.lease);
                tenure.leases.extend(granted.map(|lease| (lease.partition, lease.token)));
                acquired.census = alone(request.current);
                Ok(acquired)
            }
            Err(error) => {
                tenure.unsure = true;
                Err(error)
            }
        }
    }

    async fn keep(&self, request: &RenewRequest) -> Result<Renewed> {
        let mut renewed = lease::renew(&self.store, request, true).await?;
        renewed.census = alone(request.current);
        Ok(renewed)
    }

    async fn let_go(&self, leases: &[Lease]) -> Result<()> {
        self.store.release(leases).await?;
        let mut tenure = self.tenure();
        for lease in leases {
            tenure.leases.remove(&(lease.partition, lease.token));
        }
        Ok(())
    }

    /// What it is not there for is, to it, as if an operator had paused it.
    async fn define(&self) -> Result<Definitions> {
        let mut known = self.store.destinations().await?;
        let others = (0..self.all).map(PartitionId).filter(|id| !self.wanted.contains(id));
        for partition in others.collect::<Vec<_>>() {
            if !known.paused.contains(&partition) {
                known.paused.push(partition);
            }
        }
        Ok(known)
    }

    /// Begins a reading, and says at once where there is something: the index may not name it yet.
    async fn begin(&self, lease: &Lease, destination: &DestinationId) -> Result<Loaded> {
        let loaded = self.store.load(lease, destination).await?;
        if let Some(places) = self.heard.get(&lease.partition) {
            self.store.hear(places.clone());
        }
        Ok(loaded)
    }

    async fn end(&self, lease: &Lease) -> Result<Cursor> {
        let now = self.store.head(lease).await?;
        Ok(if now.position() < self.newest { Cursor::number(self.newest) } else { now })
    }
}

/// Nobody shares with one in passing.
fn alone(current: bool) -> Census {
    Census { relays: 1, current: u32::from(current) }
}

fn holder(seen: &Snapshot, partition: PartitionId) -> Holder {
    if seen.paused.contains(&partition) {
        return Holder::Relay;
    }
    let Some(owner) = seen.leases.get(&partition).and_then(|lease| lease.owner.as_ref()) else {
        return Holder::Nobody;
    };
    match seen.relays.get(owner) {
        Some(heart) if heart.left().is_zero() => Holder::Nobody,
        Some(heart) if !heart.passing => Holder::Relay,
        _ => Holder::Passing,
    }
}

impl OutboxSource for Passing {
    fn capabilities(&self) -> SourceCapabilities {
        self.store.capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        Box::pin(async {
            // The store was opened before, once for many invocations.
            let name = self.store.connection().name();
            Ok(StoreFacts { name, partitions: self.all, schema: SCHEMA })
        })
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        self.store.register(definitions)
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        self.store.apply(change)
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        Box::pin(self.define())
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(self.take(request))
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(self.keep(request))
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.let_go(leases))
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(self.begin(lease, destination))
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(self.end(lease))
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        self.store.fetch(request)
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        self.store.settle(settlement)
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        self.store.due(request)
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        self.store.admit(lease, rows_max)
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        self.store.carry_out(request)
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        if !self.counts {
            // It would read every partition, after each invocation, for nobody.
            return Box::pin(async { Ok(Counts::default()) });
        }
        self.store.counts(destination)
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        self.store.wake()
    }
}
