//! An application's own table as a source: rows say themselves that they are pending.
//!
//! Leases, destinations, waiting events, dead letters, and requests are the store's, in Postrider's tables
//! beside; the application's table is read, and its rows are marked or deleted when they were published.
//! Invariant: a row is marked only by what was acknowledged, dropped by a route, or erased. What waits
//! stays unmarked until it is delivered.

mod attempt;
mod checked;
mod compare;
mod examine;
mod fetch;
mod load;
mod mapping;
mod pending;
mod reading;
mod rendering;
mod settle;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, OutboxSource, Page, RenewRequest, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Error, ErrorKind, Hindrance, Lease, RelayId,
    Result,
};

pub use compare::Comparison;
pub use mapping::{Mapping, Settled};
pub(crate) use pending::Beside;
pub(crate) use rendering::Rendering;

use crate::error::told;
use crate::own::checked::Checked;
use crate::own::reading::Readings;
use crate::sessions::Line;
use crate::store::{Options, PostgresStore};

const OFFER: &str = include_str!("../../sql/own/offer.sql");

/// A relay's handle on an application's own table.
///
/// It serves one destination, in one partition, by polling, and looks at once when it is told of a commit
/// ([`Nudger::committed`](crate::Nudger::committed), or `pg_notify` on the store's channel). The tables of [`init`](crate::init) stand beside,
/// made with one partition. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OwnTable {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: PostgresStore,
    mapping: Mapping,
    /// Nothing is marked: what would be published is noted, to be compared.
    compares: bool,
    checked: tokio::sync::OnceCell<Checked>,
    /// Whether a row was marked, and rolled back: whether rows can be.
    attempted: AtomicBool,
    readings: Mutex<Readings>,
}

impl OwnTable {
    /// The table at an address like `postgres://user:password@host:5432/database`. Nothing is connected
    /// before the first call.
    ///
    /// # Errors
    /// `Config` if the address is none, or a name of the mapping.
    pub fn new(url: &str, mapping: Mapping) -> Result<OwnTable> {
        OwnTable::with(url, Options::default(), mapping)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`OwnTable::new`].
    pub fn with(url: &str, options: Options, mapping: Mapping) -> Result<OwnTable> {
        OwnTable::on(PostgresStore::with(url, options)?, mapping)
    }

    /// The same beside a store that is there: with its address, which may be asked for again, and its options.
    ///
    /// # Errors
    /// `Config` if a name of the mapping is none.
    pub fn on(store: PostgresStore, mapping: Mapping) -> Result<OwnTable> {
        OwnTable::make(store, mapping, false)
    }

    /// A handle that publishes beside the loop that is there, and marks nothing: for a comparison, at a
    /// destination that nobody listens to. The rows that are younger than its first use are read,
    /// whatever they say of themselves.
    ///
    /// # Errors
    /// As [`OwnTable::new`]; `Config` where rows have no number, or are deleted: there is nothing to
    /// compare then.
    pub fn comparing(url: &str, options: Options, mapping: Mapping) -> Result<OwnTable> {
        OwnTable::comparing_on(PostgresStore::with(url, options)?, mapping)
    }

    /// The same beside a store that is there.
    ///
    /// # Errors
    /// As [`OwnTable::comparing`].
    pub fn comparing_on(store: PostgresStore, mapping: Mapping) -> Result<OwnTable> {
        if mapping.order.is_none() || mapping.mark().is_none() {
            return Err(mapping::config(
                "compare",
                "only a table whose rows have numbers and stay can be compared",
            ));
        }
        OwnTable::make(store, mapping, true)
    }

    fn make(store: PostgresStore, mapping: Mapping, compares: bool) -> Result<OwnTable> {
        mapping.check()?;
        let (checked, attempted) = (tokio::sync::OnceCell::new(), AtomicBool::new(false));
        let readings = Mutex::default();
        let inner = Inner { store, mapping, compares, checked, attempted, readings };
        let inner = Arc::new(inner);
        inner.store.inner.beside.is(&inner);
        Ok(OwnTable { inner })
    }

    /// The store beside: its operator's side shows and changes what waits, and its overview counts what is pending here as
    /// long as this handle is there.
    pub fn store(&self) -> &PostgresStore {
        &self.inner.store
    }

    /// The index that holds only what is pending, as a statement for whoever makes it. It is offered, and
    /// nothing depends on it but the time that a poll takes. `None` where rows are deleted.
    pub fn index(mapping: &Mapping) -> Option<String> {
        Rendering::of_index(mapping).map(|rendering| rendering.fill(OFFER))
    }

    /// The table, examined once; from then on its statements can be spoken.
    async fn checked(&self) -> Result<&Checked> {
        let inner = &self.inner;
        inner
            .checked
            .get_or_try_init(|| async {
                let session = inner.store.sessions().line(Line::Read, "open own table").await?;
                let checked = checked::check(&session, &inner.mapping).await?;
                if inner.compares {
                    compare::check(&inner.mapping, &checked.columns)?;
                }
                let (names, compares) = (inner.store.names(), inner.compares);
                let rendering = Rendering::new(names, &inner.mapping, &checked, compares);
                inner.store.sessions().texts().map_own(rendering);
                if compares {
                    compare::begin(&session).await?;
                }
                Ok(checked)
            })
            .await
    }

    /// Whether rows have no number of their own.
    async fn is_numbered(&self) -> Result<bool> {
        let columns = &self.checked().await?.columns;
        Ok(!columns.iter().any(|column| checked::orders_by(&self.inner.mapping, column)))
    }

    /// What a name that is not there means: the application's table was changed, or one of its triggers fails. Postrider's
    /// own tables were looked at when they were opened.
    fn theirs(&self, error: Error) -> Error {
        let names = self.inner.store.names();
        let table = &self.inner.mapping.table;
        let ours = format!("{}.{}", names.schema(), names.outbox());
        let Some(told) = told(&error).filter(|_| error.kind() == ErrorKind::SchemaMissing) else {
            return error;
        };
        if told.message().contains(&ours) && !told.message().contains(table) {
            return error;
        }
        Error::new(ErrorKind::Config, error.operation())
            .message(format!(
                "the table is not as it was when it was opened, or one of its triggers fails: {}. Nothing is lost: events \
                 wait. Correct it, or the mapping in [own_table] and start the relay again",
                told.message()
            ))
            .context("table", table.escape_debug())
    }

    fn readings(&self) -> MutexGuard<'_, Readings> {
        self.inner.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open_both(&self) -> Result<StoreFacts> {
        let facts = self.inner.store.open().await?;
        self.fits(facts.partitions, self.inner.compares).await?;
        Ok(facts)
    }

    /// Whether a relay could serve it beside tables of so many partitions, or compare it.
    async fn fits(&self, partitions: u16, compares: bool) -> Result<()> {
        if partitions != 1 {
            return Err(Error::new(ErrorKind::Config, "open own table")
                .message(
                    "an application's own table is one partition, and the tables beside it were \
                     made for more; make others, in a schema of their own, with one",
                )
                .context("partitions", partitions));
        }
        self.checked().await.map_err(|error| error.context("store", self.inner.store.name()))?;
        if !compares {
            let session = self.inner.store.sessions().line(Line::Read, "open own table").await?;
            compare::refuse_compared(&session).await?;
        }
        Ok(())
    }

    /// One destination is served: a row has one mark.
    async fn one_destination(&self, put: &[(DestinationId, bool)]) -> Result<()> {
        let known = self.inner.store.destinations().await?;
        let mut ids: Vec<&DestinationId> = known
            .rows
            .iter()
            .map(|row| &row.definition.id)
            .filter(|id| !put.iter().any(|(other, stays)| other == *id && !stays))
            .collect();
        ids.extend(put.iter().filter(|(_, stays)| *stays).map(|(id, _)| id));
        ids.retain(|id| id.as_str() != Destination::UNROUTED);
        ids.sort_unstable();
        ids.dedup();
        if ids.len() <= 1 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, "apply").message(
            "a row of an application's own table has one mark, so it goes to one destination; \
             nothing was changed",
        ))
    }

    async fn register_one(&self, definitions: &[Destination]) -> Result<()> {
        if self.inner.store.destinations().await?.rows.is_empty() {
            let put: Vec<_> = definitions.iter().map(|given| (given.id.clone(), true)).collect();
            self.one_destination(&put).await?;
        }
        self.inner.store.register(definitions).await
    }

    async fn apply_one(&self, change: &DefinitionChange) -> Result<u64> {
        let put = change.put.iter().map(|(given, _)| (given.id.clone(), true));
        let removed = change.remove.iter().map(|id| (id.clone(), false));
        self.one_destination(&put.chain(removed).collect::<Vec<_>>()).await?;
        self.inner.store.apply(change).await
    }
}

impl OutboxSource for OwnTable {
    fn capabilities(&self) -> SourceCapabilities {
        let mut can = SourceCapabilities::least();
        can.overlapping_writers = true;
        can
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        Box::pin(self.open_both())
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.register_one(definitions))
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.apply_one(change))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        self.inner.store.destinations()
    }

    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.store.report(relay, hindrances)
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        self.inner.store.acquire(request)
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        self.inner.store.renew(request)
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if let [lease] = leases {
                // The last chance to mark what somebody had locked; else it is sent again.
                _ = settle::mark_owed(self, lease).await;
            }
            self.inner.store.release(leases).await
        })
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(async move {
            load::load(self, lease, destination).await.map_err(|error| self.theirs(error))
        })
    }

    fn head<'a>(&'a self, _: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(async { load::head(self).await.map_err(|error| self.theirs(error)) })
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(
            async move { fetch::fetch(self, request).await.map_err(|error| self.theirs(error)) },
        )
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(settle::settle(self, settlement))
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        self.inner.store.due(request)
    }

    fn admit<'a>(&'a self, _: &'a Lease, _: u32) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async { Ok(Admitted::default()) })
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        self.inner.store.carry_out(request)
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        self.inner.store.counts(destination)
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        // Applications that tell of their commits, and operators: nobody else wakes a relay.
        self.inner.store.wake()
    }
}
