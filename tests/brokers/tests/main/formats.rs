//! Every format, the whole way: from a committed row through a relay and a real broker to a subscription, which
//! has the event again, with the id that it was given when it was enqueued.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use postrider_core::{
    Broker, Destination, DestinationId, Event, EventId, Format, Match, NewEvent, Route,
    Subscription, Template,
};
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription};
use postrider_nats::{NatsBroker, NatsSettings, NatsSubscription};
use postrider_relay::{Ending, Relay, Target};
use postrider_sqlite::{Outbox, SqliteStore};
use postrider_testkit::kafka::{KafkaServer, Stored};
use postrider_testkit::nats::NatsServer;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::stage::PATIENCE;

const FORMATS: [Format; 4] = [Format::Structured, Format::Binary, Format::Plain, Format::Debezium];
/// As a schema registry's serialiser makes it.
const AVRO: &[u8] = b"\x00\x00\x00\x00\x07\xff\xfe\n\r\x00";

fn topic(format: Format) -> String {
    match format {
        Format::Debezium => "outbox.event.order".to_owned(),
        other => format!("shop.{other}"),
    }
}

/// A route for each format, by the event's type.
fn routes() -> Vec<Route> {
    let route = |format: Format| {
        let topic: Template = topic(format).parse().unwrap();
        let route =
            Route::all(topic).only(Match::event_type(&format!("order.{format}"))).format(format);
        match format {
            Format::Debezium => route.header("eventType", "{event_type}".parse().unwrap()),
            _ => route,
        }
    };
    FORMATS.map(route).into()
}

/// Three of each format: JSON, Avro with what its readers look for, and one that is ordered by another key.
fn events() -> Vec<NewEvent> {
    let of = |format: Format| {
        let new = |id: &str| {
            NewEvent::new("order", id, format!("order.{format}"))
                .tenant("acme")
                .version(3)
                .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
                .header("x-note", "12 €, \"50%\"")
        };
        [
            new("1").json(&[1, 2]).unwrap(),
            new("2").bytes(AVRO, "application/vnd.apache.avro").header("schema-id", "7"),
            new("3").bytes("line\r\n", "text/plain; charset=utf-8").ordered_by("customer/ü"),
        ]
    };
    FORMATS.into_iter().flat_map(of).collect()
}

/// Commits the events, and lets a relay bring them to the broker.
async fn bring(broker: Arc<dyn Broker>, routes: Vec<Route>) -> BTreeMap<EventId, Event> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    postrider_sqlite::init(&file).unwrap();
    let events = events();
    let mut connection = postrider_sqlite::connect(&file).unwrap();
    let tx = connection.transaction().unwrap();
    Outbox::new().enqueue_many(&tx, &events).unwrap();
    tx.commit().unwrap();
    let id = DestinationId::new("a").unwrap();
    let relay = Relay::builder(Arc::new(SqliteStore::new(&file).unwrap()))
        .destination(Destination::new(id, "broker", routes), broker)
        .target(Target::Once)
        .presence(false);
    let report = relay.start().await.unwrap().stopped().await;
    assert!(matches!(report.ending, Some(Ending::Done | Ending::Drained)), "{report:?}");
    events.iter().map(|new| (new.event().id, new.event().clone())).collect()
}

/// R063, R086: what arrives is what was enqueued.
async fn compare(subscription: &dyn Subscription, mut sent: BTreeMap<EventId, Event>) {
    while !sent.is_empty() {
        let deliveries =
            timeout(PATIENCE, subscription.receive(100)).await.expect("it comes").unwrap();
        for delivery in deliveries {
            let mut event = (**delivery.event.as_ref().unwrap()).clone();
            subscription.ack(&delivery).await.unwrap();
            let Some(mut expected) = sent.remove(&event.id) else { continue };
            // What the store sets.
            expected.source = Arc::clone(&event.source);
            expected.created_at = event.created_at;
            assert!(!event.source.is_empty() && event.created_at >= event.occurred_at);
            if &*event.event_type == "order.debezium" {
                assert_eq!(event.headers.remove("eventType").as_deref(), Some("order.debezium"));
            }
            assert_eq!(event, expected, "{}", delivery.topic);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_comes_back_from_kafka() {
    if let Err(reason) = postrider_testkit::kafka::artifacts() {
        println!("skipped: a server of Kafka: {reason}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        return;
    }
    let server = block_in_place(|| KafkaServer::start("", &[])).unwrap();
    let topics = FORMATS.map(topic);
    for topic in &topics {
        server.create(topic, 1, &[]).await;
    }
    let settings = KafkaSettings::new(&server.address());
    let mut routes = routes();
    routes[2] = routes[2].clone().keyed_by("{aggregate_type}:{aggregate_id}".parse().unwrap());
    let sent = bring(Arc::new(KafkaBroker::new(settings.clone()).unwrap()), routes).await;
    let mut reading = postrider_kafka::SubscriptionSettings::new("", "reader");
    reading.topics = topics.to_vec();
    let subscription = KafkaSubscription::open(settings, reading).await.unwrap();
    compare(&subscription, sent).await;
    // R070: the key of a record is its route's, and by default the aggregate's id, or the ordering key's.
    for (topic, expected) in [
        ("shop.plain", ["customer:ü", "order:1", "order:2"]),
        ("outbox.event.order", ["1", "2", "ü"]),
    ] {
        let stored = server.stored(topic).await;
        let key = |it: &Stored| String::from_utf8(it.key.clone().unwrap()).unwrap();
        let mut keys: Vec<String> = stored.iter().map(key).collect();
        keys.sort();
        assert_eq!(keys, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_comes_back_from_nats() {
    let server = match NatsServer::start("") {
        Ok(server) => server,
        Err(reason) => {
            println!("skipped: a server of NATS: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return;
        }
    };
    let client = async_nats::connect(server.address()).await.unwrap();
    let config = stream::Config {
        name: "all".to_owned(),
        subjects: vec!["shop.>".to_owned(), "outbox.>".to_owned()],
        ..stream::Config::default()
    };
    jetstream::new(client).create_stream(config).await.unwrap();
    let mut settings = NatsSettings::new(server.address());
    settings.deadline = Duration::from_secs(4);
    let sent = bring(Arc::new(NatsBroker::new(settings.clone()).unwrap()), routes()).await;
    let reading = postrider_nats::SubscriptionSettings::new("all", "reader");
    let subscription = NatsSubscription::open(settings, reading).await.unwrap();
    compare(&subscription, sent).await;
}

/// A relay does not begin with a route that its broker cannot write: it says what the broker can.
#[tokio::test]
async fn a_broker_that_cannot_write_a_format_is_not_begun_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    postrider_sqlite::init(&file).unwrap();
    let start = async |route: Route| {
        let broker = NatsBroker::new(NatsSettings::new("nats://127.0.0.1:1")).unwrap();
        let destination = Destination::new(DestinationId::new("a").unwrap(), "stream", vec![route]);
        let relay = Relay::builder(Arc::new(SqliteStore::new(&file).unwrap()))
            .destination(destination, Arc::new(broker))
            .target(Target::Once)
            .presence(false);
        relay.start().await.map(|_| ())
    };
    let route = || Route::all("x".parse().unwrap());
    let keyed = start(route().keyed_by("{key}".parse().unwrap())).await.unwrap_err();
    assert!(keyed.to_string().contains("no key"), "{keyed}");
    let headers = start(route().header("eventType", "x".parse().unwrap())).await.unwrap_err();
    assert!(headers.to_string().contains("plain or debezium"), "{headers}");
    assert!(start(route().format(Format::Plain)).await.is_ok(), "the control");
}
