//! An orders service on DynamoDB, a relay to EventBridge, a queue, and a worker that charges each order once.
//!
//! Everything runs in this process against emulators, in tables, a bus, and a queue of its own, which are
//! removed at the end.

mod cloud;
mod orders;
mod payments;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use postrider::aws::{AwsSettings, EventBridgeBroker, SqsSubscription, SubscriptionSettings};
use postrider::dynamodb::{Connection, DynamoStore, Inbox, InboxOptions, Names, Settings, Setup};
use postrider::inbox::{Consumer, ConsumerHandle, Leased};
use postrider::relay::{Relay, RelayHandle};
use postrider::{Destination, DestinationId, HandlerName, Route};

use crate::cloud::Cloud;
pub use crate::orders::Orders;
pub use crate::payments::Provider;

/// Whatever went wrong: an example stops at the first error.
pub type Failure = Box<dyn Error + Send + Sync>;

/// How long a claim lasts without a heartbeat. A copy that comes while its event is claimed is looked at again after
/// this.
const LEASE: Duration = Duration::from_secs(5);

/// How long a queue hides a message that a worker has. The worker prolongs it while it is at work.
const VISIBILITY: Duration = Duration::from_secs(30);

/// Everything that runs.
pub struct Shop {
    cloud: Cloud,
    /// The service that takes orders.
    pub orders: Orders,
    /// Who charges.
    pub provider: Arc<Provider>,
    relay: RelayHandle,
    workers: Vec<ConsumerHandle>,
}

impl Shop {
    /// Makes tables, bus, and queues, and starts the relay and two workers.
    ///
    /// # Errors
    /// If a server does not answer, or refuses something.
    pub async fn open(dynamodb: &str, aws: &str) -> Result<Shop, Failure> {
        let name = format!("orders-{}", &uuid::Uuid::now_v7().simple().to_string()[16..]);
        let names = Names::with_prefix(&format!("{name}-"));
        let connection = Connection::new(Settings::at(dynamodb, names))?;
        postrider::dynamodb::init(&connection, &Setup::default()).await?;
        let orders = Orders::open(&connection, &format!("{name}-orders")).await?;
        let cloud = Cloud::make(aws, &name, connection.clone()).await?;

        let mut settings = AwsSettings::new(cloud::REGION);
        settings.endpoint = Some(aws.to_owned());
        settings.credentials = cloud::credentials();
        let broker = EventBridgeBroker::new(settings.clone())?;
        let route = Route::all(name.parse()?);
        let destination = Destination::new(DestinationId::new("bus")?, "eventbridge", vec![route]);
        let relay = Relay::builder(Arc::new(DynamoStore::new(connection.clone())))
            .destination(destination, Arc::new(broker))
            .start()
            .await?;

        let provider = Arc::new(Provider::default());
        let inbox = Arc::new(Inbox::new(connection, InboxOptions::default())?);
        let mut workers = Vec::new();
        for _ in 0..2 {
            let mut queue = SubscriptionSettings::new(&name);
            queue.visibility = VISIBILITY;
            let subscription = SqsSubscription::open(settings.clone(), queue).await?;
            let charging = Leased::builder(
                HandlerName::new("charging")?,
                Arc::clone(&inbox) as Arc<dyn postrider::InboxStore>,
                payments::handler(Arc::clone(&provider)),
            );
            let receiver = Arc::new(charging.lease(LEASE).build()?);
            workers.push(Consumer::builder(Arc::new(subscription)).receiver(receiver).start()?);
        }
        Ok(Shop { cloud, orders, provider, relay, workers })
    }

    /// How many messages the workers have dealt with: acted on, or known for copies.
    pub fn messages(&self) -> (u64, u64) {
        let stats = self.workers.iter().map(ConsumerHandle::stats);
        stats.fold((0, 0), |(done, copies), one| (done + one.done, copies + one.duplicates))
    }

    /// Finishes what is under way, stops, and removes what was made.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub async fn close(self) -> Result<(), Failure> {
        self.relay.drain();
        for worker in self.workers {
            worker.drain(Duration::from_secs(5));
            worker.stopped().await;
        }
        self.relay.stopped().await;
        self.cloud.remove(&self.orders).await
    }
}
