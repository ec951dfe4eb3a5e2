//! Records that nobody can read: what is behind them, and beside them, goes on, or somebody is told.

use std::time::Duration;

use postrider_core::{Fault, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use tokio::time::timeout;

use crate::publishing::{event, publish};
use crate::server::{Server, unique};
use crate::subscribing::receive;

const PATIENCE: Duration = Duration::from_secs(60);

/// INV-8, F21: a header whose name is not UTF-8, which no server looks at, makes a dead letter of its record and of no
/// other; it holds up nothing, and no member of the group ends at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_is_no_text_stops_nobody() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("latin", 1, &[]).await, unique("latin"));
    let dead = server.topic("latin-dead", 1, &[]).await;
    server.produce_named(&topic, b"caf\xe9", b"espresso").await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let behind = event("1", 1, 10);
    publish(&broker, &topic, std::slice::from_ref(&behind)).await;
    let mut settings = SubscriptionSettings::new(&topic, &group);
    settings.dead_letters = Some(dead.clone());
    let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    let came = receive(&subscription, 2).await;
    let fault = came[0].event.as_ref().unwrap_err();
    assert!(fault.detail.contains("not UTF-8"), "{fault:?}");
    assert_eq!(came[1].event.as_ref().unwrap().id, behind.id);
    subscription.reject(&came[0], &Fault::clone(fault)).await.unwrap();
    let kept = server.stored(&dead).await;
    assert_eq!(kept[0].value.as_deref(), Some(&b"espresso"[..]));
    assert!(kept[0].header("postrider-dead-reason").unwrap().contains("not UTF-8"));
    // The control: the same record with a name that is text has its headers.
    server.produce_named(&topic, b"coffee", b"espresso").await;
    let came = receive(&subscription, 1).await;
    let fault = came[0].event.as_ref().unwrap_err().clone();
    subscription.reject(&came[0], &fault).await.unwrap();
    assert_eq!(server.stored(&dead).await[1].header("coffee"), Some("x"));
}

/// INV-8: a batch that the library cannot unpack stands in its partition for ever, and the library says no more than a
/// code. Who receives is told where, and other partitions go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_cannot_be_read_is_named() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("bomb", 1, &[]).await, unique("bomb"));
    let other = server.topic("well", 1, &[]).await;
    server.produce_bomb(&topic, 128 * 1024 * 1024).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    publish(&broker, &topic, &[event("1", 1, 10)]).await;
    let beside = event("2", 1, 10);
    publish(&broker, &other, std::slice::from_ref(&beside)).await;
    let mut settings = SubscriptionSettings::new(&topic, &group);
    settings.topics.push(other);
    settings.visibility = Duration::from_secs(2);
    let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    let came = receive(&subscription, 1).await;
    assert_eq!(came[0].event.as_ref().unwrap().id, beside.id);
    subscription.ack(&came[0]).await.unwrap();
    let told = timeout(PATIENCE, subscription.receive(1)).await.expect("it is told");
    let told = told.unwrap_err().to_string();
    assert!(told.contains(&format!("stand still: {topic}/0;")), "{told}");
}
