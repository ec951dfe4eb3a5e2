//! One trace through real servers: from the row of an outbox, over Kafka and NATS, to the handler and what it
//! enqueues in its turn.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use opentelemetry::trace::{Tracer as _, TracerProvider as _};
use opentelemetry_sdk::trace::SpanData;
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    Broker, Destination, DestinationId, Format, HandlerName, NewEvent, OutboxSource, Route,
    Subscription,
};
use postrider_inbox::Consumer;
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription};
use postrider_nats::{NatsBroker, NatsSettings, NatsSubscription};
use postrider_otel::{Traced as _, Tracing, resume};
use postrider_relay::{Ending, Relay, Target};
use postrider_sqlite::{Outbox, SqliteStore, Transactional};
use postrider_testkit::kafka::KafkaServer;
use postrider_testkit::nats::NatsServer;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rusqlite::Connection;

use crate::bench::{Bench, attribute, follows, outcome};

const TOPIC: &str = "orders";
const STATE: &str = "vendor=kept";

fn skipped(what: &str, reason: &str) {
    postrider_testkit::suite::skip(what, reason);
    assert!(std::env::var_os("CI").is_none(), "{reason}");
}

/// A row in the span of a request, with the state of somebody's tracing system.
fn commit(path: &Path, bench: &Bench, tracing: &Tracing) {
    postrider_sqlite::init(path).unwrap();
    let mut connection = Connection::open(path).unwrap();
    let tx = connection.transaction().unwrap();
    bench.provider.tracer("shop").in_span("POST /orders", |_| {
        let event = NewEvent::new("order", "1", "order.placed").source("/shop");
        let event = event.traced_by(tracing).header("tracestate", STATE);
        Outbox::new().enqueue(&tx, &event).unwrap();
    });
    tx.commit().unwrap();
}

async fn relay(path: &Path, tracing: &Tracing, format: Format, broker: Arc<dyn Broker>) {
    let mut route = Route::all(TOPIC.parse().unwrap());
    route.format = format;
    let definition = Destination::new(DestinationId::new("queue").unwrap(), "server", vec![route]);
    let broker: Arc<dyn Broker> = Arc::new(tracing.broker(&definition.id, broker));
    let source: Arc<dyn OutboxSource> = Arc::new(SqliteStore::new(path).unwrap());
    let relay = Relay::builder(source).destination(definition, broker).target(Target::Once);
    let report = relay.start().await.unwrap().stopped().await;
    assert_eq!(report.ending, Some(Ending::Done), "{report:?}");
}

/// Hands the delivery to a handler in a thread of the store, which enqueues in its turn.
async fn consume(path: &Path, tracing: &Tracing, subscription: Arc<dyn Subscription>) {
    let outer = tracing.clone();
    let name = HandlerName::new("billing").unwrap();
    let billing = Transactional::new(path, name, move |tx, order| {
        let _span = resume(order);
        assert_eq!(order.headers["tracestate"], STATE);
        let invoice = NewEvent::new("invoice", &*order.aggregate_id, "invoice.issued");
        Outbox::new().enqueue(tx, &invoice.traced_by(&outer))?;
        Ok(Verdict::Done)
    });
    let receiver: Arc<dyn Receiver> = Arc::new(tracing.receiver(Arc::new(billing.unwrap())));
    let subscription = Arc::new(tracing.subscription(subscription));
    let consumer = Consumer::builder(subscription).receiver(receiver).start().unwrap();
    let stats = consumer.reached(|stats, _| stats.done == 1).await;
    assert_eq!(stats.done, 1, "{stats:?}");
    consumer.drain(Duration::from_secs(10));
    consumer.stopped().await;
}

fn only(bench: &Bench, name: &str) -> SpanData {
    let mut spans = bench.named(name);
    assert_eq!(spans.len(), 1, "{name}: {:?}", bench.spans());
    spans.remove(0)
}

/// What every journey has in common: one trace, each span where it belongs, with the conventions' names.
fn judge(bench: &Bench, system: &str) {
    let request = only(bench, "POST");
    let creates = bench.named("create");
    let (order, invoice) = (&creates[0], &creates[1]);
    assert_eq!(order.parent_span_id, request.span_context.span_id());
    let trace = request.span_context.trace_id();
    assert!(bench.spans().iter().all(|span| span.span_context.trace_id() == trace));
    let spans =
        ["send queue", "process billing", "ack billing-group"].map(|name| only(bench, name));
    for (span, class) in spans.iter().zip(["send", "process", "settle"]) {
        assert!(follows(span, order.span_context.span_id()), "{span:?}");
        let says = |name: &str| attribute(span, name).unwrap_or_default();
        assert_eq!(says("messaging.system"), system);
        assert_eq!(says("messaging.operation.type"), class);
        assert_eq!(says("messaging.destination.name"), TOPIC);
        let id = attribute(order, "messaging.message.id").unwrap();
        assert_eq!(says("messaging.message.id"), id);
    }
    let [send, process, settle] = &spans;
    assert_eq!([send, process, settle].map(outcome), ["acked", "done", "settled"]);
    assert_eq!(attribute(send, "postrider.batch").as_deref(), Some("1"));
    for span in [process, settle] {
        let group = attribute(span, "messaging.consumer.group.name");
        assert_eq!(group.as_deref(), Some("billing-group"));
    }
    assert_eq!(invoice.parent_span_id, process.span_context.span_id());
}

/// From the row over Kafka to the handler it is one trace, in both modes, and the spans of the consumer's side
/// say where the record stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_over_kafka() {
    let started = tokio::task::spawn_blocking(|| KafkaServer::start("", &[])).await.unwrap();
    let server = match started {
        Ok(server) => server,
        Err(reason) => return skipped("a trace over Kafka", &reason),
    };
    for format in [Format::Structured, Format::Binary] {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", server.address()).create().unwrap();
        let topic = NewTopic::new(TOPIC, 1, TopicReplication::Fixed(1));
        // In the second round it is there.
        drop(admin.create_topics([&topic], &AdminOptions::new()).await.unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let (bench, kafka) = (Bench::new(), KafkaSettings::new(&server.address()));
        let tracing = bench.tracing();
        let mut settings = postrider_kafka::SubscriptionSettings::new(TOPIC, "billing-group");
        settings.from_now = false;
        commit(&path, &bench, &tracing);
        relay(&path, &tracing, format, Arc::new(KafkaBroker::new(kafka.clone()).unwrap())).await;
        let subscription = KafkaSubscription::open(kafka, settings).await.unwrap();
        consume(&path, &tracing, Arc::new(subscription)).await;
        judge(&bench, "kafka");
        let offset = if format == Format::Structured { "0" } else { "1" };
        for name in ["process", "ack"] {
            let span = only(&bench, name);
            let partition = attribute(&span, "messaging.destination.partition.id");
            assert_eq!(partition.as_deref(), Some("0"));
            assert_eq!(attribute(&span, "messaging.kafka.offset").as_deref(), Some(offset));
        }
    }
}

/// The same over NATS JetStream, whose streams have sequences and no partitions.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_over_nats() {
    let server = match NatsServer::start("") {
        Ok(server) => server,
        Err(reason) => return skipped("a trace over NATS", &reason),
    };
    let jetstream = jetstream::new(async_nats::connect(server.address()).await.unwrap());
    let config = jetstream::stream::Config {
        name: TOPIC.to_owned(),
        subjects: vec![TOPIC.to_owned()],
        ..Default::default()
    };
    jetstream.create_stream(config).await.unwrap();
    for format in [Format::Structured, Format::Binary] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let (bench, nats) = (Bench::new(), NatsSettings::new(server.address()));
        let tracing = bench.tracing();
        commit(&path, &bench, &tracing);
        relay(&path, &tracing, format, Arc::new(NatsBroker::new(nats.clone()).unwrap())).await;
        let settings = postrider_nats::SubscriptionSettings::new(TOPIC, "billing-group");
        let subscription = NatsSubscription::open(nats, settings).await.unwrap();
        consume(&path, &tracing, Arc::new(subscription)).await;
        judge(&bench, "nats");
        let offset = if format == Format::Structured { "1" } else { "2" };
        for name in ["process", "ack"] {
            let span = only(&bench, name);
            assert_eq!(attribute(&span, "postrider.offset").as_deref(), Some(offset));
            assert_eq!(attribute(&span, "messaging.destination.partition.id"), None);
        }
    }
}
