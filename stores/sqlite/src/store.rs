//! The store as the relay sees it: two threads, one that reads and one that writes.

use std::path::Path;
use std::sync::Arc;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, OutboxSource, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities,
    StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Error, ErrorKind, Event, Hindrance, Lease,
    RelayId, Result,
};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::During;
use crate::file::StoreFile;
use crate::wake::Watch;
use crate::worker::Worker;
use crate::{
    carry_out, destination, due, lease, operator, page, retire, schedule, schema, settle, sql,
    waiting,
};

/// A relay's and a consumer's handle on one database file.
///
/// It owns a thread that writes and one that reads, each with a connection of its own
/// (`synchronous = FULL`, write-ahead log, a busy timeout of 2 s), and, once [`wake`] was called,
/// one that watches the file. Writes are one `BEGIN IMMEDIATE` transaction each, begun and ended on
/// the thread, so that no lock is ever held while something is awaited. Dropping the store ends the
/// threads.
///
/// **Durability.** What `settle` wrote survives a crash of process and machine when it returns. What
/// `fetch` returns is durable: the write-ahead log is flushed first, so that a commit which a power
/// cut takes back was never published.
/// **The file.** If the file at the path is no longer the one that was opened, everything answers
/// `Unavailable` with [`Code::StoreVanished`](postrider_core::Code::StoreVanished) until
/// [`open`](OutboxSource::open) accepts what is there.
///
/// [`wake`]: OutboxSource::wake
pub struct SqliteStore {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) writer: Worker,
    reader: Worker,
    watch: Watch,
    /// How far retirement has looked.
    retirement: Arc<retire::Place>,
}

impl SqliteStore {
    /// A store on a database file. Nothing is opened, and nothing created, before the first call.
    ///
    /// # Errors
    /// `Config` if the path cannot be made absolute; `Unavailable` if no thread can be started.
    pub fn new(path: impl AsRef<Path>) -> Result<SqliteStore> {
        let file = Arc::new(StoreFile::new(path.as_ref())?);
        Ok(SqliteStore {
            writer: Worker::start("writer", Arc::clone(&file))?,
            reader: Worker::start("reader", Arc::clone(&file))?,
            watch: Watch::new(Arc::clone(&file)),
            retirement: Arc::default(),
            file,
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Runs a write in a transaction that has the write lock from its first statement.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let own = self.watch.own_write();
        self.writer
            .call(operation, move |connection| {
                let _own = own;
                let tx = connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)
                    .during(operation)?;
                let done = work(&tx)?;
                tx.commit().during(operation)?;
                Ok(done)
            })
            .await
    }

    /// Runs a read on one snapshot of the database.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.reader
            .call(operation, move |connection| {
                let tx = connection
                    .transaction_with_behavior(TransactionBehavior::Deferred)
                    .during(operation)?;
                work(&tx)
            })
            .await
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.file.path()).finish_non_exhaustive()
    }
}

/// The database's clock, in milliseconds since 1970.
pub(crate) fn now(connection: &Connection) -> Result<i64> {
    connection
        .prepare_cached(sql::META_NOW)
        .and_then(|mut statement| statement.query_row((), |row| row.get(0)))
        .during("read clock")
}

/// A number as SQLite stores it. Ours begin at 0 and never come near the end.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number out of SQLite, which is not negative where the tables were not tampered with.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A span in milliseconds, rounded up: what is waited for must not come early.
pub(crate) fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 4)
}

/// The span from one moment of the database's clock to another, or zero.
pub(crate) fn span(from: i64, to: i64) -> std::time::Duration {
    std::time::Duration::from_millis(unsigned(to.saturating_sub(from)))
}

/// Checks that the file is a store that serves this program, and can be written to.
fn open(connection: &mut Connection, name: String) -> Result<StoreFacts> {
    let schema = schema::check(connection)?;
    let partitions = schema::read_number(connection, "partitions")?;
    match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => {
            tx.execute(sql::META_TOUCH, ()).during("open store")?;
            tx.rollback().during("open store")?;
        }
        // Somebody else writes at this moment, so it can be written to.
        Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {}
        Err(e) => return Err(crate::error::of_sqlite("open store", e)),
    }
    Ok(StoreFacts {
        name,
        partitions: u16::try_from(partitions).map_err(|_| {
            Error::new(ErrorKind::Corrupt, "open store").message("too many partitions")
        })?,
        schema,
    })
}

impl OutboxSource for SqliteStore {
    fn capabilities(&self) -> SourceCapabilities {
        let mut can = SourceCapabilities::least();
        can.many_destinations = true;
        can.scheduled = true;
        can.wakes = true;
        can.refuses_malformed = true;
        can.unique_ids = true;
        can.ranges = true;
        can
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        Box::pin(async move {
            self.file.adopt();
            let name = format!("sqlite:{}", self.file.name());
            self.writer.call("open store", move |connection| open(connection, name)).await
        })
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        let definitions = definitions.to_vec();
        Box::pin(async move {
            // One that has definitions is not written to: a relay starts also while another writer is at work for long.
            if self.read("register", |tx| destination::is_empty(tx)).await? {
                self.write("register", move |tx| destination::register(tx, &definitions)).await?;
            }
            Ok(())
        })
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        let change = change.clone();
        Box::pin(self.write("apply", move |tx| destination::apply(tx, &change)))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        Box::pin(self.read("destinations", |tx| destination::list(tx)))
    }

    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        let (relay, told) = (relay.clone(), Hindrance::write(hindrances));
        Box::pin(self.write("report", move |tx| lease::report(tx, &relay, &told)))
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        let (request, file) = (request.clone(), Arc::clone(&self.file));
        Box::pin(self.write("acquire", move |tx| {
            // A copy of production must not send its events to partners.
            operator::identity::check(tx, &file)?;
            lease::acquire(tx, &request)
        }))
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        let request = request.clone();
        Box::pin(self.write("renew", move |tx| lease::renew(tx, &request)))
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        let leases = leases.to_vec();
        Box::pin(self.write("release", move |tx| lease::release(tx, &leases)))
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        let (partition, destination) = (lease.partition, destination.clone());
        Box::pin(self.read("load", move |tx| waiting::load(tx, partition, &destination)))
    }

    fn head<'a>(&'a self, _: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(self.read("head", |tx| Ok(Cursor::number(page::sequence(tx)?))))
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        let (request, file) = (request.clone(), Arc::clone(&self.file));
        Box::pin(self.read("fetch", move |tx| page::fetch(tx, &request, &file)))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        let settlement = settlement.clone();
        Box::pin(self.write("settle", move |tx| settle::settle(tx, &settlement)))
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        let question = request.clone();
        Box::pin(async move {
            let found = self.read("due", move |tx| due::due(tx, &question)).await?;
            if !found.unreadable.is_empty() {
                let (lease, destination) = (request.lease.clone(), request.destination.clone());
                self.write("due", move |tx| {
                    due::bury_unreadable(tx, &lease, &destination, &found.unreadable)
                })
                .await?;
            }
            Ok(found.due)
        })
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        let lease = lease.clone();
        Box::pin(async move {
            // Most calls find nothing: they need no write lock.
            let asker = lease.clone();
            let idle = self.read("admit", move |tx| schedule::idle(tx, &asker)).await?;
            match idle {
                Some(nothing) => Ok(nothing),
                None => self.write("admit", move |tx| schedule::admit(tx, &lease, rows_max)).await,
            }
        })
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        let (question, request) = (request.clone(), request.clone());
        Box::pin(async move {
            // Most calls find nothing: they need no write lock.
            match self.read("carry out", move |tx| carry_out::idle(tx, &question)).await? {
                Some(nothing) => Ok(nothing),
                None => self.write("carry out", move |tx| carry_out::carry_out(tx, &request)).await,
            }
        })
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        let (request, place) = (request.clone(), Arc::clone(&self.retirement));
        Box::pin(self.read("retire", move |tx| retire::retirable(tx, &request, &place)))
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        let (question, request) = (request.clone(), request.clone());
        let place = Arc::clone(&self.retirement);
        Box::pin(async move {
            // What may go is found without the write lock, and asked again under it.
            let found = self.read("retire", move |tx| retire::find(tx, &question, &place)).await?;
            match found.nothing() {
                Some(nothing) => Ok(nothing),
                None => self.write("retire", move |tx| retire::retire(tx, &request, &found)).await,
            }
        })
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        let destination = destination.clone();
        Box::pin(self.read("counts", move |tx| waiting::counts(tx, &destination)))
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.watch.wait())
    }
}
