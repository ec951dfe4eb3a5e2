//! Kafka.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use postrider_core::{EventId, cloudevents};
use postrider_testkit::kafka::KafkaServer;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::block_in_place;

use crate::stage::{KEYS, LEASE, PATIENCE, Stage, signal};

const PARTITIONS: i32 = 3;

/// A server, and the topic `orders`.
struct Kafka {
    server: KafkaServer,
    consumer: BaseConsumer,
}

impl Kafka {
    async fn start() -> Option<Kafka> {
        if let Err(reason) = postrider_testkit::kafka::artifacts() {
            println!("skipped: a server of Kafka: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return None;
        }
        let server = block_in_place(|| KafkaServer::start("", &[])).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", server.address()).set("group.id", "test");
        let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
        let topic = NewTopic::new("orders", PARTITIONS, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = admin.create_topics([&topic], &options).await.unwrap();
        made.into_iter().next().unwrap().unwrap();
        let consumer = config.set("enable.auto.commit", "false").create().unwrap();
        Some(Kafka { server, consumer })
    }

    fn url(&self) -> String {
        format!("kafka://{}", self.server.address())
    }

    fn marks(&self, partition: i32) -> Option<(i64, i64)> {
        // It may be away at this moment.
        let asked = self.consumer.fetch_watermarks("orders", partition, Duration::from_secs(2));
        asked.ok()
    }

    fn count(&self) -> i64 {
        block_in_place(|| {
            (0..PARTITIONS).filter_map(|partition| Some(self.marks(partition)?.1)).sum()
        })
    }

    /// Waits until so many are there, copies included.
    async fn holds(&self, least: i64) {
        let begun = Instant::now();
        while self.count() < least {
            assert!(begun.elapsed() < PATIENCE, "{} of {least} arrive", self.count());
            // waits: the server tells nobody what it stores
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What arrived, partition after partition, copies included. A key has one partition.
    fn arrived(&self) -> Vec<EventId> {
        let read = |partition| {
            let (low, high) = self.marks(partition).unwrap();
            let mut from = TopicPartitionList::new();
            from.add_partition_offset("orders", partition, Offset::Offset(low)).unwrap();
            self.consumer.assign(&from).unwrap();
            let mut ids = Vec::new();
            while ids.len() < usize::try_from(high - low).unwrap() {
                // That the server was away is told late.
                let Ok(message) = self.consumer.poll(PATIENCE).expect("it has more") else {
                    continue;
                };
                let payload = message.payload().unwrap();
                ids.push(cloudevents::parse(payload).unwrap().0.id);
            }
            ids
        };
        block_in_place(|| (0..PARTITIONS).flat_map(read).collect())
    }
}

/// F1, R001, R008, R036: a relay is killed at each named moment, among them between fetch and publish and between
/// publish and settle, and the next one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_may_be_killed_at_every_point() {
    let Some(kafka) = Kafka::start().await else { return };
    let (mut stage, url) = (Stage::open(), kafka.url());
    let points =
        ["after_fetch", "before_publish", "after_publish", "before_settle", "after_settle"];
    let points = points.iter().flat_map(|point| [format!("{point}:1"), format!("{point}:3")]);
    for point in points.chain(["after_acquire:1".to_owned()]) {
        let mut relay = stage.relay(&url, &[&point]);
        let begun = Instant::now();
        let ended = loop {
            stage.write(30);
            // waits: the relay meets its end by itself
            tokio::time::sleep(Duration::from_millis(30)).await;
            if let Some(ended) = relay.try_wait().unwrap() {
                break ended;
            }
            assert!(begun.elapsed() < PATIENCE, "{point} is not reached: {}", stage.log());
        };
        assert_eq!(ended.signal(), Some(9), "{point}: {ended}");
    }
    stage.finish(&url).await;
    let arrived = kafka.arrived();
    let committed = stage.judge(&arrived);
    eprintln!("11 kills, {committed} committed, {} arrived", arrived.len());
    assert!(committed > 100);
}

/// F5, F6, F11, R002: the server is killed, and relays are stopped for longer than their lease, again and again; all
/// go on by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_its_relays_may_be_killed_and_stopped() {
    let Some(mut kafka) = Kafka::start().await else { return };
    let (mut stage, url) = (Stage::open(), kafka.url());
    let relays = [stage.relay(&url, &[]), stage.relay(&url, &[])];
    for round in 0..4 {
        let before = kafka.count();
        stage.write(3_000);
        // In the middle, unless they are very fast.
        kafka.holds(before + 200).await;
        match round {
            0 | 2 => block_in_place(|| {
                kafka.server.kill();
                kafka.server.run().unwrap();
            }),
            _ => {
                let stopped = &relays[round / 2];
                signal(stopped, "-STOP");
                // waits: for longer than its lease
                tokio::time::sleep(LEASE + LEASE / 2).await;
                signal(stopped, "-CONT");
            }
        }
        stage.write(200);
        kafka.holds(before + 3_200).await;
    }
    drop(relays);
    stage.finish(&url).await;
    let arrived = kafka.arrived();
    let committed = stage.judge(&arrived);
    eprintln!("2 crashes, 2 stops, {committed} committed, {} arrived", arrived.len());
    assert_eq!(committed, 12_800);
}

/// F11: a relay is stopped in mid-batch, another one takes over and delivers everything; woken, the first one sends
/// at most what its client had under way, one event of a key, and nothing of it for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_woken_relay_sends_no_more_than_it_had_under_way() {
    let Some(kafka) = Kafka::start().await else { return };
    let (mut stage, url) = (Stage::open(), kafka.url());
    let relay = stage.relay(&url, &[]);
    let mut late = Vec::new();
    for _ in 0..3 {
        let begun = kafka.count();
        stage.write(3_000);
        kafka.holds(begun + 300).await;
        signal(&relay, "-STOP");
        assert!(kafka.count() < begun + 3_000, "it was stopped in the middle");
        stage.finish(&url).await;
        let before = kafka.count();
        signal(&relay, "-CONT");
        // waits: for longer than a client tries to deliver, so that what comes has come
        tokio::time::sleep(LEASE * 2).await;
        late.push(kafka.count() - before);
        assert!(*late.last().unwrap() <= i64::from(KEYS), "{late:?} came late");
    }
    let committed = stage.judge(&kafka.arrived());
    eprintln!("3 stops, {committed} committed, {late:?} came late");
    assert_eq!(committed, 9_000);
}
