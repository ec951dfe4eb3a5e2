//! Headers that are too many, or too long: of our own events, and of records that somebody else wrote.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{ErrorKind, Event, EventLimits, Fault, NewEvent, Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};

use crate::publishing::{event, publish};
use crate::server::{Server, Stored, unique};
use crate::subscribing::receive;

/// All headers of an event together.
const HEADERS_BYTES: usize = 16 * 1024;
const MANY: usize = 10_000;

fn with_headers(headers: impl IntoIterator<Item = (String, String)>) -> Arc<Event> {
    let mut new = NewEvent::new("order", "heavy", "order.placed").source("/shop");
    for (name, value) in headers {
        new = new.header(name, value);
    }
    Arc::new(new.bytes(b"1".to_vec(), "text/plain").event().clone())
}

fn long(bytes: usize) -> Vec<(String, String)> {
    vec![("long".to_owned(), "x".repeat(bytes))]
}

fn many(prefix: &str) -> Vec<(String, String)> {
    (0..MANY).map(|n| (format!("{prefix}{n}"), "x".to_owned())).collect()
}

/// F22: the sum of the headers counts, to the byte; and what came past that check is refused by the topic alone, with its
/// neighbours delivered.
#[tokio::test]
async fn headers_are_weighed_together() {
    let limits = EventLimits::default();
    let name = "long".len();
    limits.check(&with_headers(long(HEADERS_BYTES - name))).unwrap();
    let halves = |more: usize| {
        let half = HEADERS_BYTES / 2 - 1;
        [("a".to_owned(), "x".repeat(half)), ("b".to_owned(), "x".repeat(half + more))]
    };
    limits.check(&with_headers(halves(0))).unwrap();
    for heavy in [with_headers(halves(1)), with_headers(long(1_000_000)), with_headers(many("h"))] {
        let refused = limits.check(&heavy).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        assert!(refused.to_string().contains("headers"), "{refused}");
    }
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("heavy", 1, &[]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let batch = [event("1", 1, 10), with_headers(long(1_048_576)), event("2", 1, 10)];
    let outcomes = publish(&broker, &topic, &batch).await;
    let [Outcome::Acked, Outcome::Rejected(fault), Outcome::Acked] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(fault.kind, ErrorKind::TooLarge, "{fault}");
}

/// F22, INV-8: a stranger's records with 10,000 headers, with one that is nearly as long as a record can be, and with as
/// many attributes of `CloudEvents`, hold up nothing behind them, and each can be put aside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_headers_hold_up_nothing() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("stranger", 1, &[]).await, unique("stranger"));
    let dead = server.topic("stranger-dead", 1, &[]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    publish(&broker, &topic, &[event("0", 1, 10)]).await;
    let ours = server.stored(&topic).await.remove(0);
    let mixed = |headers: Vec<(String, String)>| Stored {
        headers: [ours.headers.clone(), headers].concat(),
        ..ours.clone()
    };
    let bare = |headers| Stored { headers, ..ours.clone() };
    let strange = [
        mixed(many("h")),
        mixed(many("ce_h")),
        mixed(long(900_000)),
        bare(many("h")),
        bare(long(900_000)),
    ];
    for record in &strange {
        server.store_aged(&topic, record, Duration::ZERO).await;
    }
    let behind = event("1", 1, 10);
    publish(&broker, &topic, std::slice::from_ref(&behind)).await;
    let mut settings = SubscriptionSettings::new(&topic, &group);
    settings.dead_letters = Some(dead.clone());
    let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    let first = receive(&subscription, 1).await.remove(0);
    subscription.ack(&first).await.unwrap();
    for (n, record) in strange.iter().enumerate() {
        let came = receive(&subscription, 1).await.remove(0);
        let fault = Fault::new(ErrorKind::Rejected, "not wanted");
        subscription.reject(&came, &fault).await.unwrap();
        let kept = server.stored(&dead).await;
        assert_eq!(kept.len(), n + 1);
        assert_eq!(kept[n].header("postrider-dead-topic"), Some(&*topic));
        // Attributes of the event stand in it as its own; the rest is kept as it came.
        let is_kept = |(name, value): &(String, String)| {
            name.starts_with("ce_") || kept[n].header(name) == Some(value)
        };
        assert!(record.headers.iter().all(is_kept), "{n}");
    }
    let last = receive(&subscription, 1).await.remove(0);
    assert_eq!(last.event.as_ref().unwrap().id, behind.id);
}
