//! A rebalance beside handlers that work for longer than it waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, ErrorKind, EventId, Outcome, Subscription as _};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use tokio::time::{Instant, sleep, timeout};

use crate::publishing::{event, publish};
use crate::server::{Server, unique};
use crate::subscribing::{ids, receive};

const VISIBILITY: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(60);
/// Neither member is taken for dead where the machine stands still.
const SESSION: Duration = Duration::from_secs(20);
/// How long each event of a key that goes on is in work.
const PACE: Duration = Duration::from_millis(30);

async fn open(server: &Server, topic: &str, group: &str) -> KafkaSubscription {
    let mut settings = SubscriptionSettings::new(topic, group);
    settings.session = SESSION;
    settings.visibility = VISIBILITY;
    KafkaSubscription::open(server.settings(), settings).await.unwrap()
}

/// Two keys of each of two partitions: one is in work for long, the other goes on.
struct Keys {
    busy: [String; 2],
    steady: [String; 2],
    /// The partition of each event.
    places: BTreeMap<EventId, usize>,
}

async fn fill(server: &Server, topic: &str) -> Keys {
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let probes: Vec<_> = (0..20).map(|n| event(&n.to_string(), 0, 10)).collect();
    assert_eq!(publish(&broker, topic, &probes).await, vec![Outcome::Acked; 20]);
    let mut of: [Vec<String>; 2] = Default::default();
    for stored in server.stored(topic).await {
        let key = String::from_utf8(stored.key.clone().unwrap()).unwrap();
        of[usize::try_from(stored.partition).unwrap()].push(key);
    }
    let [busy, steady] = [0, 1].map(|at| of.each_ref().map(|keys| keys[at].clone()));
    for n in 1..300 {
        let more = steady.each_ref().map(|key| event(key, n, 10));
        assert_eq!(publish(&broker, topic, &more).await, vec![Outcome::Acked; 2]);
    }
    let stored = server.stored(topic).await;
    let place =
        |stored: &crate::server::Stored| (stored.id(), usize::try_from(stored.partition).unwrap());
    Keys { busy, steady, places: stored.iter().map(place).collect() }
}

fn is_of(delivery: &Delivery, keys: &[String; 2]) -> bool {
    let event = delivery.event.as_ref().unwrap();
    keys.iter().any(|key| **key == *event.aggregate_id)
}

/// F14, F39, R080: a handler that works on in a rebalance, for longer than a delivery is its own: its partition goes to
/// the other member, which gets the event, and what it settles then is refused. Meanwhile the partition that stays goes on
/// with what was read before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_outlives_a_rebalance_settles_nothing_of_what_moved() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("orders", 2, &[]).await, unique("outlived"));
    let keys = fill(&server, &topic).await;
    let first = open(&server, &topic, &group).await;
    let (mut busy, mut steady): (Vec<Delivery>, Vec<Delivery>) = (Vec::new(), Vec::new());
    for delivery in receive(&first, 20).await {
        if is_of(&delivery, &keys.busy) {
            // As for a handler that says again and again that it is at work.
            first.extend(&delivery, PATIENCE).await.unwrap();
            busy.push(delivery);
        } else if is_of(&delivery, &keys.steady) {
            steady.push(delivery);
        } else {
            first.ack(&delivery).await.unwrap();
        }
    }
    assert_eq!((busy.len(), steady.len()), (2, 2));
    let opening = tokio::spawn({
        let (server, topic, group) = (Arc::clone(&server), topic.clone(), group.clone());
        async move {
            let second = open(&server, &topic, &group).await;
            let got = timeout(PATIENCE, second.receive(1)).await.expect("it gets a partition");
            (second, got.unwrap().remove(0))
        }
    });
    // Which partition each event came of that went on, and when.
    let mut went_on: Vec<(usize, Instant)> = Vec::new();
    while !opening.is_finished() {
        // waits: for the work of a handler
        sleep(PACE).await;
        for delivery in std::mem::take(&mut steady) {
            let _ = first.ack(&delivery).await;
        }
        while let Ok(came) = timeout(PACE, first.receive(10)).await {
            for delivery in came.unwrap() {
                went_on.push((keys.places[&delivery.event.as_ref().unwrap().id], Instant::now()));
                steady.push(delivery);
            }
        }
    }
    let (second, delivery) = opening.await.unwrap();
    let moved = keys.places[&delivery.event.as_ref().unwrap().id];
    let begun = went_on.iter().filter(|(place, _)| *place == moved).map(|(_, at)| *at).max();
    let meanwhile = went_on.iter().filter(|(_, at)| Some(*at) > begun).count();
    assert!(meanwhile >= 10, "only {meanwhile} of the other partition came while it waited");
    assert!(begun.unwrap().elapsed() >= VISIBILITY / 2, "it waits for the handler");
    let mut got = vec![delivery];
    while !got.iter().any(|delivery| is_of(delivery, &keys.busy)) {
        got.extend(timeout(PATIENCE, second.receive(10)).await.expect("it comes").unwrap());
    }
    for delivery in &busy {
        let settled = first.ack(delivery).await.map_err(|error| error.kind());
        let stays = keys.places[&ids(std::slice::from_ref(delivery))[0]] != moved;
        assert_eq!(settled, if stays { Ok(()) } else { Err(ErrorKind::Fenced) });
    }
    let is_busy = got.iter().find(|delivery| is_of(delivery, &keys.busy)).unwrap();
    assert!(
        busy.iter()
            .any(|delivery| ids(std::slice::from_ref(delivery))
                == ids(std::slice::from_ref(is_busy)))
    );
    second.ack(is_busy).await.unwrap();
}
