//! A shop's outbox in a file, and a relay of this process that carries it to destinations.

use std::sync::Arc;
use std::time::Instant;

use postrider_core::operate::{Filter, Operator as _, PageRequest, WaitingView};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    Broker, Destination, DestinationId, EventId, NewEvent, OutboxSource as _, Start,
};
use postrider_relay::{Ending, Relay, RelayHandle};
use postrider_sqlite::{Outbox, SqliteStore};
use tempfile::TempDir;

use crate::stage::PATIENCE;

pub(crate) struct Shop {
    folder: TempDir,
}

impl Shop {
    pub(crate) fn open() -> Shop {
        let folder = TempDir::with_prefix("postrider-shop-").unwrap();
        let shop = Shop { folder };
        postrider_sqlite::init(shop.file()).unwrap();
        shop
    }

    fn file(&self) -> String {
        self.folder.path().join("shop.db").display().to_string()
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::new(self.file()).unwrap()
    }

    /// Commits events, in one transaction.
    pub(crate) fn commit(&self, events: &[NewEvent]) -> Vec<EventId> {
        let mut connection = postrider_sqlite::connect(self.file()).unwrap();
        let tx = connection.transaction().unwrap();
        Outbox::new().enqueue_many(&tx, events).unwrap();
        tx.commit().unwrap();
        events.iter().map(|event| event.event().id).collect()
    }

    /// Adds a destination that begins with the oldest event.
    pub(crate) async fn add(&self, definition: Destination) {
        let put = vec![(definition, Start::Beginning)];
        let change = DefinitionChange { expected: None, put, remove: Vec::new() };
        let store = self.store();
        store.open().await.unwrap();
        postrider_core::OutboxSource::apply(&store, &change).await.unwrap();
    }

    /// A relay that goes on until it is told to stop.
    pub(crate) async fn relay(
        &self,
        destinations: impl IntoIterator<Item = (Destination, Arc<dyn Broker>)>,
    ) -> RelayHandle {
        let mut relay = Relay::builder(Arc::new(self.store())).presence(false);
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

pub(crate) fn id(name: &str) -> DestinationId {
    DestinationId::new(name).unwrap()
}

/// Stops a relay, which has to end well.
pub(crate) async fn stop(relay: RelayHandle) {
    relay.drain();
    let report = relay.stopped().await;
    assert_eq!(report.ending, Some(Ending::Drained), "{report:?}");
}
