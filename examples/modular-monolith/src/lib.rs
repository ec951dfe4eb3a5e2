//! A modular monolith: modules that talk through events, wired to one database file and one broker
//! file.

pub mod billing;
pub mod orders;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider::inbox::{Consumer, ConsumerHandle};
use postrider::local::{LocalBroker, SubscribeOptions};
use postrider::relay::{Relay, RelayHandle};
use postrider::sqlite::{SqliteStore, Transactional, init};
use postrider::{Destination, DestinationId, Route};

/// Everything that runs.
pub struct Monolith {
    relay: RelayHandle,
    consumers: Vec<ConsumerHandle>,
}

impl Monolith {
    /// Creates the tables where they are missing, and starts the relay and the modules' handlers.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub async fn start(folder: &Path) -> Result<Monolith, Box<dyn Error>> {
        let file = folder.join("monolith.db");
        init(&file)?;
        orders::create_tables(&file)?;
        billing::create_tables(&file)?;

        let broker = LocalBroker::open(folder.join("queue.db"))?;
        let route = Route::all("{event_type}".parse()?);
        let destination = Destination::new(DestinationId::new("modules")?, "local", vec![route]);
        let relay = Relay::builder(Arc::new(SqliteStore::new(&file)?))
            .destination(destination, Arc::new(broker.clone()))
            .start()
            .await?;
        let consumers = vec![
            listen(&broker, "billing", "order.*", billing::handler(&file)?).await?,
            listen(&broker, "orders", "invoice.*", orders::handler(&file)?).await?,
        ];
        Ok(Monolith { relay, consumers })
    }

    /// Finishes what is under way, and stops.
    pub async fn stop(self) {
        self.relay.drain();
        for consumer in self.consumers {
            consumer.drain(Duration::from_secs(5));
            consumer.stopped().await;
        }
        self.relay.stopped().await;
    }
}

/// A module listens under its own name, so that each module hears every event.
async fn listen(
    broker: &LocalBroker,
    module: &str,
    topics: &str,
    handler: Transactional,
) -> postrider::Result<ConsumerHandle> {
    let subscription = broker.subscribe(module, topics, SubscribeOptions::default()).await?;
    Consumer::builder(Arc::new(subscription)).receiver(Arc::new(handler)).start()
}
