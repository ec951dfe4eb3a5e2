//! Consumers as the brokers' own clients have them, with no library of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, AckKind};
use futures_util::StreamExt as _;
use rdkafka::Message as _;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _, StreamConsumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::consumer::{Tally, WORKERS, business};
use super::server::Server;
use crate::Result;
use crate::measure::now_nanos;
use crate::postgres::server::connect;
use crate::tuning::Tuning;

/// How often a thread that hears nothing looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// Messages that wait for a worker: so many that a partition of which much came at once holds up no other.
const QUEUE: usize = 100_000;

/// The number of an event, out of its payload, wherever that stands in the message.
fn number_of(message: &[u8]) -> Option<u64> {
    const BEFORE: &[u8] = b"\"order\":";
    let at = message.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let digits = message[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// When each numbered event came, first.
pub(super) struct Arrivals {
    seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
}

struct Seen {
    at: Vec<AtomicU64>,
    count: watch::Sender<usize>,
}

impl Seen {
    fn note(&self, message: &[u8]) {
        let now = now_nanos();
        let number = number_of(message).and_then(|number| usize::try_from(number).ok());
        let Some(at) = number.and_then(|number| self.at.get(number)) else { return };
        if at.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.count.send_modify(|count| *count += 1);
        }
    }
}

impl Arrivals {
    /// Listens to a topic, from its beginning on.
    pub(super) fn listen(
        runtime: &Runtime,
        server: &Server,
        topic: &str,
        events: usize,
    ) -> Result<Arrivals> {
        let at = (0..events).map(|_| AtomicU64::new(0)).collect();
        let seen = Arc::new(Seen { at, count: watch::Sender::new(0) });
        let stop = Arc::new(AtomicBool::new(false));
        match server {
            Server::Kafka(_) => {
                let consumer: BaseConsumer = ClientConfig::new()
                    .set("bootstrap.servers", server.address())
                    .set("group.id", "arrivals")
                    .set("enable.auto.commit", "false")
                    .create()?;
                let mut all = TopicPartitionList::new();
                for partition in 0..i32::try_from(Tuning::default().partitions())? {
                    all.add_partition_offset(topic, partition, Offset::Beginning)?;
                }
                consumer.assign(&all)?;
                let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(Ok(message)) = consumer.poll(LOOK) {
                            seen.note(message.payload().unwrap_or_default());
                        }
                    }
                });
            }
            Server::Nats(_) => {
                let config = pull::Config { ack_policy: AckPolicy::None, ..Default::default() };
                let mut messages = runtime.block_on(messages(server, topic, config))?;
                let seen = Arc::clone(&seen);
                runtime.spawn(async move {
                    while let Some(Ok(message)) = messages.next().await {
                        seen.note(&message.payload);
                    }
                });
            }
        }
        Ok(Arrivals { seen, stop })
    }

    /// Waits until every event has come, and says when each did.
    pub(super) async fn all(&self, patience: Duration) -> Result<Vec<u64>> {
        let events = self.seen.at.len();
        let mut count = self.seen.count.subscribe();
        tokio::time::timeout(patience, count.wait_for(|count| *count == events)).await??;
        Ok(self.seen.at.iter().map(|at| at.load(Ordering::Acquire)).collect())
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn messages(server: &Server, topic: &str, config: pull::Config) -> Result<pull::Stream> {
    let jetstream = jetstream::new(async_nats::connect(server.address()).await?);
    let stream = jetstream.get_stream(topic).await?;
    Ok(stream.create_consumer(config).await?.messages().await?)
}

/// Reads a topic, does the business write for each message in a transaction, and says so to the broker: a
/// partition of Kafka at a time by each worker, and whatever comes next of NATS.
pub(super) async fn consume(
    server: &Server,
    url: &str,
    topic: &str,
    group: &str,
    tally: &Arc<Tally>,
) -> Result<()> {
    match server {
        Server::Kafka(_) => consume_kafka(server, url, topic, group, tally).await,
        Server::Nats(_) => consume_nats(server, url, topic, group, tally).await,
    }
}

async fn consume_kafka(
    server: &Server,
    url: &str,
    topic: &str,
    group: &str,
    tally: &Arc<Tally>,
) -> Result<()> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", server.address())
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.offset.store", "false")
        .create()?;
    consumer.subscribe(&[topic])?;
    let consumer = Arc::new(consumer);
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let (queue, mut messages) = mpsc::channel::<rdkafka::message::OwnedMessage>(QUEUE);
        let (mut client, tally) = (connect(url).await?, Arc::clone(tally));
        let consumer = Arc::clone(&consumer);
        workers.push(queue);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let number = number_of(message.payload().unwrap_or_default());
                let tx = client.transaction().await?;
                business(&tx, number.ok_or("a message without a number")?).await?;
                tx.commit().await?;
                let (partition, offset) = (message.partition(), message.offset());
                consumer.store_offset(message.topic(), partition, offset)?;
                tally.count();
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    let mut done = tally.done();
    loop {
        tokio::select! {
            message = consumer.recv() => {
                let message = message?.detach();
                let worker = usize::try_from(message.partition())? % WORKERS;
                workers[worker].send(message).await.map_err(|_| "a worker failed")?;
            }
            all = done.wait_for(|done| *done) => {
                all?;
                return Ok(());
            }
        }
    }
}

async fn consume_nats(
    server: &Server,
    url: &str,
    topic: &str,
    group: &str,
    tally: &Arc<Tally>,
) -> Result<()> {
    let config = pull::Config { durable_name: Some(group.to_owned()), ..Default::default() };
    let mut messages = messages(server, topic, config).await?;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let (queue, mut messages) = mpsc::channel::<jetstream::Message>(QUEUE);
        let (mut client, tally) = (connect(url).await?, Arc::clone(tally));
        workers.push(queue);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let number = number_of(&message.payload);
                let tx = client.transaction().await?;
                business(&tx, number.ok_or("a message without a number")?).await?;
                tx.commit().await?;
                message.ack_with(AckKind::Ack).await?;
                tally.count();
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    let mut done = tally.done();
    let mut turn = 0;
    loop {
        tokio::select! {
            message = messages.next() => {
                let message = message.ok_or("the stream ended")??;
                turn = (turn + 1) % WORKERS;
                workers[turn].send(message).await.map_err(|_| "a worker failed")?;
            }
            all = done.wait_for(|done| *done) => {
                all?;
                return Ok(());
            }
        }
    }
}
