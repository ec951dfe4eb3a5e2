//! What would leave a consumer standing still with nobody told, from the library's own imitation of a cluster.

use std::time::Duration;

use postrider_core::{Delivery, ErrorKind, Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription, SubscriptionSettings};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout};

use crate::publishing::{event, publish};

const PATIENCE: Duration = Duration::from_secs(20);
const TOPIC: &str = "orders";
const GROUP: &str = "billing";

/// An imitated cluster with a topic of one partition, and a member of a group that is in.
struct Imitation {
    cluster: MockCluster<'static, DefaultProducerContext>,
    broker: KafkaBroker,
    subscription: KafkaSubscription,
}

impl Imitation {
    async fn start(unsettled_max: usize) -> Imitation {
        Imitation::with(unsettled_max, |_| {}).await
    }

    /// The same; the cluster is prepared before the member joins.
    async fn with(
        unsettled_max: usize,
        prepare: impl FnOnce(&MockCluster<'static, DefaultProducerContext>),
    ) -> Imitation {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 1, 1).unwrap();
        let settings = KafkaSettings::new(&cluster.bootstrap_servers());
        prepare(&cluster);
        let broker = KafkaBroker::new(settings.clone()).unwrap();
        let mut member = SubscriptionSettings::new(TOPIC, GROUP);
        member.session = Duration::from_secs(6);
        member.unsettled_max = unsettled_max;
        let subscription = KafkaSubscription::open(settings, member).await.unwrap();
        Imitation { cluster, broker, subscription }
    }

    async fn send(&self, from: u32, count: u32) {
        let events: Vec<_> = (from..from + count).map(|n| event(&n.to_string(), n, 10)).collect();
        let sent = publish(&self.broker, TOPIC, &events).await;
        assert!(sent.iter().all(|it| *it == Outcome::Acked), "{sent:?}");
    }

    async fn receive(&self, max: usize) -> Vec<Delivery> {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            match timeout(PATIENCE, self.subscription.receive(max)).await {
                Ok(Ok(deliveries)) => return deliveries,
                Ok(Err(error)) => println!("{error}"),
                Err(_) => panic!("nothing comes"),
            }
        }
    }

    /// Receives and acknowledges so many.
    async fn settle(&self, count: usize) {
        let mut settled = 0;
        while settled < count {
            for delivery in self.receive(count - settled).await {
                self.subscription.ack(&delivery).await.unwrap();
                settled += 1;
            }
        }
    }

    /// Waits until the group has this offset.
    fn committed(&self, offset: i64) {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.cluster.bootstrap_servers()).set("group.id", GROUP);
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition(TOPIC, 0);
        let begun = std::time::Instant::now();
        loop {
            let found = consumer.committed_offsets(list.clone(), PATIENCE).unwrap();
            let found = found.find_partition(TOPIC, 0).unwrap().offset();
            if found == Offset::Offset(offset) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{found:?} is committed in place of {offset}");
            // waits: the cluster tells nobody what is committed
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// F14: a commit that a rebalance refuses is made again, although nothing more is settled that would do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_failed_is_made_again() {
    let imitation = Imitation::start(1_000).await;
    imitation.send(0, 1).await;
    imitation.settle(1).await;
    block_in_place(|| imitation.committed(1));
    for (offset, error) in (2..).zip([
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN,
    ]) {
        imitation.cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error, error, error]);
        imitation.send(1, 1).await;
        imitation.settle(1).await;
        block_in_place(|| imitation.committed(offset));
    }
}

/// F14: a partition is read although its coordinator moved while it was asked where to begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_whose_beginning_was_not_told_is_read() {
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR;
    let refuse = |cluster: &MockCluster<'static, DefaultProducerContext>| {
        cluster.request_errors(RDKafkaApiKey::OffsetFetch, &[error]);
    };
    let imitation = Imitation::with(1_000, refuse).await;
    imitation.send(0, 3).await;
    imitation.settle(3).await;
}

/// F36: reading that is refused is told, in the words by which it is known to need no joining, and goes on as soon as it is
/// granted; what was in work meanwhile stays in work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_that_is_refused_goes_on_when_it_is_granted() {
    let imitation = Imitation::start(1_000).await;
    imitation.send(0, 1).await;
    let held = imitation.receive(1).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    imitation.cluster.request_errors(RDKafkaApiKey::Fetch, &[error; 3]);
    imitation.send(1, 1).await;
    let told = timeout(PATIENCE, imitation.subscription.receive(1)).await.expect("it is told");
    let told = told.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unauthorized, "{told}");
    assert!(told.to_string().contains("Kafka: Fetch from broker"), "{told}");
    imitation.settle(1).await;
    imitation.subscription.ack(&held[0]).await.unwrap();
    block_in_place(|| imitation.committed(2));
}

/// F14: a partition that had read enough, was lost, and is ours again is read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_partition_that_was_lost_is_read_again() {
    let imitation = Imitation::start(2).await;
    imitation.send(0, 20).await;
    let held = imitation.receive(2).await;
    // waits: for the look that finds the partition full
    tokio::time::sleep(Duration::from_millis(500)).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    imitation.cluster.request_errors(RDKafkaApiKey::Heartbeat, &[error]);
    let begun = Instant::now();
    while imitation.subscription.extend(&held[0], PATIENCE).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it is not lost");
        // waits: for the heartbeat that hears of it
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    imitation.settle(20).await;
    block_in_place(|| imitation.committed(20));
}
