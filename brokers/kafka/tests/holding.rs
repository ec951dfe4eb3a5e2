//! How much a consumer holds, and whose turn it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, ErrorKind, Fault, Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use tokio::time::timeout;

use crate::publishing::{event, publish};
use crate::server::{Server, unique};
use crate::subscribing::{self, ids, receive};

/// Longer than reading what is there takes, which nobody tells.
const QUIET: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// Publishes so many events of keys of their own, with so many bytes each.
async fn fill(server: &Server, topic: &str, count: u32, bytes: usize) {
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let events: Vec<_> = (0..count).map(|n| event(&n.to_string(), 1, bytes)).collect();
    assert_eq!(publish(&broker, topic, &events).await, vec![Outcome::Acked; count as usize]);
}

async fn open(
    server: &Server,
    topics: &[&str],
    change: impl FnOnce(&mut SubscriptionSettings),
) -> KafkaSubscription {
    let mut settings = SubscriptionSettings::new(topics[0], &unique("holding"));
    settings.topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
    change(&mut settings);
    KafkaSubscription::open(server.settings(), settings).await.unwrap()
}

/// INV-5: a long backlog keeps no other partition waiting, whichever comes first by its name.
#[tokio::test]
async fn what_stands_alone_does_not_wait_for_a_backlog() {
    let Some(server) = Server::shared().await else { return };
    let (long, short) =
        (server.topic("a-long", 1, &[]).await, server.topic("b-short", 1, &[]).await);
    fill(&server, &long, 300, 10).await;
    fill(&server, &short, 1, 10).await;
    let subscription = open(&server, &[&long, &short], |_| {}).await;
    // waits: until both were read ahead, or the one that is not alone comes first in any case
    tokio::time::sleep(QUIET).await;
    let mut before = 0;
    loop {
        let came = timeout(PATIENCE, subscription.receive(10)).await.expect("it comes").unwrap();
        for delivery in &came {
            subscription.ack(delivery).await.unwrap();
        }
        if came.iter().any(|delivery| *delivery.topic == *short) {
            break;
        }
        before += came.len();
    }
    assert!(before <= 100, "{before} of the backlog came before it");
}

/// INV-6: large records that nobody settles fill what may wait by their bytes, each partition its part; what is settled
/// makes room for the rest.
#[tokio::test]
async fn what_waits_is_bounded_by_its_bytes() {
    const EACH: usize = 100_000;
    let Some(server) = Server::shared().await else { return };
    let topics = [server.topic("heavy", 1, &[]).await, server.topic("heavy", 1, &[]).await];
    for topic in &topics {
        fill(&server, topic, 20, EACH).await;
    }
    let bound = |settings: &mut SubscriptionSettings| settings.unsettled_bytes_max = 10 * EACH;
    let subscription = open(&server, &[&topics[0], &topics[1]], bound).await;
    let (mut total, mut rounds) = (0, 0);
    while total < 40 {
        let mut held: Vec<Delivery> = Vec::new();
        while let Ok(came) = timeout(QUIET, subscription.receive(100)).await {
            held.extend(came.unwrap());
        }
        let mut each: BTreeMap<&str, usize> = BTreeMap::new();
        held.iter().for_each(|delivery| *each.entry(&delivery.topic).or_default() += 1);
        // Its half, and one that was under way.
        assert!(each.values().all(|count| (1..=6).contains(count)), "{each:?}, {total} before");
        for delivery in &held {
            subscription.ack(delivery).await.unwrap();
        }
        total += held.len();
        rounds += 1;
        assert!(rounds <= 20, "{total} of 40 came");
    }
    assert_eq!(total, 40);
}

/// INV-3, INV-4: a dead letter behind a record that is tried again later is not handed out once more after a restart, behind later ones
/// of its key; one that somebody sends again from the dead letters is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_stays_one_over_a_restart() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("dead", 1, &[]).await, unique("dead"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent = [event("held", 1, 10), event("b", 1, 10), event("b", 2, 10)];
    for event in &sent {
        assert_eq!(publish(&broker, &topic, &[Arc::clone(event)]).await, [Outcome::Acked]);
    }
    let first = subscribing::open(&server, &topic, &group).await;
    let came = receive(&first, 2).await;
    assert_eq!(ids(&came), [sent[0].id, sent[1].id]);
    first.nack(&came[0], Duration::from_secs(600), false).await.unwrap();
    let fault = Fault::new(ErrorKind::Invalid, "422");
    first.reject(&came[1], &fault).await.unwrap();
    let later = receive(&first, 1).await;
    assert_eq!(ids(&later), [sent[2].id]);
    first.ack(&later[0]).await.unwrap();
    first.close().await.unwrap();
    // What was done comes again, which the inbox knows; what was put aside it does not.
    let second = subscribing::open(&server, &topic, &group).await;
    let came = receive(&second, 2).await;
    assert_eq!(ids(&came), [sent[0].id, sent[2].id]);
    for delivery in &came {
        second.ack(delivery).await.unwrap();
    }
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&sent[1])]).await, [Outcome::Acked]);
    assert_eq!(ids(&receive(&second, 1).await), [sent[1].id], "it was sent again");
}
