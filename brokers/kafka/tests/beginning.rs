//! Where a group begins that is to hear of what comes from now on alone.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{ErrorKind, Outcome, Result, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminOptions, NewPartitions};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, Producer};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::publishing::{event, publish};
use crate::server::{Server, unique};
use crate::subscribing::{ids, receive};

const PATIENCE: Duration = Duration::from_secs(20);

async fn open(server: &Server, topics: &[&str], group: &str) -> Result<KafkaSubscription> {
    let mut settings = SubscriptionSettings::new(topics[0], group);
    settings.topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
    settings.session = Duration::from_secs(2);
    settings.from_now = true;
    KafkaSubscription::open(server.settings(), settings).await
}

/// INV-1, R080: a group begins with what comes after it was opened, and what was handed out and not settled comes again
/// after a crash, though nothing of the group's was ever committed by a settlement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_since_the_group_began_is_not_passed_over() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("from-now", 2, &[]).await, unique("from-now"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let before: Vec<_> = (0..4).map(|n| event(&n.to_string(), n, 10)).collect();
    assert_eq!(publish(&broker, &topic, &before).await, vec![Outcome::Acked; 4]);
    let first = open(&server, &[&topic], &group).await.unwrap();
    let since = event("1", 7, 10);
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&since)]).await, [Outcome::Acked]);
    assert_eq!(ids(&receive(&first, 1).await), [since.id], "and nothing of before");
    // It dies with this in its hands. More comes before another one is there.
    drop(first);
    let meanwhile = event("2", 8, 10);
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&meanwhile)]).await, [Outcome::Acked]);
    let second = open(&server, &[&topic], &group).await.unwrap();
    let mut came = ids(&receive(&second, 2).await);
    came.sort_unstable();
    assert_eq!(came, [since.id, meanwhile.id]);
    // One that joins beside it begins nothing anew.
    drop(open(&server, &[&topic], &group).await.unwrap());
}

/// R080: a partition that is added later begins with its beginning, also for what came before anybody of the group knew it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_comes_later_begins_with_its_beginning() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("grows", 1, &[]).await, unique("grows"));
    drop(open(&server, &[&topic], &group).await.unwrap());
    let grown = NewPartitions::new(&topic, 4);
    server.admin().create_partitions(&[grown], &AdminOptions::new()).await.unwrap();
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..8).map(|n| event(&n.to_string(), n, 10)).collect();
    assert_eq!(publish(&broker, &topic, &sent).await, vec![Outcome::Acked; 8]);
    let subscription = open(&server, &[&topic], &group).await.unwrap();
    let mut came = ids(&receive(&subscription, 8).await);
    came.sort_unstable();
    assert_eq!(came, sent.iter().map(|event| event.id).collect::<Vec<_>>());
}

/// R121: a group without a place begins with what is too old for an inbox, and one that has settled something does not; nor one that
/// begins with what comes from now on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_says_when_it_begins_with_what_is_old() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("old", 2, &[]).await, unique("old"));
    let open_all = async || {
        let mut settings = SubscriptionSettings::new(&topic, &group);
        settings.session = Duration::from_secs(2);
        KafkaSubscription::open(server.settings(), settings).await.unwrap()
    };
    let subscription = open_all().await;
    let old = async |subscription: &KafkaSubscription, age| {
        timeout(PATIENCE, subscription.begins_before(age)).await.unwrap().unwrap()
    };
    assert!(!old(&subscription, Duration::ZERO).await, "there is nothing");
    let broker = KafkaBroker::new(server.settings()).unwrap();
    assert_eq!(publish(&broker, &topic, &[event("1", 1, 10)]).await, [Outcome::Acked]);
    // Younger than this is only what comes now.
    while !old(&subscription, Duration::ZERO).await {
        tokio::task::yield_now().await;
    }
    assert!(!old(&subscription, Duration::from_secs(3_600)).await, "it is younger than that");
    assert!(!old(&subscription, Duration::MAX).await);
    let from_now = self::open(&server, &[&topic], &unique("from-now")).await.unwrap();
    assert!(!old(&from_now, Duration::ZERO).await);
    for delivery in receive(&subscription, 1).await {
        subscription.ack(&delivery).await.unwrap();
    }
    // Leaving commits what is settled.
    subscription.close().await.unwrap();
    assert!(!old(&open_all().await, Duration::ZERO).await, "it has a place");
}

/// R121: a group that begins while its topic gets its first records does not begin with what is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_just_now_is_not_old() {
    let Some(server) = Server::shared().await else { return };
    let mut beside = 0;
    for round in 0..5 {
        let topic = server.topic("young", 8, &[]).await;
        let settings = SubscriptionSettings::new(&topic, &unique("young"));
        let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
        let broker = KafkaBroker::new(server.settings()).unwrap();
        let publishing = tokio::spawn(async move {
            for n in 0..400 {
                let sent = [event(&format!("{round}-{n}"), n, 10)];
                assert_eq!(publish(&broker, &topic, &sent).await, [Outcome::Acked]);
            }
        });
        while !publishing.is_finished() {
            // A server that is busy may not say.
            let Ok(old) = subscription.begins_before(Duration::from_secs(3_600)).await else {
                continue;
            };
            assert!(!old);
            beside += usize::from(!publishing.is_finished());
        }
        publishing.await.unwrap();
    }
    assert!(beside > 5, "it was asked only {beside} times while they came");
}

/// Where a group at work has no place in a topic, nobody may write down where it begins there, and nothing is guessed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_at_work_gets_no_beginning_in_another_topic() {
    let Some(server) = Server::shared().await else { return };
    let (old, new) = (server.topic("old", 1, &[]).await, server.topic("new", 1, &[]).await);
    let group = unique("another");
    let at_work = open(&server, &[&old], &group).await.unwrap();
    let refused = open(&server, &[&old, &new], &group).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
    assert!(refused.to_string().contains(&new), "{refused}");
    at_work.close().await.unwrap();
    open(&server, &[&old, &new], &group).await.unwrap();
}

/// Nobody who looks for a topic makes it, also where the servers would let everybody: an event goes to no topic that
/// somebody mistyped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_looked_for_is_not_made() {
    let Some(server) = Server::with("auto.create.topics.enable=true", &[]).await else { return };
    let topic = unique("mistyped");
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let outcomes = publish(&broker, &topic, &[event("1", 1, 10)]).await;
    assert!(matches!(&outcomes[..], [Outcome::Unroutable(_)]), "{outcomes:?}");
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.address());
    spawn_blocking(move || {
        // The control: for a producer that asks as others do this server makes a topic, a moment later.
        let (producer, other): (BaseProducer, _) = (config.create().unwrap(), unique("made"));
        let asked = || producer.client().fetch_metadata(Some(&other), PATIENCE).unwrap();
        assert!((0..100).any(|_| asked().topics()[0].error().is_none()));
        let consumer: BaseConsumer = config.create().unwrap();
        let all = consumer.fetch_metadata(None, PATIENCE).unwrap();
        let names: Vec<_> = all.topics().iter().map(|topic| topic.name()).collect();
        assert!(names.contains(&&*other) && !names.contains(&&*topic), "{names:?}");
    })
    .await
    .unwrap();
}
