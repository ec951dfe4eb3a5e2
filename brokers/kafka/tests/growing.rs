//! A topic that is given more partitions under load: where each key's records go, before and after.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Event, Outcome};
use postrider_kafka::{KafkaBroker, Notice, Notices};
use tokio::time::Instant;

use crate::publishing::{MURMUR2, event, publish};
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);
const BEFORE: usize = 1;
const AFTER: usize = 4;

type Told = Arc<Mutex<Vec<Notice>>>;

fn open(server: &Server, refresh: Duration) -> (KafkaBroker, Told) {
    let told = Told::default();
    let mut settings = server.settings();
    settings.refresh = refresh;
    settings.notices = Notices::to({
        let told = Arc::clone(&told);
        move |notice| told.lock().unwrap().push(notice.clone())
    });
    (KafkaBroker::new(settings).unwrap(), told)
}

/// One event of each key, the next when these are acknowledged, as the engine does it.
struct Carrier<'a> {
    broker: &'a KafkaBroker,
    topic: &'a str,
    round: u32,
}

impl Carrier<'_> {
    async fn carry(&mut self, bytes: usize) {
        let mut open: Vec<Arc<Event>> =
            MURMUR2.iter().map(|(key, _)| event(key, self.round, bytes)).collect();
        let begun = Instant::now();
        while !open.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "they are not taken");
            let outcomes = publish(self.broker, self.topic, &open).await;
            assert!(!outcomes.iter().any(|it| matches!(it, Outcome::Rejected(_))), "{outcomes:?}");
            let mut outcomes = outcomes.into_iter();
            open.retain(|_| outcomes.next() != Some(Outcome::Acked));
        }
        self.round += 1;
    }

    /// Carries until the partitions are told of, and returns the first round that was sent after that.
    async fn until_told(&mut self, told: &Told) -> u32 {
        let begun = Instant::now();
        while told.lock().unwrap().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "nobody tells");
            self.carry(10).await;
        }
        self.round - 1
    }
}

/// Each key's records up to that round are in its old partition, and from then on in its new one.
async fn assert_moved_in(server: &Server, topic: &str, moved: u32, rounds: u32) {
    let stored = server.stored(topic).await;
    for (key, hash) in MURMUR2 {
        let place = |round: u32| {
            let kind = format!("order.changed.{round}");
            let mut of_round = stored.iter().filter(|stored| {
                stored.key.as_deref() == Some(key.as_bytes())
                    && stored.header("ce_type") == Some(&kind)
            });
            of_round.next().map(|stored| usize::try_from(stored.partition).unwrap())
        };
        let hash = usize::try_from(hash & 0x7fff_ffff).unwrap();
        for round in 0..rounds {
            let wanted = hash % if round < moved { BEFORE } else { AFTER };
            assert_eq!(place(round), Some(wanted), "key {key}, round {round}, moved in {moved}");
        }
    }
}

/// INV-3, R070: that partitions were added is told with the first event that goes by them, also of a topic whose records
/// are sent one by one.
#[tokio::test]
async fn the_moment_that_is_told_is_the_moment_that_keys_move() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("grows", 1, &[("max.message.bytes", "20000")]).await;
    let (broker, told) = open(&server, Duration::from_secs(3));
    let mut carrier = Carrier { broker: &broker, topic: &topic, round: 0 };
    carrier.carry(10).await;
    server.add_partitions(&topic, AFTER).await;
    let moved = carrier.until_told(&told).await;
    assert!(moved > 1, "they are told of under load");
    for _ in 0..3 {
        carrier.carry(10).await;
    }
    assert_moved_in(&server, &topic, moved, carrier.round).await;
}

/// INV-3: a key that has moved does not go back where its records are sent one by one again, by a client that has not
/// looked at the topic since.
#[tokio::test]
async fn a_key_that_has_moved_does_not_go_back() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("grows", 1, &[("max.message.bytes", "20000")]).await;
    let (broker, told) = open(&server, Duration::from_secs(300));
    let mut carrier = Carrier { broker: &broker, topic: &topic, round: 0 };
    carrier.carry(10).await;
    server.limit_messages(&topic, 2_000_000).await;
    server.add_partitions(&topic, AFTER).await;
    // Too large by what was asked for before, so the topic is looked at again.
    let large = |n| [event("large", n, 30_000)];
    assert_eq!(publish(&broker, &topic, &large(1)).await, [Outcome::Acked]);
    assert_eq!(told.lock().unwrap().len(), 1);
    let moved = carrier.round;
    carrier.carry(10).await;
    server.limit_messages(&topic, 20_000).await;
    let refused = publish(&broker, &topic, &large(2)).await;
    assert!(matches!(refused[..], [Outcome::Rejected(_)]), "{refused:?}");
    for _ in 0..3 {
        carrier.carry(10).await;
    }
    assert_moved_in(&server, &topic, moved, carrier.round).await;
}
