//! A shop's outbox in a file or a database, and a relay of this process that carries it to destinations.

use std::sync::Arc;
use std::time::Instant;

use postrider_core::operate::{Filter, Operator, PageRequest, WaitingView};
use postrider_core::source::DefinitionChange;
use postrider_core::{Broker, Destination, DestinationId, EventId, NewEvent, OutboxSource, Start};
use postrider_postgres::{PostgresStore, Setup};
use postrider_relay::{Ending, Relay, RelayHandle};
use postrider_sqlite::SqliteStore;
use postrider_testkit::cluster::Cluster;
use tempfile::TempDir;

use crate::outbox::{Store, connect};
use crate::stage::PATIENCE;

/// What relays read and operators look into, whichever store it is.
pub(crate) trait Both: OutboxSource + Operator {}

impl<S: OutboxSource + Operator> Both for S {}

pub(crate) struct Shop(Place);

enum Place {
    /// The folder of a file.
    File(TempDir),
    Server(Cluster),
}

impl Shop {
    /// One in this store; `None` where there is no server for it, which is said.
    pub(crate) async fn open(store: Store) -> Option<Shop> {
        let shop = Shop(match store {
            Store::Sqlite => Place::File(TempDir::with_prefix("postrider-shop-").unwrap()),
            Store::Postgres => Place::Server(Cluster::start(&["fsync = off"]).await?),
        });
        match &shop.0 {
            Place::File(folder) => postrider_sqlite::init(file(folder)).unwrap(),
            Place::Server(cluster) => {
                let setup = Setup { partitions: Some(4), ..Setup::default() };
                postrider_postgres::init(&cluster.url(), &setup).await.unwrap();
            }
        }
        Some(shop)
    }

    pub(crate) fn store(&self) -> Arc<dyn Both> {
        match &self.0 {
            Place::File(folder) => Arc::new(SqliteStore::new(file(folder)).unwrap()),
            Place::Server(cluster) => Arc::new(PostgresStore::new(&cluster.url()).unwrap()),
        }
    }

    /// Commits events, in one transaction.
    pub(crate) async fn commit(&self, events: &[NewEvent]) -> Vec<EventId> {
        match &self.0 {
            Place::File(folder) => {
                let mut connection = postrider_sqlite::connect(file(folder)).unwrap();
                let tx = connection.transaction().unwrap();
                postrider_sqlite::Outbox::new().enqueue_many(&tx, events).unwrap();
                tx.commit().unwrap();
            }
            Place::Server(cluster) => {
                let mut client = connect(&cluster.url()).await;
                let tx = client.transaction().await.unwrap();
                postrider_postgres::Outbox::new().enqueue_many(&tx, events).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
        events.iter().map(|event| event.event().id).collect()
    }

    /// Adds a destination that begins with the oldest event.
    pub(crate) async fn add(&self, definition: Destination) {
        let put = vec![(definition, Start::Beginning)];
        let change = DefinitionChange { expected: None, put, remove: Vec::new() };
        let store = self.store();
        store.open().await.unwrap();
        OutboxSource::apply(&*store, &change).await.unwrap();
    }

    /// A relay that goes on until it is told to stop.
    pub(crate) async fn relay(
        &self,
        destinations: impl IntoIterator<Item = (Destination, Arc<dyn Broker>)>,
    ) -> RelayHandle {
        let mut relay = Relay::builder(self.store()).presence(false);
        for (definition, broker) in destinations {
            relay = relay.destination(definition, broker);
        }
        relay.start().await.unwrap()
    }

    /// What waits for a destination, by its numbers, as soon as it is what is expected.
    pub(crate) async fn waiting(
        &self,
        expected: impl Fn(&[WaitingView]) -> bool,
    ) -> Vec<WaitingView> {
        let (store, begun) = (self.store(), Instant::now());
        loop {
            let rows = store.waiting(&Filter::default(), &PageRequest::default()).await.unwrap();
            if expected(&rows.rows) {
                return rows.rows;
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}", rows.rows);
            // waits: another task writes them
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

fn file(folder: &TempDir) -> String {
    folder.path().join("shop.db").display().to_string()
}

pub(crate) fn id(name: &str) -> DestinationId {
    DestinationId::new(name).unwrap()
}

/// Stops a relay, which has to end well.
pub(crate) async fn stop(relay: RelayHandle) {
    relay.drain();
    let report = relay.stopped().await;
    assert_eq!(report.ending, Some(Ending::Drained), "{report:?}");
}
