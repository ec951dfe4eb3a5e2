//! From Debezium's outbox router to Postrider, on the same table and the same topics: what came by both is acted on once.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use postrider_core::inbox::Verdict;
use postrider_core::{Destination, DestinationId, Format, HandlerName, Route};
use postrider_inbox::Consumer;
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription, SubscriptionSettings};
use postrider_postgres::{Mapping, Names, Options, OwnTable, Setup};
use postrider_relay::{Ending, Relay, Target};
use postrider_testkit::cluster::Cluster;
use postrider_testkit::kafka::KafkaServer;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::outbox::connect;
use crate::stage::PATIENCE;

/// The rows of which a real router wrote the records, and the records.
const ROWS: &str = include_str!("../../../../brokers/kafka/src/golden/router/rows.sql");
const RECORDS: &str = "../../brokers/kafka/src/golden/router";
/// Rows that are events of ours: one has no aggregate.
const EVENTS: usize = 6;

/// Writes what the router wrote.
async fn replay(server: &KafkaServer, name: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDS);
    let text = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))).unwrap();
    let producer: FutureProducer = server.client().create().unwrap();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let headers = record["headers"].as_array().unwrap().iter();
        let headers = headers.fold(OwnedHeaders::new(), |headers, pair| {
            let (key, value) = (pair[0].as_str().unwrap(), pair[1].as_str());
            headers.insert(Header { key, value })
        });
        let mut written = FutureRecord::to(record["topic"].as_str().unwrap()).headers(headers);
        written.key = record["key"].as_str();
        written.payload = record["value"].as_str();
        producer.send(written, PATIENCE).await.unwrap();
    }
    text.lines().count()
}

/// Lets a relay serve the router's table as the guide says it, until it is empty.
async fn take_over(server: &KafkaServer, url: &str, name: &str) {
    let names = Names::new(name, "outbox", "inbox").unwrap();
    let setup = Setup { names: names.clone(), partitions: Some(1), ..Setup::default() };
    postrider_postgres::init(url, &setup).await.unwrap();
    let mut mapping = Mapping::debezium("public.outboxevent");
    if name == "placed" {
        mapping.source = Some("source".to_owned());
    }
    let mut options = Options::default();
    options.names = names;
    let table = OwnTable::with(url, options, mapping).unwrap();
    let topic = format!("router.{name}.{{aggregate_type}}").parse().unwrap();
    let route = Route::all(topic).format(Format::Debezium);
    let destination = Destination::new(DestinationId::new("a").unwrap(), "topics", vec![route]);
    let broker = KafkaBroker::new(KafkaSettings::new(&server.address())).unwrap();
    let relay = Relay::builder(Arc::new(table))
        .destination(destination, Arc::new(broker))
        .target(Target::Once)
        .presence(false);
    let report = relay.start().await.unwrap().stopped().await;
    assert!(matches!(report.ending, Some(Ending::Done | Ending::Drained)), "{report:?}");
}

/// R022, INV-4: the whole table came by the router, and comes by Postrider again. Nobody was told of a source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_by_the_router_and_by_postrider_has_one_effect() {
    if let Err(reason) = postrider_testkit::kafka::artifacts() {
        println!("skipped: a server of Kafka: {reason}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        return;
    }
    let server = block_in_place(|| KafkaServer::start("", &[])).unwrap();
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let client = connect(&cluster.url()).await;
    client.batch_execute(ROWS).await.unwrap();
    client.batch_execute("delete from outboxevent where aggregateid is null").await.unwrap();
    client.batch_execute("create table kept as select * from outboxevent").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["text", "connect", "placed", "emptied", "quoted"] {
        for kind in ["order", "Order"] {
            server.create(&format!("router.{name}.{kind}"), 1, &[]).await;
        }
        let file = folder.path().join(name);
        postrider_sqlite::init(&file).unwrap();
        let database = postrider_sqlite::connect(&file).unwrap();
        database.execute_batch("create table effects (event_id text not null)").unwrap();
        let billing = HandlerName::new("billing").unwrap();
        let receiver = postrider_sqlite::Transactional::new(&file, billing, |tx, event| {
            tx.execute("insert into effects values (?1)", [event.id.to_string()])?;
            Ok(Verdict::Done)
        });
        let by_router = replay(&server, name).await;
        client
            .batch_execute("truncate outboxevent; insert into outboxevent select * from kept")
            .await
            .unwrap();
        take_over(&server, &cluster.url(), name).await;
        let mut reading = SubscriptionSettings::new("", "billing");
        reading.topics = ["order", "Order"].map(|kind| format!("router.{name}.{kind}")).into();
        let kafka = KafkaSettings::new(&server.address());
        let subscription = KafkaSubscription::open(kafka, reading).await.unwrap();
        let consumer = Consumer::builder(Arc::new(subscription))
            .receiver(Arc::new(receiver.unwrap()))
            .start()
            .unwrap();
        let all = (by_router + EVENTS) as u64;
        let reached =
            consumer.reached(|stats, _| stats.done + stats.duplicates + stats.rejected >= all);
        timeout(PATIENCE, reached).await.expect(name);
        let stats = consumer.stats();
        assert_eq!((stats.duplicates, stats.rejected), (EVENTS as u64, 0), "{name}: {stats:?}");
        let mut effects = database.prepare("select event_id from effects").unwrap();
        let effects = effects.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let effects: Vec<String> = effects.map(Result::unwrap).collect();
        let different: BTreeSet<&String> = effects.iter().collect();
        assert_eq!((effects.len(), different.len()), (by_router, by_router), "{name}");
    }
}
