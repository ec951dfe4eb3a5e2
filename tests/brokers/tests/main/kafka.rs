//! Kafka.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, EventId};
use postrider_kafka::{KafkaBroker, KafkaSettings};
use postrider_testkit::kafka::{KafkaServer, Stored};
use postrider_testkit::own_server::free_ports;
use postrider_testkit::proxy::Proxy;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::task::block_in_place;

use crate::killing;
use crate::late::{self, Line};
use crate::server::Server;
use crate::stage::{DEADLINE, KEYS, PATIENCE};

const PARTITIONS: i32 = 3;

/// A server, and the topic `orders`.
pub(crate) struct Kafka {
    server: KafkaServer,
    consumer: BaseConsumer,
}

impl Kafka {
    async fn of(start: impl FnOnce() -> Result<KafkaServer, String>) -> Option<Kafka> {
        if let Err(reason) = postrider_testkit::kafka::artifacts() {
            println!("skipped: a server of Kafka: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return None;
        }
        let server = block_in_place(start).unwrap();
        server.create("orders", PARTITIONS, &[]).await;
        let consumer = server.client().set("group.id", "test").create().unwrap();
        Some(Kafka { server, consumer })
    }
}

impl Server for Kafka {
    const NAME: &'static str = "kafka";
    const WRONG_CLOCKS_ARE_BORNE: bool = false;

    async fn start() -> Option<Kafka> {
        Kafka::of(|| KafkaServer::start("", &[])).await
    }

    fn url(&self) -> String {
        format!("kafka://{}", self.server.address())
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let mut settings = KafkaSettings::new(&self.url());
        settings.deadline = DEADLINE;
        Arc::new(KafkaBroker::new(settings).unwrap())
    }

    async fn limit(&self, bytes: u32) {
        self.server.limit_messages("orders", bytes).await;
    }

    async fn crash(&mut self) {
        block_in_place(|| {
            self.server.kill();
            self.server.run().unwrap();
        });
    }

    fn signal(&self, name: &str) {
        assert!(self.server.signal(name));
    }

    async fn count(&self) -> u64 {
        let end = |partition| {
            // It may be away at this moment.
            let asked = self.consumer.fetch_watermarks("orders", partition, Duration::from_secs(2));
            u64::try_from(asked.ok()?.1).ok()
        };
        block_in_place(|| (0..PARTITIONS).filter_map(end).sum())
    }

    /// A key has one partition.
    async fn arrived(&self) -> Vec<EventId> {
        self.server.stored("orders").await.iter().map(Stored::id).collect()
    }

    async fn copy(&self, count: usize) {
        let producer: FutureProducer = self.server.client().create().unwrap();
        for stored in self.server.stored("orders").await.into_iter().take(count) {
            let mut headers = OwnedHeaders::new();
            for (key, value) in &stored.headers {
                headers = headers.insert(Header { key, value: Some(value) });
            }
            let mut record = FutureRecord::to("orders").headers(headers);
            record.key = stored.key.as_ref();
            record.payload = stored.value.as_ref();
            producer.send(record, PATIENCE).await.unwrap();
        }
    }

    async fn is_settled(&self) -> bool {
        self.server.unsettled("orders", "ledger").await == Some(0)
    }

    async fn standing(&self) -> String {
        self.server.standing("orders", "ledger").await
    }
}

/// F1, R001, R008, R036: a relay is killed at each named moment, and the next one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_may_be_killed_at_every_point() {
    killing::at_every_point::<Kafka>().await;
}

/// F5, F6, F11, R002: servers and relays are killed and stopped, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_its_relays_may_be_killed_and_stopped() {
    killing::servers_and_relays::<Kafka>().await;
}

/// F11: woken, a relay that was stopped sends at most what its client had under way, one event of a key, and nothing
/// of it for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_woken_relay_sends_no_more_than_it_had_under_way() {
    let port = free_ports(1).unwrap()[0];
    let way = Proxy::to(port).await;
    let behind = || KafkaServer::behind(port, way.port);
    let Some(kafka) = Kafka::of(behind).await else { return };
    let far = format!("kafka://127.0.0.1:{}", way.port);
    killing::woken(&kafka, &way, &far, u64::from(KEYS)).await;
}

/// F8, INV-1, INV-3: answers that are late by less than a publish may take, and by twice the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_may_be_late() {
    let port = free_ports(1).unwrap()[0];
    let line = Line::to(port).await;
    let behind = || KafkaServer::behind(port, line.port);
    let Some(kafka) = Kafka::of(behind).await else { return };
    let broker = |port, deadline| -> Arc<dyn Broker> {
        let mut settings = KafkaSettings::new(&format!("127.0.0.1:{port}"));
        settings.deadline = deadline;
        // Five requests are under way at once, and the sixth waits for an answer: a batch is to be fewer.
        settings.linger = Duration::from_millis(5);
        Arc::new(KafkaBroker::new(settings).unwrap())
    };
    late::answers(&kafka, &line, broker).await;
}
