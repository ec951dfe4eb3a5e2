//! What the tests share: a fresh schema with the tables, a relay's first calls on it, and a client.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Granted};
use postrider_core::source::OutboxSource;
use postrider_core::{Destination, DestinationId, RelayId, Route, Template};
use postrider_postgres::{Names, Nudger, Options, Pooler, PostgresStore, Setup, init};
use postrider_testkit::cluster::Cluster;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::pool::{self, Kind};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The server's address, or nothing with the reason printed: then the test ends at once.
pub(crate) fn url() -> Option<String> {
    match postrider_testkit::services::postgres() {
        Ok(url) => Some(url),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// The server of the system's packages.
pub(crate) const USUAL: u8 = 0;
/// PostgreSQL's current major.
pub(crate) const CURRENT: u8 = 1;

/// One of the servers, or the reason why it is not there.
pub(crate) fn server(which: u8) -> Result<String, String> {
    match which {
        USUAL => postrider_testkit::services::postgres(),
        _ => postrider_testkit::services::url("pg18"),
    }
}

/// A fresh schema with the tables, dropped with this value.
pub(crate) struct Fresh {
    pub(crate) url: String,
    pub(crate) names: Names,
    /// How the store is used, and from where.
    pub(crate) pooler: Pooler,
    pub(crate) store_url: String,
    nudger: Nudger,
    /// What it is, if it is borrowed.
    lent: Option<Kind>,
    /// A session that nobody uses now.
    idle: Mutex<Option<Client>>,
}

impl Fresh {
    /// A schema with tables for so many partitions, borrowed; `None` where there is no server.
    pub(crate) async fn new(partitions: u16) -> Option<Fresh> {
        Fresh::beside(partitions, "").await
    }

    /// The same, with tables of an application's beside Postrider's.
    pub(crate) async fn beside(partitions: u16, beside: &'static str) -> Option<Fresh> {
        let kind = Kind { url: url()?, partitions, pooled: false, beside };
        Some(Fresh::lent(kind).await)
    }

    /// A schema that nobody had before, and nobody has afterwards: for tests of the tables themselves.
    pub(crate) async fn made(partitions: u16) -> Option<Fresh> {
        let fresh = Fresh::empty()?;
        init(&fresh.url, &fresh.setup(partitions)).await.expect("the tables are made");
        Some(fresh)
    }

    /// The same with the destination `a`: for who reads, and needs no lease for it.
    pub(crate) async fn read_for_a(partitions: u16) -> Option<Fresh> {
        let fresh = Fresh::made(partitions).await?;
        fresh.store().register(&[destination("a")]).await.expect("register");
        Some(fresh)
    }

    /// The default names on a server of the test's own.
    pub(crate) async fn on(cluster: &Cluster, partitions: u16) -> Fresh {
        let fresh = Fresh::at(&cluster.url(), Names::default());
        init(&fresh.url, &fresh.setup(partitions)).await.expect("the tables are made");
        fresh
    }

    /// A borrowed schema that is as a new one.
    pub(crate) async fn lent(kind: Kind) -> Fresh {
        let (names, client) = pool::borrow(&kind).await;
        let mut fresh = Fresh::at(&pool::named(&kind.url, &names), names);
        fresh.lent = Some(kind);
        fresh.keep(client);
        fresh
    }

    /// A name for a schema that does not exist yet.
    pub(crate) fn empty() -> Option<Fresh> {
        let schema = format!("t{}", &Uuid::now_v7().simple().to_string()[4..]);
        let names = Names::new(&schema, "outbox", "inbox").expect("a valid name");
        Some(Fresh::at(&url()?, names))
    }

    /// A schema that does not exist yet, at an address.
    pub(crate) fn at(url: &str, names: Names) -> Fresh {
        let nudger = Nudger::named(url, names.clone()).expect("an address");
        let (url, store_url) = (url.to_owned(), url.to_owned());
        Fresh {
            url,
            names,
            pooler: Pooler::Auto,
            store_url,
            nudger,
            lent: None,
            idle: Mutex::default(),
        }
    }

    /// Says that an application has committed.
    pub(crate) fn committed(&self) {
        self.nudger.committed();
    }

    pub(crate) fn setup(&self, partitions: u16) -> Setup {
        Setup { names: self.names.clone(), partitions: Some(partitions), ..Setup::default() }
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.names = self.names.clone();
        options.pooler = self.pooler;
        options
    }

    pub(crate) fn store(&self) -> PostgresStore {
        PostgresStore::with(&self.store_url, self.options()).expect("a store")
    }

    /// The address with one more parameter.
    pub(crate) fn url_with(&self, parameter: &str) -> String {
        pool::with(&self.url, parameter)
    }

    /// A connection of an application.
    pub(crate) async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// A session for one statement or transaction, as a new one, which is most of their time: the one that was
    /// [kept](Self::keep), if it is free.
    pub(crate) async fn session(&self) -> Client {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        match idle {
            // Refused in a transaction that somebody left open.
            Some(client) if client.simple_query("discard all").await.is_ok() => client,
            _ => self.connect().await,
        }
    }

    pub(crate) fn keep(&self, client: Client) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// A statement with the names in their places.
    pub(crate) fn sql(&self, statement: &str) -> String {
        self.names.render(statement)
    }

    /// Runs statements, with names in their places.
    pub(crate) async fn run(&self, statements: &str) {
        let client = self.session().await;
        client.batch_execute(&self.sql(statements)).await.expect("they run");
        self.keep(client);
    }

    /// One number out of the database.
    pub(crate) async fn number(&self, statement: &str) -> i64 {
        let client = self.session().await;
        let number = client.query_one(&self.sql(statement), &[]).await.expect("one row").get(0);
        self.keep(client);
        number
    }

    /// A store with the destination `a`, and the lease of partition 0.
    pub(crate) async fn relay(&self) -> (PostgresStore, postrider_core::Lease) {
        let store = self.store();
        store.open().await.expect("open");
        store.register(&[destination("a")]).await.expect("register");
        let lease = acquire(&store, LONG).await.expect("the lease is free").lease;
        (store, lease)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(kind) = self.lent.take() {
            return pool::give_back(kind, self.names.clone());
        }
        let (url, drop) = (self.url.clone(), self.sql("drop schema if exists {schema} cascade"));
        // A test's runtime may be ending; a thread with one of its own can wait.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    let client = connect(&url).await;
                    _ = client.batch_execute("set lock_timeout = '5s'").await;
                    _ = client.batch_execute(&drop).await;
                });
            }
        });
        _ = cleaner.join();
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

pub(crate) fn id(name: &str) -> DestinationId {
    DestinationId::new(name).expect("a name")
}

pub(crate) fn destination(name: &str) -> Destination {
    let topic: Template = "orders".parse().expect("a template");
    Destination::new(id(name), "local", vec![Route::all(topic)])
}

/// Waits until somebody waits for another transaction of this schema's.
pub(crate) async fn until_one_waits(fresh: &Fresh) {
    let waiting = format!(
        "select count(*) from pg_stat_activity
        where wait_event_type = 'Lock' and query like '%{}%' and pid <> pg_backend_pid()",
        fresh.names.schema()
    );
    while fresh.number(&waiting).await == 0 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn acquire(store: &PostgresStore, lease_duration: Duration) -> Option<Granted> {
    let request = AcquireRequest {
        owner: RelayId::mint(),
        lease_duration,
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    store.acquire(&request).await.expect("acquire").granted.pop()
}
