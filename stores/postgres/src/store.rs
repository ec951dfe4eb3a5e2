//! The store as the relay sees it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, OutboxSource, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities,
    StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Event, Hindrance, Lease, RelayId, Result,
};

use crate::connect::Address;
use crate::gather::Gather;
use crate::maintain::{self, Maintained};
use crate::nudge::Nudger;
use crate::pooler::{Ownership, Pooler};
use crate::remembered::Remembered;
use crate::sessions::Sessions;
use crate::sql::Texts;
use crate::standby::PublishAfter;
use crate::thresholds::Thresholds;
use crate::{
    Names, carry_out, destination, due, fetch, lease, load, open, own, retire, schedule, settle,
    wake,
};

/// How a store is used. What is fixed when the tables are made is in [`Setup`](crate::Setup).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// What the tables are called.
    pub names: Names,
    /// How long a statement may take before its outcome counts as unknown. Default 30 s: far longer than
    /// any of them takes, and below the relay's own patience.
    pub statement_deadline: Duration,
    /// Sessions lent for transactions over several statements. Default 4: operators' commands, beside
    /// the five sessions that relay and inbox share.
    pub transactions_max: usize,
    /// Deliveries of a [`Transactional`](crate::Transactional) that may share one transaction: 1 to 256. Default 1:
    /// a handler then hears of nobody else's failure, and holds its rows no longer than its own work takes. With
    /// more, what waits for a session at the same moment is done together, and the server begins and commits once
    /// for all of it.
    pub group_max: usize,
    /// What stands between the store and the server. Default [`Pooler::Auto`].
    pub pooler: Pooler,
    /// What must have an event on its disk before it is published. Default [`PublishAfter::Local`].
    pub publish_after: PublishAfter,
    /// What `doctor` takes for too much.
    pub thresholds: Thresholds,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            names: Names::default(),
            statement_deadline: Duration::from_secs(30),
            transactions_max: 4,
            group_max: 1,
            pooler: Pooler::default(),
            publish_after: PublishAfter::default(),
            thresholds: Thresholds::default(),
        }
    }
}

/// A relay's, a consumer's, and an operator's handle on one database.
///
/// It opens its sessions when they are needed, at most five that are shared and
/// [`Options::transactions_max`] that are lent. Every write under a lease is one statement that locks the
/// lease's row, so no lock is ever held while something is awaited. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) sessions: Sessions,
    pub(crate) options: Options,
    /// What is in memory of the database: ticks, and to which life of the server it belongs.
    pub(crate) remembered: Mutex<Remembered>,
    /// When the handle was made.
    pub(crate) born: std::time::Instant,
    /// Fetches of many partitions, in one statement.
    pub(crate) fetches: Gather<FetchRequest, Page>,
    /// One look at a time for numbers that were given a second time.
    pub(crate) backward_looks: tokio::sync::Mutex<()>,
    /// Looks for what is due, likewise.
    pub(crate) looks: Gather<(Lease, DestinationId), Option<Duration>>,
    /// Looks for what is scheduled, likewise.
    pub(crate) schedules: Gather<Lease, Option<Duration>>,
    /// Saves that only move cursors, likewise.
    pub(crate) saves: Gather<settle::Save, ()>,
    /// What is in memory of the tables themselves.
    pub(crate) maintained: Maintained,
    /// Listens for commits.
    pub(crate) watch: wake::Watch,
    /// The application's own table that is served in place of the outbox.
    pub(crate) beside: own::Beside,
}

impl PostgresStore {
    /// A store at an address like `postgres://user:password@host:5432/database`. Nothing is connected
    /// before the first call.
    ///
    /// `sslmode` means what it means elsewhere: `prefer`, the default, and `require` encrypt without asking
    /// who answers; `verify-full` asks, by the public roots or those in `sslrootcert=PATH`. `sslcert=PATH`
    /// and `sslkey=PATH` are shown to the server. With several hosts, `target_session_attrs=read-write`
    /// finds the primary.
    ///
    /// # Errors
    /// `Config` if it is no such address, or a file that it names cannot be read. The error does not repeat
    /// the address.
    pub fn new(url: &str) -> Result<PostgresStore> {
        PostgresStore::with(url, Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`PostgresStore::new`].
    pub fn with(url: &str, options: Options) -> Result<PostgresStore> {
        Ok(PostgresStore::at(Address::parse(url)?, options))
    }

    /// A store whose address is asked for at each connection, because its password may change while the
    /// program runs. The closure reads a file or a variable; it must not take long.
    ///
    /// # Errors
    /// As [`PostgresStore::new`], of the address as it is now, and whatever the closure says.
    pub fn with_address(
        address: impl Fn() -> Result<String> + Send + Sync + 'static,
        options: Options,
    ) -> Result<PostgresStore> {
        Ok(PostgresStore::at(Address::again(Arc::new(address))?, options))
    }

    fn at(address: Address, options: Options) -> PostgresStore {
        let texts = Arc::new(Texts::new(options.names.clone()));
        let sessions = Sessions::new(
            address,
            texts,
            options.pooler,
            options.statement_deadline,
            options.transactions_max,
        );
        PostgresStore {
            inner: Arc::new(Inner {
                sessions,
                options,
                remembered: Mutex::default(),
                born: std::time::Instant::now(),
                fetches: Gather::default(),
                backward_looks: tokio::sync::Mutex::default(),
                looks: Gather::default(),
                schedules: Gather::default(),
                saves: Gather::default(),
                maintained: Maintained::default(),
                watch: wake::Watch::default(),
                beside: own::Beside::default(),
            }),
        }
    }

    /// Checks the database as [`open`](OutboxSource::open) does, for who only looks at it: one that cannot be written to
    /// is taken. Says whether it can.
    ///
    /// # Errors
    /// As there, but for `ReadOnly`.
    pub async fn open_to_read(&self) -> Result<bool> {
        open::open_to_read(self).await
    }

    /// Tells relays of commits, from a session of its own: for applications in whose process the store is.
    pub fn nudger(&self) -> Nudger {
        Nudger::of(self.sessions().address().clone(), self.names().clone())
    }

    /// What the tables are called.
    pub fn names(&self) -> &Names {
        &self.inner.options.names
    }

    /// Host and database, without user and password.
    pub fn name(&self) -> &str {
        self.inner.sessions.address().name()
    }

    pub(crate) fn maintained(&self) -> &Maintained {
        &self.inner.maintained
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }
}

impl OutboxSource for PostgresStore {
    fn capabilities(&self) -> SourceCapabilities {
        let mut can = SourceCapabilities::least();
        can.overlapping_writers = true;
        can.many_destinations = true;
        can.many_partitions = true;
        can.scheduled = true;
        can.wakes = self.sessions().way().ownership() != Ownership::Shared;
        can.refuses_malformed = true;
        can.ranges = true;
        can
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        Box::pin(open::open(self))
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        Box::pin(destination::register(self, definitions))
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        Box::pin(destination::apply(self, change))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        Box::pin(destination::list(self))
    }

    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(lease::report(self, relay, hindrances))
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(lease::acquire(self, request))
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(async move {
            let renewed = lease::renew(self, request).await;
            maintain::when_due(self);
            renewed
        })
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(lease::release(self, leases))
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(load::load(self, lease, destination))
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(load::head(self, lease))
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(fetch::fetch(self, request))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(settle::settle(self, settlement))
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        Box::pin(due::due(self, request))
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(schedule::admit(self, lease, rows_max))
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        Box::pin(carry_out::carry_out(self, request))
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        Box::pin(retire::retirable(self, request))
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        Box::pin(retire::retire(self, request))
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        Box::pin(due::counts(self, destination))
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        Box::pin(wake::wake(self))
    }
}
