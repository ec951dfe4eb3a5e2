//! What the tests share: a store under a random prefix, a broker in memory, and invocations as the service writes them.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::{Broker, Destination, DestinationId, NewEvent, Route};
use postrider_dynamodb::{Connection, DynamoStore, Item, Names, Options, Outbox, Settings, Setup};
use postrider_lambda::Publisher;
use postrider_relay::{Relay, RelayHandle};
use postrider_testkit::memory::{MemoryBroker, MemoryClock};
use serde_json::{Value, json};
use uuid::Uuid;

/// Long enough for whatever is to be done.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The leases of these tests: long enough for a machine that does much else.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// A store of a test's own, and where its events go.
pub(crate) struct Fresh {
    pub(crate) connection: Connection,
    pub(crate) outbox: Outbox,
    pub(crate) broker: MemoryBroker,
    settings: Settings,
}

impl Fresh {
    /// Tables for so many partitions; nothing, with the reason printed, where there is no server.
    pub(crate) async fn new(partitions: u16) -> Option<Fresh> {
        let url = postrider_testkit::services::url("ddb");
        let url = url.map_err(|reason| println!("skipped: {reason}")).ok()?;
        let prefix = format!("l{}-", &Uuid::now_v7().simple().to_string()[4..]);
        let mut settings = Settings::at(url, Names::with_prefix(&prefix));
        // Many tests share one emulator, on a machine that may be busy.
        settings.call_time_max = Duration::from_secs(30);
        let connection = Connection::new(settings.clone()).unwrap();
        let setup = Setup { partitions: Some(partitions), ..Setup::default() };
        postrider_dynamodb::init(&connection, &setup).await.unwrap();
        let outbox = Outbox::open(&connection).await.unwrap();
        let broker = MemoryBroker::new(MemoryClock::running());
        Some(Fresh { connection, outbox, broker, settings })
    }

    /// Writes so many events of a key, one after the other.
    pub(crate) async fn write(&self, key: &str, count: usize) {
        for _ in 0..count {
            let event = NewEvent::new("order", key, "order.changed");
            self.outbox.write(&[], &[event]).await.unwrap();
        }
    }

    /// A function of this store.
    pub(crate) fn function(&self, broker: Arc<dyn Broker>) -> Publisher {
        function(self.connection.clone(), broker)
    }

    /// The same through a network of the test's.
    pub(crate) fn function_through(&self, port: u16, broker: Arc<dyn Broker>) -> Publisher {
        let mut settings = self.settings.clone();
        settings.endpoint = Some(format!("http://127.0.0.1:{port}"));
        function(Connection::new(settings).unwrap(), broker)
    }

    /// The port of the emulator.
    pub(crate) fn port(&self) -> u16 {
        let url = self.settings.endpoint.as_deref().unwrap().trim_end_matches('/');
        url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// A relay that stays.
    pub(crate) async fn relay(&self) -> RelayHandle {
        let mut options = Options::default();
        options.stream = false;
        let store = DynamoStore::with(self.connection.clone(), options);
        Relay::builder(Arc::new(store))
            .destination(destination(), Arc::new(self.broker.clone()))
            .settings(postrider_relay::Settings::with_lease(LEASE))
            .presence(false)
            .start()
            .await
            .unwrap()
    }

    /// Every event item, in the order of their keys and numbers.
    pub(crate) async fn items(&self) -> Vec<Item> {
        let mut items = self.everything().await;
        items.retain(|item| item["sk"].as_s().unwrap().starts_with("OUTBOX#"));
        let place = |item: &Item| ["pk", "sk"].map(|name| item[name].as_s().unwrap().clone());
        items.sort_by_key(place);
        items
    }

    /// All that stands in the outbox's table.
    pub(crate) async fn everything(&self) -> Vec<Item> {
        self.scan(&self.connection.names().outbox).await
    }

    pub(crate) async fn pending(&self) -> usize {
        self.items().await.iter().filter(|item| item.contains_key("pr_shard")).count()
    }

    /// The control items whose names begin so.
    pub(crate) async fn control(&self, prefix: &str) -> Vec<Item> {
        let mut items = self.scan(&self.connection.names().store).await;
        items.retain(|item| item["sk"].as_s().unwrap().starts_with(prefix));
        items
    }

    async fn scan(&self, table: &str) -> Vec<Item> {
        let client = self.connection.tables().await;
        let scan = client.scan().table_name(table).consistent_read(true);
        Box::pin(scan.send()).await.unwrap().items.unwrap()
    }

    /// The records of all events, as the service invokes a function with them.
    pub(crate) async fn records(&self) -> Vec<u8> {
        batch(self.items().await.iter().enumerate().map(|(index, item)| record(index, item)))
    }

    /// How often each event was acknowledged.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let mut counts = std::collections::BTreeMap::<_, usize>::new();
        for one in self.broker.published().iter().filter(|one| one.is_acked()) {
            *counts.entry(one.event.id).or_default() += 1;
        }
        counts.into_values().collect()
    }
}

fn function(connection: Connection, broker: Arc<dyn Broker>) -> Publisher {
    let mut settings = postrider_relay::Settings::with_lease(LEASE);
    settings.stall = LEASE * 3;
    settings.drain = Duration::from_secs(1);
    let publisher = Publisher::new(connection, destination(), broker).unwrap();
    publisher.with_settings(settings).unwrap()
}

pub(crate) fn destination() -> Destination {
    let route = Route::all("orders".parse().unwrap());
    Destination::new(DestinationId::new("a").unwrap(), "memory", vec![route])
}

/// The number of a record in these tests.
pub(crate) fn sequence(index: usize) -> String {
    format!("{}", 4_421_584_500_000_000_017_450_439_091_u128 + index as u128)
}

pub(crate) fn record(index: usize, item: &Item) -> Value {
    let key = |name: &str| json!({"S": item[name].as_s().unwrap()});
    let image: serde_json::Map<_, _> =
        item.iter().filter_map(|(name, value)| Some((name.clone(), attribute(value)?))).collect();
    json!({
        "eventID": format!("{index:032x}"), "eventName": "INSERT", "eventVersion": "1.1",
        "eventSource": "aws:dynamodb", "awsRegion": "us-east-1",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/t/stream/2026-01-01T00:00:00.000",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_760_000_000, "Keys": {"pk": key("pk"), "sk": key("sk")},
            "NewImage": image, "SequenceNumber": sequence(index), "SizeBytes": 300,
            "StreamViewType": "NEW_IMAGE",
        },
    })
}

fn attribute(value: &AttributeValue) -> Option<Value> {
    match value {
        AttributeValue::S(text) => Some(json!({"S": text})),
        AttributeValue::N(number) => Some(json!({"N": number})),
        _ => None,
    }
}

pub(crate) fn batch(records: impl Iterator<Item = Value>) -> Vec<u8> {
    json!({"Records": records.collect::<Vec<_>>()}).to_string().into_bytes()
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let settings = self.settings.clone();
        let cleaned = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let names = settings.names.clone();
                let connection = Connection::new(settings).expect("valid names");
                let client = connection.tables().await;
                for table in [&names.outbox, &names.store, &names.inbox] {
                    _ = Box::pin(client.delete_table().table_name(table).send()).await;
                }
            });
        });
        _ = cleaned.join();
    }
}
