//! The store as the relay sees it: one handle on leases, definitions, and what is pending.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use postrider_core::source::{Loaded, StoreFacts};
use postrider_core::waiting::Counts;
use postrider_core::{DestinationId, Error, ErrorKind, Lease, PartitionId, Result, Timestamp};

use crate::connection::{Connection, call};
use crate::control::{Facts, SCHEMA, facts};
use crate::examine::{check_index, check_stream};
use crate::inbox::Inbox;
use crate::item::{Item, s};
use crate::lag::{Lags, ShardLag};
use crate::listed::Listed;
use crate::options::Options;
use crate::reading::Readings;
use crate::record::{Place, partition_of};
use crate::remembered::{Of, Remembered};
use crate::tables::describe;
use crate::tally::{Counting, Tally};
use crate::waiting::{Stored, Waiting, rows_pk};
use crate::watch::{Snapshot, Watch};
use crate::{definitions, derived, lease, release, remembered, removal, stream};
use tokio::sync::Notify;

/// A relay's handle on a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DynamoStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    connection: Connection,
    options: Options,
    watch: Arc<Watch>,
    facts: tokio::sync::OnceCell<Facts>,
    source: OnceLock<Arc<str>>,
    readings: Mutex<Readings>,
    waiting: Mutex<HashMap<(PartitionId, DestinationId), Shared>>,
    tally: Counting,
    lags: Lags,
    /// Whether the stream is read now.
    live: AtomicBool,
    woken: Notify,
    follows: OnceLock<()>,
    inbox: OnceLock<Inbox>,
    /// How many requests were written down when nothing of a token's was open.
    idle_at: Mutex<HashMap<PartitionId, (u64, u64)>>,
    listed: Listed,
    /// Whether removals that were cut off were finished.
    tidied: tokio::sync::OnceCell<()>,
}

/// One settlement or question at a time.
type Shared = Arc<tokio::sync::Mutex<Remembered>>;

/// The time now, in milliseconds, by this machine's clock: for what delays and is shown, never for who owns.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_micros() / 1_000
}

impl DynamoStore {
    /// A handle with the default options. Nothing is asked before the first call.
    pub fn new(connection: Connection) -> DynamoStore {
        DynamoStore::with(connection, Options::default())
    }

    /// A handle with options.
    pub fn with(connection: Connection, options: Options) -> DynamoStore {
        DynamoStore::watching(connection, options, Arc::default())
    }

    /// Another handle of the same process: it shares what was seen of other relays' heartbeats, and
    /// nothing else.
    #[must_use]
    pub fn beside(&self) -> DynamoStore {
        let inner = &self.inner;
        let (connection, options) = (inner.connection.clone(), inner.options.clone());
        DynamoStore::watching(connection, options, Arc::clone(&inner.watch))
    }

    fn watching(connection: Connection, options: Options, watch: Arc<Watch>) -> DynamoStore {
        let inner = Inner {
            connection,
            options,
            watch,
            facts: tokio::sync::OnceCell::new(),
            source: OnceLock::new(),
            readings: Mutex::default(),
            waiting: Mutex::default(),
            tally: Counting::default(),
            lags: Lags::default(),
            live: AtomicBool::new(false),
            woken: Notify::new(),
            follows: OnceLock::new(),
            inbox: OnceLock::new(),
            idle_at: Mutex::default(),
            listed: Listed::default(),
            tidied: tokio::sync::OnceCell::new(),
        };
        DynamoStore { inner: Arc::new(inner) }
    }

    /// Looks at the other relays' heartbeats, as every acquisition and renewal does: what a relay that
    /// stands by sees between them.
    ///
    /// # Errors
    /// Whatever the service says.
    pub async fn watch(&self) -> Result<()> {
        self.inner.watch.look(&self.inner.connection, "watch").await.map(drop)
    }

    /// What was counted since the handle was made.
    pub fn tallied(&self) -> Tally {
        self.inner.tally.told()
    }

    /// How far each shard of the stream is read. While the stream cannot be read, what was known last: it grows old.
    /// Empty where it was never read.
    pub fn shard_lags(&self) -> Vec<ShardLag> {
        self.inner.lags.told()
    }

    pub(crate) fn lags(&self) -> &Lags {
        &self.inner.lags
    }

    pub(crate) fn tally(&self) -> &Counting {
        &self.inner.tally
    }

    /// The inbox of the same tables, with the options of the handle. It is made once, so that what it saw
    /// of others' leases is not forgotten.
    ///
    /// # Errors
    /// `Config` if its options contradict each other.
    pub(crate) fn own_inbox(&self) -> Result<&Inbox> {
        if let Some(inbox) = self.inner.inbox.get() {
            return Ok(inbox);
        }
        let inbox = Inbox::new(self.inner.connection.clone(), self.inner.options.inbox.clone())?;
        Ok(self.inner.inbox.get_or_init(|| inbox))
    }

    /// What this process has seen of the control items, after another look at them.
    /// What was read of partitions that are lost leaves memory.
    pub(crate) async fn look(&self, operation: &'static str) -> Result<Snapshot> {
        let snapshot = self.inner.watch.look(&self.inner.connection, operation).await?;
        self.forget(|partition, token| snapshot.is_past(partition, token));
        Ok(snapshot)
    }

    /// Forgets what was read of partitions by tokens that are lost, or let go.
    fn forget(&self, lost: impl Fn(PartitionId, u64) -> bool) {
        let gone = self.readings().forget(lost);
        if !gone.is_empty() {
            let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.retain(|(partition, _), _| !gone.contains(partition));
        }
    }

    pub(crate) async fn woken(&self) {
        self.inner.woken.notified().await;
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Whether events are made of business items here.
    pub(crate) fn derives(&self) -> bool {
        self.inner.options.derivation.is_some()
    }

    /// What this handle has shown of the outbox.
    pub(crate) fn listed(&self) -> &Listed {
        &self.inner.listed
    }

    /// Whether nothing was asked of a partition's owner since it was last found without requests.
    pub(crate) fn is_idle_at(&self, lease: &Lease, asked: u64) -> bool {
        let idle = self.inner.idle_at.lock().unwrap_or_else(PoisonError::into_inner);
        idle.get(&lease.partition) == Some(&(lease.token, asked))
    }

    /// Notes that nothing of a partition was open when so many requests were written down.
    pub(crate) fn note_idle(&self, lease: &Lease, asked: u64) {
        let mut idle = self.inner.idle_at.lock().unwrap_or_else(PoisonError::into_inner);
        idle.insert(lease.partition, (lease.token, asked));
    }

    /// Whether commits are told of by the stream now. While they are not, the index is asked instead.
    pub fn is_live(&self) -> bool {
        self.inner.live.load(Ordering::Acquire)
    }

    pub(crate) fn set_live(&self, live: bool) {
        if live && !self.is_live() {
            // Whatever was committed before the iterators stood is found in the index.
            self.readings().sweep_all();
            self.inner.live.store(true, Ordering::Release);
            self.inner.woken.notify_one();
        } else {
            self.inner.live.store(live, Ordering::Release);
        }
    }

    /// Notes where events were committed.
    pub(crate) fn hear(&self, places: Vec<Place>) {
        let Some(partitions) = self.inner.facts.get().map(|facts| facts.partitions) else { return };
        let mut readings = self.readings();
        for place in places {
            readings.hear(partition_of(&place.pk, partitions), place);
        }
        drop(readings);
        self.inner.woken.notify_one();
    }

    /// Has the index read from its front for every reading.
    pub(crate) fn sweep_all(&self) {
        self.readings().sweep_all();
        self.inner.woken.notify_one();
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> DynamoStore {
        DynamoStore { inner }
    }

    pub(crate) fn readings(&self) -> MutexGuard<'_, Readings> {
        self.inner.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who says what names no source. Empty before the store was opened.
    pub(crate) fn default_source(&self) -> &Arc<str> {
        static NONE: OnceLock<Arc<str>> = OnceLock::new();
        self.inner.source.get().unwrap_or_else(|| NONE.get_or_init(|| Arc::from("")))
    }

    /// When the item of an event that is published now may go, in seconds.
    pub(crate) fn expires_at(&self) -> i64 {
        let kept = i64::try_from(self.inner.options.retention.as_secs()).unwrap_or(i64::MAX);
        (now_ms() / 1_000).saturating_add(kept)
    }

    pub(crate) fn waiting(&self, partition: PartitionId, destination: &DestinationId) -> Shared {
        let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(waiting.entry((partition, destination.clone())).or_default())
    }

    /// Reads what waits.
    pub(crate) async fn read_waiting(
        &self,
        partition: PartitionId,
        destination: &DestinationId,
    ) -> Result<Waiting> {
        let pk = rows_pk(destination, partition);
        let items = self.rows(&pk).await?;
        Ok(Waiting::new(items.iter().filter_map(Stored::of), now_ms()))
    }

    pub(crate) async fn rows(&self, pk: &str) -> Result<Vec<Item>> {
        let table = &self.inner.connection.names().store;
        let client = self.inner.connection.tables().await;
        let (mut items, mut from) = (Vec::new(), None);
        loop {
            let query = client
                .query()
                .table_name(table)
                .key_condition_expression("pk = :pk")
                .expression_attribute_values(":pk", s(pk))
                .consistent_read(true)
                .set_exclusive_start_key(from.take());
            let page = call("load", table, query.send()).await?;
            items.extend(page.items.unwrap_or_default());
            from = page.last_evaluated_key;
            if from.is_none() {
                return Ok(items);
            }
        }
    }

    pub(crate) async fn facts(&self) -> Result<&Facts> {
        let facts = self.inner.facts.get_or_try_init(|| facts(&self.inner.connection)).await?;
        self.inner.source.get_or_init(|| Arc::from(&*facts.source));
        Ok(facts)
    }

    /// Finishes removals that were cut off, once: for a relay that starts. Who only looks leaves them alone.
    pub(crate) async fn tidy(&self) {
        let finish = || async { removal::finish(self).await.map(drop) };
        if let Err(error) = self.inner.tidied.get_or_try_init(finish).await {
            // Nobody waits for it.
            tracing::warn!(%error, "what waited for a destination that was removed is not all dropped");
        }
    }

    pub(crate) async fn open_all(&self) -> Result<StoreFacts> {
        derived::check(&self.inner.options)?;
        let connection = &self.inner.connection;
        let there = describe(connection, "open", &connection.names().outbox).await?;
        check_index(connection, &there)?;
        let facts = self.facts().await?;
        self.watch().await?;
        if self.inner.options.stream {
            check_stream(connection, &there)?;
            self.inner.follows.get_or_init(|| {
                // It ends with the handle.
                tokio::spawn(stream::follow(Arc::downgrade(&self.inner)));
            });
        }
        Ok(StoreFacts { name: connection.name(), partitions: facts.partitions, schema: SCHEMA })
    }

    pub(crate) async fn load_one(
        &self,
        lease: &Lease,
        destination: &DestinationId,
    ) -> Result<Loaded> {
        self.facts().await?;
        let known = definitions::known(&self.inner.connection).await?;
        let since = known.since(destination).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "load")
                .message("the destination is not there; it was removed, or never added")
                .context("destination", destination)
        })?;
        let shared = self.waiting(lease.partition, destination);
        let mut cell = shared.lock().await;
        let waiting = remembered::read(self, lease.partition, destination, since).await?;
        let loaded = Loaded {
            cursor: self.readings().begin(lease, destination),
            waiting_keys: waiting.held_keys(),
            waiting_ahead: waiting.ahead(),
            ranges: None,
            replay_through: 0,
        };
        self.readings().note_waiting(
            lease.partition,
            destination,
            waiting.behind(self.options().waiting_max),
        );
        cell.put(Of { token: lease.token, since }, waiting);
        Ok(loaded)
    }

    pub(crate) async fn count(&self, destination: &DestinationId) -> Result<Counts> {
        let mut sum = Counts::default();
        for partition in 0..self.facts().await?.partitions {
            let waiting = self.read_waiting(PartitionId(partition), destination).await?;
            waiting.count_into(&mut sum);
        }
        Ok(sum)
    }

    pub(crate) async fn let_go(&self, leases: &[Lease]) -> Result<()> {
        self.forget(|partition, token| {
            leases.iter().any(|lease| lease.partition == partition && lease.token == token)
        });
        release::release(&self.inner.connection, leases).await?;
        let Some(lease) = leases.first() else { return Ok(()) };
        if let Err(error) = lease::leave(self, &lease.owner).await {
            // The leases are let go. Others leave it a share until its heartbeat is old.
            tracing::debug!(%error, "a relay that leaves is counted for a while");
        }
        Ok(())
    }
}
