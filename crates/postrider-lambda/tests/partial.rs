//! What the answer names: the first record that is not settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider_core::OutboxSource as _;
use postrider_core::waiting::Counts;
use postrider_core::{BoxFuture, Broker, BrokerCapabilities, ErrorKind, Outcome, Outgoing, Result};
use postrider_dynamodb::{DynamoStore, Invocation, Options, Passing};
use postrider_testkit::memory::MemoryBroker;
use postrider_testkit::proxy::Proxy;

use crate::fresh::{Fresh, LONG, batch, record, sequence};

/// A broker that answers no more after so many events.
pub(crate) struct Until {
    broker: MemoryBroker,
    left: AtomicUsize,
}

impl Until {
    pub(crate) fn new(broker: &MemoryBroker, events: usize) -> Until {
        Until { broker: broker.clone(), left: AtomicUsize::new(events) }
    }
}

impl Broker for Until {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async {
            let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(batch.len())
            });
            if taken.is_err() {
                return std::future::pending().await;
            }
            self.broker.publish(batch).await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// R044: everything is published in its key's order and marked, and the function leaves neither a lease nor a heartbeat.
#[tokio::test]
async fn records_are_published_in_order_and_nothing_stays_behind() {
    let Some(fresh) = Fresh::new(2).await else { return };
    fresh.write("1", 5).await;
    fresh.write("2", 5).await;
    let function = fresh.function(Arc::new(fresh.broker.clone()));
    let answer = function.publish(&fresh.records().await, LONG).await.unwrap();
    assert!(answer.failures.0.is_empty(), "{answer:?}");
    assert_eq!((answer.delivered, answer.left.len(), answer.others), (10, 0, 0));
    assert_eq!(fresh.pending().await, 0);
    let items = fresh.items().await;
    for key in ["1", "2"] {
        let wanted: Vec<_> = items
            .iter()
            .filter(|item| item["aggregate_id"].as_s().unwrap() == key)
            .map(|item| item["id"].as_s().unwrap().clone())
            .collect();
        let published = fresh.broker.received("orders");
        let came = published.iter().filter(|event| &*event.aggregate_id == key);
        assert_eq!(came.map(|event| event.id.to_string()).collect::<Vec<_>>(), wanted);
    }
    assert!(fresh.control("relay#").await.is_empty(), "no heartbeat stays");
    let leases = fresh.control("lease#").await;
    assert!(leases.iter().all(|lease| !lease.contains_key("owner")), "{leases:?}");
    // The service may send a batch again: everything in it is settled.
    let again = function.publish(&fresh.records().await, LONG).await.unwrap();
    assert_eq!((again.failures.0.len(), again.delivered), (0, 0));
}

/// The lowest number that is not settled is named, and what was published before it is not sent again when the service
/// begins with it.
#[tokio::test]
async fn the_first_that_is_not_settled_is_named() {
    let Some(fresh) = Fresh::new(1).await else { return };
    fresh.write("1", 3).await;
    let sound = fresh.function(Arc::new(fresh.broker.clone()));
    assert!(sound.publish(&fresh.records().await, LONG).await.unwrap().failures.0.is_empty());
    fresh.write("1", 3).await;
    let away = fresh.function(Arc::new(Until::new(&fresh.broker, 0)));
    let answer = away.publish(&fresh.records().await, LONG).await.unwrap();
    assert_eq!(answer.failures.0, [sequence(3)], "three of six");
    assert_eq!(fresh.pending().await, 3);
    let items = fresh.items().await;
    let rest = items.iter().enumerate().skip(3).map(|(index, item)| record(index, item));
    let answer = sound.publish(&batch(rest), LONG).await.unwrap();
    assert!(answer.failures.0.is_empty());
    assert_eq!(fresh.counts(), [1; 6]);
}

/// What fails by itself leaves the stream's order and waits in the store, its successors behind it; it does not hold the
/// shard up, and a sweep sends it when it is due.
#[tokio::test]
async fn what_fails_by_itself_waits_for_a_sweep() {
    let Some(fresh) = Fresh::new(1).await else { return };
    fresh.write("1", 6).await;
    let failing = fresh.function(Arc::new(Until::new(&fresh.broker, 3)));
    let answer = failing.publish(&fresh.records().await, LONG).await.unwrap();
    assert!(answer.failures.0.is_empty(), "{answer:?}");
    assert_eq!((fresh.counts(), fresh.control("0").await.len()), (vec![1; 3], 3));
    // How much waits is what a sweep says; a function that throws it away does not read for it.
    let mut options = Options::default();
    options.stream = false;
    let store = DynamoStore::with(fresh.connection.clone(), options);
    let names = fresh.connection.names();
    let invocation = Invocation::parse(&fresh.records().await, names).unwrap();
    let (told, swept) = (
        Passing::of(&store, &invocation).await.unwrap(),
        Passing::everywhere(&store, LONG).await.unwrap(),
    );
    let id = crate::fresh::destination().id;
    assert_ne!(swept.counts(&id).await.unwrap(), Counts::default());
    assert_eq!(told.counts(&id).await.unwrap(), Counts::default());
    let sound = fresh.function(Arc::new(fresh.broker.clone()));
    while sound.sweep(LONG).await.unwrap().waiting > 0 {}
    assert_eq!(fresh.counts(), [1; 6]);
    let sent = fresh.broker.received("orders");
    assert!(sent.is_sorted_by_key(|event| event.created_at), "in the key's order");
}

/// What is begun has to be ended in time, so a function with too little of it begins nothing.
#[tokio::test]
async fn what_has_no_time_is_refused_and_comes_again() {
    let Some(fresh) = Fresh::new(1).await else { return };
    fresh.write("1", 1).await;
    let function = fresh.function(Arc::new(fresh.broker.clone()));
    let short = postrider_lambda::RESERVE;
    let error = function.publish(&fresh.records().await, short).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!((fresh.pending().await, fresh.counts().len()), (1, 0), "nothing was begun");
}

/// A broker at whose first event the store's network goes away, and that never answers.
struct Cuts {
    broker: MemoryBroker,
    network: Proxy,
}

impl Broker for Cuts {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, _: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        self.network.cut(true);
        Box::pin(std::future::pending())
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Where nobody answers any more, neither broker nor store, the answer is there in time, and names the first record.
#[tokio::test]
async fn the_answer_is_there_in_time_whoever_does_not_answer() {
    let Some(fresh) = Fresh::new(1).await else { return };
    fresh.write("1", 2).await;
    let network = Proxy::to(fresh.port()).await;
    let port = network.port;
    let cuts = Cuts { broker: fresh.broker.clone(), network };
    let function = fresh.function_through(port, Arc::new(cuts));
    let remaining = Duration::from_secs(30);
    let since = Instant::now();
    let answer = function.publish(&fresh.records().await, remaining).await.unwrap();
    assert!(since.elapsed() < remaining, "{:?}", since.elapsed());
    assert_eq!(answer.failures.0, [sequence(0)], "everything comes again");
    assert_eq!(fresh.pending().await, 2);
}
