//! Consumer groups: what is committed, rebalances, and what is no event.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{
    Broker, Delivery, ErrorKind, EventId, Fault, Format, Layout, Outcome, Result, Subscription,
};
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription, SubscriptionSettings};
use rdkafka::admin::AdminOptions;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::publishing::{event, outgoing, publish};
use crate::server::{Server, unique};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn open(server: &Server, topic: &str, group: &str) -> Arc<KafkaSubscription> {
    open_for(server.settings(), topic, group, Duration::from_secs(2)).await
}

/// The same with a session of so long.
async fn open_for(
    kafka: KafkaSettings,
    topic: &str,
    group: &str,
    session: Duration,
) -> Arc<KafkaSubscription> {
    let mut settings = SubscriptionSettings::new(topic, group);
    settings.session = session;
    Arc::new(KafkaSubscription::open(kafka, settings).await.unwrap())
}

/// The same, with a topic for dead letters.
async fn bury(server: &Server, topic: &str, group: &str) -> Result<KafkaSubscription> {
    let mut settings = SubscriptionSettings::new(topic, group);
    settings.dead_letters = Some(format!("{topic}.dead"));
    KafkaSubscription::open(server.settings(), settings).await
}

pub(crate) async fn receive(subscription: &KafkaSubscription, count: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        let more = timeout(PATIENCE, subscription.receive(count - deliveries.len())).await;
        deliveries.extend(more.expect("it comes").unwrap());
    }
    deliveries
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<EventId> {
    deliveries.iter().map(|delivery| delivery.event.as_ref().unwrap().id).collect()
}

/// R080, F15: what is settled behind something that is not comes again with it after a restart; what is settled
/// in full does not, also when its consumer ends.
#[tokio::test]
async fn commits_pass_nothing_that_is_not_settled() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 1, &[]).await, unique("gap"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..3).map(|n| event(&n.to_string(), n, 10)).collect();
    assert_eq!(publish(&broker, &topic, &sent).await, vec![Outcome::Acked; 3]);
    let first = open(&server, &topic, &group).await;
    let deliveries = receive(&first, 3).await;
    for delivery in &deliveries[1..] {
        first.ack(delivery).await.unwrap();
    }
    drop(first);
    let second = open(&server, &topic, &group).await;
    let deliveries = receive(&second, 3).await;
    assert_eq!(ids(&deliveries), sent.iter().map(|event| event.id).collect::<Vec<_>>());
    for delivery in &deliveries {
        second.ack(delivery).await.unwrap();
    }
    drop(second);
    let third = open(&server, &topic, &group).await;
    let next = event("9", 9, 10);
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&next)]).await, [Outcome::Acked]);
    assert_eq!(ids(&receive(&third, 1).await), [next.id], "and nothing of before");
}

/// The members of a group, as its coordinator counts them.
async fn members(server: &Server, group: &str) -> usize {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.address());
    let group = group.to_owned();
    let count = move || {
        let consumer: BaseConsumer = config.create().unwrap();
        let found = consumer.fetch_group_list(Some(&group), PATIENCE).unwrap();
        found.groups().iter().map(|group| group.members().len()).sum()
    };
    spawn_blocking(count).await.unwrap()
}

/// A consumer that is closed has left its group when that is said, and what it settled is committed: the process may end, and
/// others need not wait for the end of its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_closed_has_left_the_group() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("closed", 1, &[]).await, unique("closed"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent = [event("1", 1, 10), event("2", 1, 10)];
    assert_eq!(publish(&broker, &topic, &sent).await, vec![Outcome::Acked; 2]);
    let mut settings = SubscriptionSettings::new(&topic, &group);
    settings.session = Duration::from_secs(45);
    let subscription = KafkaSubscription::open(server.settings(), settings.clone()).await.unwrap();
    let deliveries = receive(&subscription, 2).await;
    assert_eq!(members(&server, &group).await, 1);
    subscription.ack(&deliveries[0]).await.unwrap();
    subscription.close().await.unwrap();
    assert_eq!(members(&server, &group).await, 0);
    // It is not dropped: as a process that is gone would not.
    let next = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    assert_eq!(ids(&receive(&next, 1).await), [sent[1].id], "what was settled is committed");
    drop(subscription);
}

/// R070: events of other keys of the partition go on while one of a key is at work.
#[tokio::test]
async fn a_slow_key_holds_up_no_other() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 1, &[]).await, unique("slow"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let keys = ["slow", "slow", "a", "a", "b"];
    let mut sent = Vec::new();
    for (n, key) in (0..).zip(keys) {
        let event = event(key, n, 10);
        assert_eq!(publish(&broker, &topic, &[Arc::clone(&event)]).await, [Outcome::Acked]);
        sent.push(event.id);
    }
    let subscription = open(&server, &topic, &group).await;
    let deliveries = receive(&subscription, 3).await;
    assert_eq!(ids(&deliveries), [sent[0], sent[2], sent[4]], "the first of each key");
    subscription.ack(&deliveries[1]).await.unwrap();
    let next = receive(&subscription, 1).await;
    assert_eq!(ids(&next), [sent[3]]);
    subscription.ack(&deliveries[0]).await.unwrap();
    assert_eq!(ids(&receive(&subscription, 1).await), [sent[1]]);
}

/// F14, F39: a partition goes to another member when the handlers at work in it are done, and what they did is not
/// done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_waits_for_the_handlers_at_work() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 2, &[]).await, unique("rebalance"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..20).map(|n| event(&n.to_string(), n, 10)).collect();
    assert_eq!(publish(&broker, &topic, &sent).await, vec![Outcome::Acked; 20]);
    // Neither is taken for dead where the machine stands still.
    let member = || open_for(server.settings(), &topic, &group, Duration::from_secs(20));
    let first = member().await;
    let deliveries = receive(&first, 20).await;
    let second = member().await;
    // Nothing is handed out twice while the handlers work.
    let early = timeout(Duration::from_secs(1), second.receive(20)).await;
    assert!(early.is_err(), "{early:?}");
    for delivery in &deliveries {
        first.ack(delivery).await.unwrap();
    }
    let more: Vec<_> = (20..60).map(|n| event(&n.to_string(), n, 10)).collect();
    assert_eq!(publish(&broker, &topic, &more).await, vec![Outcome::Acked; 40]);
    let mut seen = Vec::new();
    let begun = Instant::now();
    let mut shares = [0, 0];
    while seen.len() < 40 {
        assert!(begun.elapsed() < PATIENCE, "{} of 40 came", seen.len());
        for (share, member) in shares.iter_mut().zip([&first, &second]) {
            let came = timeout(Duration::from_millis(200), member.receive(40)).await;
            for delivery in came.unwrap_or(Ok(Vec::new())).unwrap() {
                member.ack(&delivery).await.unwrap();
                seen.extend(ids(&[delivery]));
                *share += 1;
            }
        }
    }
    seen.sort();
    let mut expected: Vec<_> = more.iter().map(|event| event.id).collect();
    expected.sort();
    assert_eq!(seen, expected, "each once, and none of before");
    assert!(shares[1] > 0, "the second one has a partition: {shares:?}");
}

/// F21: what is no event comes as what it is, and goes aside with its bytes.
#[tokio::test]
async fn what_is_no_event_is_put_aside() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 1, &[]).await, unique("junk"));
    server.create(&format!("{topic}.dead"), 1, &[]).await;
    let (address, to) = (server.address(), topic.clone());
    let junk = move || {
        let producer: ThreadedProducer<DefaultProducerContext> =
            ClientConfig::new().set("bootstrap.servers", address).create().unwrap();
        let headers = OwnedHeaders::new().insert(Header { key: "x-origin", value: Some("legacy") });
        let record = BaseRecord::to(&to).key("k").payload(&b"\xff\x00junk"[..]).headers(headers);
        producer.send(record).unwrap();
        producer.flush(PATIENCE).unwrap();
    };
    spawn_blocking(junk).await.unwrap();
    let buried = async |group: &str| bury(&server, &topic, group).await;
    let subscription = buried(&group).await.unwrap();
    let delivery = receive(&subscription, 1).await.remove(0);
    let fault = delivery.event.clone().unwrap_err();
    assert_eq!(fault.kind, ErrorKind::Invalid);
    subscription.reject(&delivery, &fault).await.unwrap();
    let stored = server.stored(&format!("{topic}.dead")).await.remove(0);
    assert_eq!(stored.value.as_deref(), Some(&b"\xff\x00junk"[..]));
    assert_eq!(stored.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(stored.header("postrider-dead-topic"), Some(&*topic));
    assert_eq!(stored.header("postrider-dead-offset"), Some("0"));
    assert_eq!(stored.header("x-origin"), Some("legacy"));
    // A copy that cannot be kept lets nothing go.
    let broker = KafkaBroker::new(server.settings()).unwrap();
    assert_eq!(publish(&broker, &topic, &[event("1", 1, 10)]).await, [Outcome::Acked]);
    let subscription = buried(&unique("lost")).await.unwrap();
    let options = AdminOptions::new();
    server.admin().delete_topics(&[&format!("{topic}.dead")], &options).await.unwrap();
    // Without the topic nothing is begun, and the topic of the group itself is none.
    let begun = Instant::now();
    while buried(&unique("late")).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the server deletes when it comes to it");
    }
    let refused = buried(&unique("late")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unroutable, "{refused:?}");
    assert!(refused.to_string().contains("choose another one for `dead_letters`"), "{refused}");
    let mut own = SubscriptionSettings::new(&topic, &unique("own"));
    own.dead_letters = Some(topic.clone());
    let refused = KafkaSubscription::open(server.settings(), own).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused:?}");
    let delivery = receive(&subscription, 1).await.remove(0);
    let fault = Fault::new(ErrorKind::Rejected, "no");
    let refused = subscription.reject(&delivery, &fault).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unroutable, "{refused:?}");
    subscription.ack(&delivery).await.unwrap();
}

/// A dead letter of an event is written anew, and keeps headers that are nothing of ours.
#[tokio::test]
async fn a_dead_letter_keeps_foreign_headers() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 1, &[]).await, unique("kept"));
    server.create(&format!("{topic}.dead"), 1, &[]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    let mut outgoing = outgoing(&topic, &sent);
    outgoing.format = Format::Plain;
    let headers = [("X-Shard".to_owned(), "7".parse().unwrap())].into();
    outgoing.layout = Some(Arc::new(Layout { key: None, headers }));
    assert_eq!(broker.publish(&[outgoing]).await.unwrap(), [Outcome::Acked]);
    let subscription = bury(&server, &topic, &group).await.unwrap();
    let delivery = receive(&subscription, 1).await.remove(0);
    assert_eq!(delivery.event.as_ref().unwrap().id, sent.id);
    let fault = Fault::new(ErrorKind::Rejected, "no");
    subscription.reject(&delivery, &fault).await.unwrap();
    let stored = server.stored(&format!("{topic}.dead")).await.remove(0);
    assert_eq!(stored.binary().id, sent.id);
    assert_eq!(stored.header("X-Shard"), Some("7"));
    assert!(stored.header("postrider-dead-reason").is_some());
    assert_eq!(stored.header("postrider-id"), None, "what is ours stands there in one way");
}

/// A dead letter that its topic has no room for keeps its place and the reason, and lets go what it holds up.
#[tokio::test]
async fn a_dead_letter_that_is_too_large_keeps_its_place() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 1, &[]).await, unique("large"));
    server.create(&format!("{topic}.dead"), 1, &[("max.message.bytes", "4000")]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let (large, next) = (event("1", 1, 9_000), event("1", 2, 10));
    assert_eq!(publish(&broker, &topic, &[large]).await, [Outcome::Acked]);
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&next)]).await, [Outcome::Acked]);
    let subscription = bury(&server, &topic, &group).await.unwrap();
    let delivery = receive(&subscription, 1).await.remove(0);
    let fault = Fault::new(ErrorKind::Rejected, "no".repeat(3_000));
    subscription.reject(&delivery, &fault).await.unwrap();
    let stored = server.stored(&format!("{topic}.dead")).await.remove(0);
    assert_eq!(stored.header("postrider-dead-topic"), Some(&*topic));
    assert_eq!(stored.header("postrider-dead-offset"), Some("0"));
    assert!(stored.header("postrider-dead-left-out").is_some());
    assert_eq!(stored.key.as_deref(), Some(&b"1"[..]));
    assert_eq!(stored.value.as_deref(), Some(&b""[..]), "and no tombstone");
    assert_eq!(ids(&receive(&subscription, 1).await), [next.id], "its key goes on");
}

/// A topic that is not there is named before anything is waited for.
#[tokio::test]
async fn a_topic_that_is_not_there_is_named() {
    let Some(server) = Server::shared().await else { return };
    let topic = unique("nothing");
    let settings = SubscriptionSettings::new(&topic, "group");
    let refused = KafkaSubscription::open(server.settings(), settings).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unroutable);
    assert!(refused.to_string().contains(&topic), "{refused}");
}

/// F5, F10: a consumer that waits while the server is killed goes on when it is back, and does nothing twice that
/// it had settled long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_consumer_outlives_its_server() {
    let Some(mut server) = Server::own().await else { return };
    let topic = server.topic("orders", 1, &[]).await;
    let broker = KafkaBroker::new(server.usual_settings()).unwrap();
    let sent = [event("1", 1, 10), event("1", 2, 10)];
    while publish(&broker, &topic, &sent[..1]).await != [Outcome::Acked] {}
    let session = Duration::from_secs(2);
    let subscription = open_for(server.usual_settings(), &topic, "billing", session).await;
    let delivery = receive(&subscription, 1).await.remove(0);
    subscription.ack(&delivery).await.unwrap();
    block_in_place(|| {
        server.kill();
        server.run().unwrap();
    });
    let begun = Instant::now();
    while !matches!(
        broker.publish(&[crate::publishing::outgoing(&topic, &sent[1])]).await.as_deref(),
        Ok([Outcome::Acked])
    ) {
        assert!(begun.elapsed() < PATIENCE);
    }
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE * 2);
        // That the servers are away is an error, and then it goes on.
        let Ok(deliveries) = timeout(PATIENCE, subscription.receive(1)).await.unwrap() else {
            continue;
        };
        // After an error there may be none: then the servers answer again.
        let Some(delivery) = deliveries.first() else { continue };
        let last = ids(&deliveries) == [sent[1].id];
        // After the fall of its group a member may have lost what it held.
        let _ = subscription.ack(delivery).await;
        if last {
            break;
        }
    }
}
