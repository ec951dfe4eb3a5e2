//! `client_producer`: the broker's own client, idempotent and with everything batched, fed from memory while a
//! plain read of the same rows runs beside it.
//!
//! It sends a payload and a key, and nothing that says what the event is; it keeps no order by key across a
//! failure, tries nothing again, and remembers nothing of what was delivered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::drain::PAYLOAD_BYTES;
use crate::backlog::KEYS;
use crate::measure::{cpu_seconds, peak_memory_kib, rate};
use crate::options::BrokerKind;
use crate::postgres::plain;
use crate::{Result, relay};

/// Messages under way at once to NATS: more make it no faster, and fewer slower.
const NATS_UNDER_WAY: usize = 4_096;

/// How long Kafka's client may take to hear of the last records.
const PATIENCE: Duration = Duration::from_secs(60);

/// The child's side: rows per second, from the first to the last row read and the last acknowledgement.
pub(super) fn round(url: &str, rows: u64, kind: &str, address: &str, topic: &str) -> Result<Value> {
    let runtime = relay::runtime()?;
    let start = Instant::now();
    thread::scope(|scope| {
        let reading = scope.spawn(|| plain::read_at(&runtime, url, rows));
        let sent = match BrokerKind::parse(kind)? {
            BrokerKind::Kafka => to_kafka(rows, address, topic),
            BrokerKind::Nats => to_nats(&runtime, rows, address, topic),
            BrokerKind::Noop | BrokerKind::Local => Err("it has no client".into()),
        };
        let producer_per_s = rate(rows, start);
        sent?;
        let read_per_s = reading.join().map_err(|_| "the plain read panicked")??;
        Ok(json!({
            "per_s": rate(rows, start),
            "producer_per_s": producer_per_s,
            "read_per_s": read_per_s,
            "cpu_seconds": cpu_seconds(),
            "peak_kib": peak_memory_kib(),
        }))
    })
}

/// Counts what was stored, and what was not.
#[derive(Clone, Default)]
struct Counter(Arc<(AtomicU64, AtomicU64)>);

impl ClientContext for Counter {}

impl ProducerContext for Counter {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() { &self.0.0 } else { &self.0.1 };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn to_kafka(rows: u64, address: &str, topic: &str) -> Result<()> {
    let counter = Counter::default();
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", address)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "5")
        .set("batch.size", "1000000")
        .set("batch.num.messages", "10000")
        .set("queue.buffering.max.messages", "100000")
        .set("queue.buffering.max.kbytes", "262144");
    let producer: ThreadedProducer<Counter> =
        ThreadedProducer::from_config_and_context(&config, counter.clone())?;
    let payload = crate::backlog::payload_of(7, PAYLOAD_BYTES);
    for number in 0..rows {
        let key = (number % KEYS).to_string();
        let mut record = BaseRecord::to(topic).key(&key).payload(&payload);
        while let Err((error, back)) = producer.send(record) {
            if !is_full(&error) {
                return Err(error.into());
            }
            record = back;
            // waits: the client says that it is full, and never that it is not any more
            thread::sleep(Duration::from_millis(1));
        }
    }
    producer.flush(PATIENCE)?;
    let (stored, failed) = &*counter.0;
    match (stored.load(Ordering::Relaxed), failed.load(Ordering::Relaxed)) {
        (stored, 0) if stored == rows => Ok(()),
        (stored, failed) => Err(format!("{stored} of {rows} stored, {failed} failed").into()),
    }
}

fn is_full(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull)
}

fn to_nats(runtime: &Runtime, rows: u64, address: &str, topic: &str) -> Result<()> {
    runtime.block_on(async {
        let client = async_nats::connect(address).await?;
        let jetstream = jetstream::context::ContextBuilder::new()
            .max_ack_inflight(2 * NATS_UNDER_WAY)
            .build(client);
        let payload = Bytes::from(crate::backlog::payload_of(7, PAYLOAD_BYTES));
        let mut under_way = VecDeque::with_capacity(NATS_UNDER_WAY);
        for number in 0..rows {
            if under_way.len() == NATS_UNDER_WAY
                && let Some(oldest) = under_way.pop_front()
            {
                answered(oldest).await?;
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", format!("{number:032x}"));
            let message = PublishMessage::build().payload(payload.clone()).headers(headers);
            under_way.push_back(jetstream.send_publish(topic.to_owned(), message).await?);
        }
        for oldest in under_way {
            answered(oldest).await?;
        }
        Ok(())
    })
}

async fn answered(asked: jetstream::context::PublishAckFuture) -> Result<()> {
    match asked.await?.duplicate {
        false => Ok(()),
        true => Err("the stream had it already".into()),
    }
}
