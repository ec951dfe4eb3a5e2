//! Events of business items, with the whole engine: in a function, and in relays that are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, ErrorKind, EventId, Fault, Outcome, Outgoing, Result,
};
use postrider_dynamodb::{
    Derivation, DynamoStore, ITEM_VERSION_HEADER, Item, Mapping, Options, Stamp,
};
use postrider_relay::{Relay, RelayHandle};
use postrider_testkit::memory::MemoryBroker;

use crate::fresh::{Fresh, LEASE, LONG, batch, destination, record};

/// A broker that refuses every so many events for now, so that they wait.
struct Flaky {
    broker: MemoryBroker,
    sent: AtomicUsize,
    every: usize,
}

impl Broker for Flaky {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            for out in batch {
                let count = self.sent.fetch_add(1, Ordering::Relaxed);
                if count % self.every == self.every - 1 {
                    let fault = Fault::new(ErrorKind::Unavailable, "503");
                    outcomes.push(Outcome::Retry { after: None, fault });
                } else {
                    outcomes.extend(self.broker.publish(std::slice::from_ref(out)).await?);
                }
            }
            Ok(outcomes)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

fn deriving(fresh: &Fresh) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    options.derivation = Some(Derivation::declared(Mapping::new("order", "pk", "order.changed")));
    DynamoStore::with(fresh.connection.clone(), options)
}

/// Writes an order in a version; the id of the event that it is.
async fn write(fresh: &Fresh, order: &str, version: u64) -> EventId {
    let stamp = fresh.outbox.stamp(order, "ORDER", version).unwrap();
    let client = fresh.connection.tables().await;
    let update = client
        .update_item()
        .table_name(&fresh.connection.names().outbox)
        .key("pk", AttributeValue::S(order.to_owned()))
        .key("sk", AttributeValue::S("ORDER".to_owned()))
        .update_expression(format!("SET amount = :amount, {}", Stamp::SET))
        .set_expression_attribute_values(Some(stamp.values()))
        .expression_attribute_values(":amount", AttributeValue::N(version.to_string()));
    Box::pin(update.send()).await.unwrap();
    stamp.id()
}

/// R027, R048: a function is told of orders, new and changed, and publishes each in its newest version; marks and
/// deletions tell it of nothing; and where it derives no events, such records are none of its business.
#[tokio::test]
async fn a_function_publishes_business_items() {
    let Some(fresh) = Fresh::new(2).await else { return };
    write(&fresh, "1", 1).await;
    let old = fresh.business().await.remove(0);
    let ids = [write(&fresh, "1", 2).await, write(&fresh, "2", 1).await];
    let mut records: Vec<_> =
        fresh.business().await.iter().enumerate().map(|(at, item)| record(at + 1, item)).collect();
    records.iter_mut().for_each(|record| record["eventName"] = "MODIFY".into());
    records.insert(0, record(0, &old));
    let mut gone = record(9, &old);
    gone["eventName"] = "REMOVE".into();
    records.push(gone);
    let all = || batch(records.iter().cloned());
    let plain = fresh.function(Arc::new(fresh.broker.clone()));
    let answer = plain.publish(&all(), LONG).await.unwrap();
    assert_eq!((answer.delivered, answer.failures.0.len()), (0, 0));
    let function = fresh.function(Arc::new(fresh.broker.clone())).on(deriving(&fresh));
    let answer = function.publish(&all(), LONG).await.unwrap();
    assert!(answer.failures.0.is_empty(), "{answer:?}");
    assert_eq!((answer.delivered, answer.others), (2, 1));
    let mut came: Vec<EventId> = fresh.broker.received("orders").iter().map(|e| e.id).collect();
    came.sort();
    assert_eq!(came, ids);
    let again = function.publish(&all(), LONG).await.unwrap();
    assert_eq!((again.delivered, again.failures.0.len()), (0, 0), "everything is settled");
}

async fn relay(fresh: &Fresh, broker: &Arc<Flaky>) -> RelayHandle {
    let broker: Arc<dyn Broker> = Arc::<Flaky>::clone(broker);
    Relay::builder(Arc::new(deriving(fresh)))
        .destination(destination(), broker)
        .settings(postrider_relay::Settings::with_lease(LEASE))
        .presence(false)
        .start()
        .await
        .unwrap()
}

/// R027, INV-1, INV-3: orders are changed all the time, some attempts fail and wait, and relays are killed wherever
/// they are: in the end the newest version of every order was published, no order goes back to an older version, and
/// nothing came that was not written.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_version_of_every_item_arrives_whatever_is_killed() {
    const ORDERS: u64 = 6;
    const VERSIONS: u64 = 20;
    let Some(fresh) = Fresh::new(2).await else { return };
    let broker = Flaky { broker: fresh.broker.clone(), sent: AtomicUsize::new(0), every: 7 };
    let broker = Arc::new(broker);
    let mut written: BTreeMap<EventId, (u64, u64)> = BTreeMap::new();
    let mut newest: BTreeMap<u64, EventId> = BTreeMap::new();
    let mut running = relay(&fresh, &broker).await;
    for version in 1..=VERSIONS {
        for order in 0..ORDERS {
            let id = write(&fresh, &order.to_string(), version).await;
            written.insert(id, (order, version));
            newest.insert(order, id);
        }
        // waits: relays publish meanwhile, at other moments each time
        tokio::time::sleep(Duration::from_millis(7 * (version % 9))).await;
        if version % 10 == 5 {
            running.abort();
            running.stopped().await;
            running = relay(&fresh, &broker).await;
        }
    }
    let done = async {
        let acked = |id: &EventId| {
            fresh.broker.published().iter().any(|one| one.event.id == *id && one.is_acked())
        };
        while !newest.values().all(acked) {
            // waits: a lease runs out, and what failed comes again
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LONG, done).await.expect("the newest version of every order comes");
    running.drain();
    running.stopped().await;
    assert!(fresh.business().await.iter().all(|item| !item.contains_key("pr_shard")));
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut firsts = std::collections::BTreeSet::new();
    for event in fresh.broker.received("orders") {
        let (order, version) = *written.get(&event.id).expect("it was written");
        assert_eq!(event.headers[ITEM_VERSION_HEADER], version.to_string());
        if firsts.insert(event.id) {
            let last = seen.insert(order, version);
            assert!(last.is_none_or(|last| last < version), "order {order} went back to {version}");
        }
    }
    assert!(firsts.len() > newest.len(), "more than the last versions came");
    println!("{} versions written, {} published", written.len(), firsts.len());
}

impl Fresh {
    /// Every business item, by its name.
    async fn business(&self) -> Vec<Item> {
        let mut items = self.everything().await;
        items.retain(|item| item["sk"].as_s().unwrap() == "ORDER");
        items.sort_by_key(|item| item["pk"].as_s().unwrap().clone());
        items
    }
}
