//! Shared by the tests: a broker in a temporary folder, and events that say which they are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{
    Broker, Delivery, Event, EventId, Format, Marks, Outcome, Outgoing, Payload, Subscription,
};
use postrider_local::{LocalBroker, LocalSubscription, SubscribeOptions};
use tempfile::TempDir;

/// A folder with a broker's file, and a handle on it.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) broker: LocalBroker,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let broker = LocalBroker::open(folder.path().join("queue.db")).unwrap();
        Fixture { folder, broker }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("queue.db")
    }

    /// A second handle, which shares nothing but the file: as another process would.
    pub(crate) fn other(&self) -> LocalBroker {
        LocalBroker::open(self.path()).unwrap()
    }

    pub(crate) async fn subscribe(&self, visibility: Duration) -> LocalSubscription {
        let options = SubscribeOptions { visibility, ..SubscribeOptions::default() };
        self.broker.subscribe("g", "orders", options).await.unwrap()
    }

    /// Publishes events of `key` to `orders`, numbered from 1 in their ids.
    pub(crate) async fn publish(&self, key: &str, numbers: std::ops::RangeInclusive<u128>) {
        let batch: Vec<_> = numbers.map(|n| outgoing(event(n, key))).collect();
        publish_all(&self.broker, &batch).await;
    }
}

pub(crate) fn event(number: u128, key: &str) -> Event {
    Event::new(EventId::from_u128(number), "order", key, "order.placed")
}

pub(crate) fn outgoing(event: Event) -> Outgoing {
    Outgoing {
        event: Arc::new(event),
        topic: Arc::from("orders"),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

/// An event whose payload claims to be JSON and is not.
pub(crate) fn not_encodable(number: u128, key: &str) -> Outgoing {
    let mut event = event(number, key);
    event.payload = Payload::Json(b"{".to_vec().into());
    outgoing(event)
}

pub(crate) async fn publish_all(broker: &LocalBroker, batch: &[Outgoing]) {
    let outcomes = broker.publish(batch).await.unwrap();
    assert!(outcomes.iter().all(|o| *o == Outcome::Acked), "{outcomes:?}");
}

pub(crate) fn number(delivery: &Delivery) -> u128 {
    delivery.event.as_ref().unwrap().id.as_u128()
}

pub(crate) fn numbers(deliveries: &[Delivery]) -> Vec<u128> {
    deliveries.iter().map(number).collect()
}

/// What is there at once: nothing if nothing comes within a few polls of the file.
pub(crate) async fn receive_now(subscription: &LocalSubscription, max: usize) -> Vec<Delivery> {
    tokio::time::timeout(Duration::from_millis(150), subscription.receive(max))
        .await
        .map_or_else(|_| Vec::new(), Result::unwrap)
}

pub(crate) async fn receive(subscription: &LocalSubscription, max: usize) -> Vec<Delivery> {
    tokio::time::timeout(Duration::from_secs(20), subscription.receive(max))
        .await
        .expect("something is delivered in time")
        .unwrap()
}

pub(crate) async fn stored(broker: &LocalBroker) -> Vec<u128> {
    let messages = broker.messages("orders").await.unwrap();
    messages.iter().map(|m| m.event.id.as_u128()).collect()
}
