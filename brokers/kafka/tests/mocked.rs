//! Answers that a real cluster rarely gives, from the library's own imitation of one.

use std::time::Duration;

use postrider_core::{Broker, ErrorKind, EventId, Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription, SubscriptionSettings};
use postrider_testkit::carry::{assert_in_order, carry as carry_many, until_acked};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::publishing::{event, outgoing};

/// A loaded machine takes long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Publishes one event, and again until it is acknowledged. What became of it each time.
async fn carry(broker: &KafkaBroker, n: u32) -> Vec<Outcome> {
    let batch = [outgoing("orders", &event("1", n, 10))];
    let mut outcomes = Vec::new();
    for _ in 0..10 {
        match broker.publish(&batch).await {
            Ok(mut came) => outcomes.push(came.remove(0)),
            // Another machine's load: it was not connected in time.
            Err(error) => assert_eq!(error.kind(), postrider_core::ErrorKind::Unavailable),
        }
        if outcomes.last() == Some(&Outcome::Acked) {
            return outcomes;
        }
    }
    panic!("{outcomes:?}");
}

fn settings(cluster: &MockCluster<'static, impl rdkafka::ClientContext>) -> KafkaSettings {
    let mut settings = KafkaSettings::new(&cluster.bootstrap_servers());
    settings.deadline = Duration::from_secs(3);
    settings
}

/// A gap that the client cannot close ends it for good; a new one takes its place, and the event that was
/// refused is not said to be there.
#[tokio::test]
async fn a_client_that_gave_up_for_good_is_replaced() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    assert_eq!(carry(&broker, 1).await.last(), Some(&Outcome::Acked));
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let outcomes = carry(&broker, 2).await;
    assert!(matches!(outcomes[0], Outcome::Hindered(_)), "{outcomes:?}");
    assert_eq!(carry(&broker, 3).await, [Outcome::Acked], "and it goes on");
}

/// INV-1, INV-5: that the cluster does not say in time how a topic stands is no fault of an event that is alone in its batch. Others
/// may have been acknowledged meanwhile, and it would be a dead letter in the end.
#[tokio::test]
async fn a_cluster_that_is_slow_to_speak_of_a_topic_blames_no_event() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    assert_eq!(carry(&broker, 1).await.last(), Some(&Outcome::Acked));
    cluster.create_topic("others", 1, 1).unwrap();
    cluster.broker_round_trip_time(1, Duration::from_secs(10)).unwrap();
    let said = broker.publish(&[outgoing("others", &event("1", 2, 10))]).await.unwrap();
    let [Outcome::Hindered(fault)] = &said[..] else { panic!("{said:?}") };
    assert!(fault.detail.contains("did not answer in time"), "{fault}");
    let both = [outgoing("others", &event("1", 2, 10)), outgoing("others", &event("2", 2, 10))];
    let error = broker.publish(&both).await.unwrap_err();
    assert_eq!(error.kind(), postrider_core::ErrorKind::Unavailable, "which names no event");
}

/// INV-1, INV-5: a partition without a leader takes nothing, which is no fault of its events, and is named; the other one
/// goes on.
#[tokio::test]
async fn a_partition_without_a_leader_is_no_events_fault() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 2, 1).unwrap();
    cluster.partition_leader("orders", 1, None).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    let mut left: Vec<_> = (0..20).map(|key: u32| event(&key.to_string(), 1, 10)).collect();
    let mut said = Vec::new();
    for _ in 0..2 {
        let batch: Vec<_> = left.iter().map(|event| outgoing("orders", event)).collect();
        let mut outcomes = broker.publish(&batch).await.unwrap().into_iter();
        left.retain(|_| match outcomes.next().unwrap() {
            Outcome::Acked => false,
            Outcome::Hindered(fault) => {
                said.push(fault.to_string());
                true
            }
            other => panic!("{other:?}"),
        });
    }
    assert!(!left.is_empty() && left.len() < 20, "each has some: {}", left.len());
    let named = "these partitions have no leader: 1;";
    assert!(said.last().unwrap().contains(named), "{said:?}");
    cluster.partition_leader("orders", 1, Some(1)).unwrap();
    for event in &left {
        until_acked(&broker, "orders", event).await;
    }
}

fn reader(cluster: &MockCluster<'static, impl rdkafka::ClientContext>) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "test");
    config.create().unwrap()
}

/// The ids in the one partition of a topic, in its order.
fn ids(consumer: &BaseConsumer, topic: &str) -> Vec<EventId> {
    let (_, end) = consumer.fetch_watermarks(topic, 0, PATIENCE).unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut ids = Vec::new();
    while ids.len() < usize::try_from(end).unwrap() {
        let message = consumer.poll(PATIENCE).expect("it comes").unwrap();
        let headers = message.headers().unwrap();
        let id = headers.iter().find(|header| header.key == "ce_id").unwrap();
        ids.push(std::str::from_utf8(id.value.unwrap()).unwrap().parse().unwrap());
    }
    ids
}

/// A client is replaced again and again, in the middle of batches of many keys: each key is in its order, and nothing
/// that was acknowledged is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_replaced_in_mid_batch_keeps_the_order() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    let carrying = tokio::spawn(async move { carry_many(&broker, "orders", 10, 300).await });
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    let reader = reader(&cluster);
    let mut faults = 0;
    for round in 1..=5 {
        let arrived = || reader.fetch_watermarks("orders", 0, PATIENCE).unwrap().1;
        while !carrying.is_finished() && tokio::task::block_in_place(arrived) < round * 400 {}
        faults += usize::from(!carrying.is_finished());
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    }
    let sent = carrying.await.unwrap();
    assert_eq!(faults, 5, "each fell into the run");
    let ids = tokio::task::block_in_place(|| ids(&reader, "orders"));
    assert_in_order(&ids, &sent);
}

/// F25: what a cluster suffers from passes, and kills no event.
#[tokio::test]
async fn what_passes_is_waited_for() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    carry(&broker, 1).await;
    for error in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
    ] {
        cluster.request_errors(RDKafkaApiKey::Produce, &[error, error]);
        let outcomes = carry(&broker, 2).await;
        let (last, before) = outcomes.split_last().unwrap();
        assert_eq!(*last, Outcome::Acked);
        assert!(
            before.iter().all(|it| matches!(it, Outcome::Hindered(_))),
            "{error:?}: {before:?}"
        );
    }
    // Who may not write has a person to ask, not a retry to wait for.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let batch = [outgoing("orders", &event("1", 3, 10))];
    let outcomes = broker.publish(&batch).await.unwrap();
    let [Outcome::Unroutable(fault)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(fault.detail.contains("WRITE"), "{fault}");
}

/// INV-8: a member whose group's coordinator stands still, while the servers of its topic answer, says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_stands_still_is_told_of() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    cluster.partition_leader("orders", 0, Some(1)).unwrap();
    cluster.coordinator(MockCoordinator::Group("billing".to_owned()), 2).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    carry(&broker, 1).await;
    let mut of = SubscriptionSettings::new("orders", "billing");
    of.session = Duration::from_secs(6);
    let subscription = KafkaSubscription::open(settings(&cluster), of).await.unwrap();
    let first = crate::subscribing::receive(&subscription, 1).await;
    subscription.ack(&first[0]).await.unwrap();
    assert_eq!(subscription.hindrance(), None);
    cluster.broker_round_trip_time(2, Duration::from_secs(600)).unwrap();
    let begun = tokio::time::Instant::now();
    let said = loop {
        if let Some(said) = subscription.hindrance() {
            break said;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody is told");
        // waits: the library reports now and then, and nobody is called when it does
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let coordinator = cluster.bootstrap_servers();
    let coordinator = coordinator.split(',').nth(1).unwrap();
    assert!(said.contains(coordinator), "{said}");
}

/// INV-8: whom the group does not let in says why, and does not seem to have nothing to do: at its start, and where it has to join
/// anew later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_the_group_does_not_let_in_says_why() {
    for (error, kind, said) in [
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL,
            ErrorKind::Conflict,
            "another program is in this group",
        ),
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT,
            ErrorKind::Config,
            "choose a `session`",
        ),
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED,
            ErrorKind::Conflict,
            "`group.max.size`",
        ),
    ] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let of = SubscriptionSettings::new("orders", "billing");
        let subscription = KafkaSubscription::open(settings(&cluster), of.clone()).await.unwrap();
        cluster.request_errors(RDKafkaApiKey::JoinGroup, &[error; 100]);
        let refused = KafkaSubscription::open(settings(&cluster), of).await.unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
        // The other one was asked to join anew for its sake, or is when it is not known any more.
        cluster.request_errors(
            RDKafkaApiKey::Heartbeat,
            &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID],
        );
        let told = tokio::time::timeout(PATIENCE, subscription.receive(1)).await.unwrap();
        assert!(told.unwrap_err().to_string().contains(said));
    }
}
