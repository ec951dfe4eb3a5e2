//! Headers that are too many, or too long: of our own events, and of messages that somebody else wrote.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use postrider_core::{Broker, ErrorKind, Event, EventId, Fault, NewEvent, Outcome, Subscription};
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::timeout;

use crate::publishing::{event, outgoing};
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(30);
const MANY: usize = 10_000;
/// Of a message's headers servers take 64 KiB: so many short ones, or one that is nearly as long.
const TAKEN: usize = 6_000;
const LONG: usize = 65_300;

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

fn many(count: usize, prefix: &str) -> Vec<(String, String)> {
    (0..count).map(|n| (format!("{prefix}{n}"), "x".to_owned())).collect()
}

/// F22: what came past the check of the headers' sum is refused by the server alone, with its neighbours delivered, in one header,
/// in two, or in ten thousand; and as many as the server takes arrive.
#[tokio::test]
async fn headers_that_are_too_heavy_together_are_refused_alone() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("SHOP", "shop.>").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let halves = [("a".to_owned(), "x".repeat(600_000)), ("b".to_owned(), "x".repeat(600_000))];
    let too_many = with_headers(many(MANY, "h"));
    let heavy = [with_headers(halves), with_headers(long(1_048_576)), too_many];
    for (n, heavy) in heavy.into_iter().enumerate() {
        let n = n as u32;
        let events = [event(&format!("a{n}"), 1, 10), heavy, event(&format!("b{n}"), 1, 10)];
        let batch: Vec<_> = events.iter().map(|event| outgoing("shop.order", event)).collect();
        let outcomes = broker.publish(&batch).await.unwrap();
        let [Outcome::Acked, Outcome::Rejected(fault), Outcome::Acked] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(fault.kind, ErrorKind::TooLarge, "{fault}");
    }
    let crowd = with_headers(many(1_000, "h"));
    until_acked(&broker, "shop.order", &crowd).await;
    assert_eq!(stream.get_info().await.unwrap().state.messages, 7);
}

/// F22, INV-8: a stranger's messages with as many headers as a server takes, with one that is nearly as long, and with thousands of
/// attributes of `CloudEvents`, hold up nothing behind them, and each can be put aside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_headers_hold_up_nothing() {
    let Some(server) = Server::start() else { return };
    let (_shop, dead) =
        (server.stream("SHOP", "shop.>").await, server.stream("DEAD", "dead").await);
    let id = EventId::mint().to_string();
    let event_of =
        [("ce-specversion", "1.0"), ("ce-id", &*id), ("ce-source", "/s"), ("ce-type", "t")];
    let (event_of, routers): (&[_], &[_]) = (&event_of, &[("id", &*id)]);
    let strange = [
        (event_of, many(TAKEN, "h")),
        (event_of, many(4_000, "ce-h")),
        (event_of, long(LONG)),
        (routers, many(TAKEN, "h")),
        (routers, long(LONG)),
        (&[], many(TAKEN, "h")),
        (&[], long(LONG)),
    ];
    let client = server.jetstream().await;
    for (own, besides) in &strange {
        let mut headers = HeaderMap::new();
        own.iter().for_each(|(name, value)| headers.insert(*name, *value));
        besides.iter().for_each(|(name, value)| headers.insert(&**name, &**value));
        let sent = client.publish_with_headers("shop.order", headers, "{}".into()).await;
        sent.unwrap().await.unwrap();
    }
    let behind = event("1", 1, 10);
    let broker = NatsBroker::new(server.settings()).unwrap();
    until_acked(&broker, "shop.order", &behind).await;
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.dead_letters = Some("dead".to_owned());
    let subscription = NatsSubscription::open(server.settings(), settings).await.unwrap();
    let (mut came, mut last) = (0, None);
    while last.is_none() {
        let received = timeout(PATIENCE, subscription.receive(10)).await.expect("it comes");
        for delivery in received.unwrap() {
            came += 1;
            if delivery.event.as_ref().is_ok_and(|event| event.id == behind.id) {
                last = Some(came);
                continue;
            }
            let fault = Fault::new(ErrorKind::Rejected, "not wanted");
            subscription.reject(&delivery, &fault).await.unwrap();
        }
    }
    assert_eq!(last, Some(strange.len() + 1));
    assert_eq!(dead.get_info().await.unwrap().state.messages, strange.len() as u64);
}
