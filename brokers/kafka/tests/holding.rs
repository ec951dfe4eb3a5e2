//! How much a consumer holds, and whose turn it is.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{Delivery, Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use tokio::time::timeout;

use crate::publishing::{event, publish};
use crate::server::{Server, unique};

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
