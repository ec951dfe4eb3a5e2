//! Other producers' transactions: what they hold back, and what they leave behind.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::publishing::{event, publish};
use crate::server::{Server, unique};
use crate::subscribing::{ids, receive};

const PATIENCE: Duration = Duration::from_secs(20);

/// A producer with a transaction that has written to a topic, and is open.
async fn open_transaction(server: &Server, topic: &str) -> BaseProducer {
    let (mut config, topic) = (server.client(), topic.to_owned());
    config.set("transactional.id", unique("other"));
    let begun = spawn_blocking(move || {
        let producer: BaseProducer = config.create().unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        producer.send(BaseRecord::to(&topic).key("k").payload("half")).unwrap();
        producer.flush(PATIENCE).unwrap();
        producer
    });
    begun.await.unwrap()
}

async fn abort(producer: BaseProducer) {
    spawn_blocking(move || producer.abort_transaction(PATIENCE).unwrap()).await.unwrap();
}

async fn until(is_it: impl Fn() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_it() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        // waits: who holds a partition up is looked for now and then, and nobody is called when it is found
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// INV-8: a transaction that its producer leaves open holds up whoever reads what is committed, and that is said, with what ends
/// it, for as long as it lasts; then what stands behind it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_left_open_is_told_of() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("open", 1, &[]).await, unique("open"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent = [event("1", 1, 10), event("2", 1, 10)];
    assert_eq!(publish(&broker, &topic, &sent[..1]).await, [Outcome::Acked]);
    let mut settings = SubscriptionSettings::new(&topic, &group);
    settings.transaction_max = Duration::from_secs(1);
    let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    let first = receive(&subscription, 1).await;
    subscription.ack(&first[0]).await.unwrap();
    let other = open_transaction(&server, &topic).await;
    assert_eq!(publish(&broker, &topic, &sent[1..]).await, [Outcome::Acked]);
    assert_eq!(subscription.hindrance(), None, "it may end yet");
    until(|| subscription.hindrance().is_some(), "nobody is told").await;
    let said = subscription.hindrance().unwrap();
    assert!(said.contains(&format!("{topic}/0 at offset 1:")), "{said}");
    abort(other).await;
    until(|| subscription.hindrance().is_none(), "it is told of for ever").await;
    assert_eq!(ids(&receive(&subscription, 1).await), [sent[1].id]);
}

/// What is left of others' transactions behind the last record, their ends and what they took back, is settled with what stands
/// before it: the group lags behind by nothing, and nobody says later that so much was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_transactions_leave_behind_is_settled() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("ends", 1, &[]).await, unique("ends"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&sent)]).await, [Outcome::Acked]);
    let settings = SubscriptionSettings::new(&topic, &group);
    let subscription = KafkaSubscription::open(server.settings(), settings.clone()).await.unwrap();
    let held = receive(&subscription, 1).await;
    abort(open_transaction(&server, &topic).await).await;
    // Its end is written after the servers have said that it has one.
    until_unsettled(&server, &topic, &group, 3).await;
    subscription.ack(&held[0]).await.unwrap();
    until_unsettled(&server, &topic, &group, 0).await;
    subscription.close().await.unwrap();
    // While nobody is there, and nothing else comes.
    abort(open_transaction(&server, &topic).await).await;
    until_unsettled(&server, &topic, &group, 2).await;
    let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    until_unsettled(&server, &topic, &group, 0).await;
    assert_eq!(publish(&broker, &topic, &[event("1", 2, 10)]).await, [Outcome::Acked]);
    receive(&subscription, 1).await;
    assert_eq!(server.unsettled(&topic, &group).await, Some(1), "and nothing that is not");
}

async fn until_unsettled(server: &Server, topic: &str, group: &str, records: i64) {
    let begun = Instant::now();
    while server.unsettled(topic, group).await != Some(records) {
        assert!(
            begun.elapsed() < PATIENCE,
            "not {records}: {}",
            server.standing(topic, group).await
        );
    }
}
