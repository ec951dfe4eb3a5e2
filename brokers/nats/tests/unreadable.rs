//! Messages over which the client gives its connection up: other programs send them, and no server looks at them.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Stream;
use postrider_core::{Delivery, ErrorKind, EventId, Subscription};
use postrider_nats::{
    Credentials, NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings,
};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, timeout};

use crate::publishing::event;
use crate::raw::Raw;
use crate::server::{Server, received};

const PATIENCE: Duration = Duration::from_secs(60);

/// How long until a message comes again.
const VISIBILITY: Duration = Duration::from_secs(1);

async fn group(nats: NatsSettings, subject: &str) -> NatsSubscription {
    group_for(nats, subject, VISIBILITY).await
}

/// The same, and what comes is its own for so long.
async fn group_for(nats: NatsSettings, subject: &str, time: Duration) -> NatsSubscription {
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = Some(subject.to_owned());
    settings.visibility = time;
    settings.dead_letters = Some("dead".to_owned());
    NatsSubscription::open(nats, settings).await.unwrap()
}

/// What can be read, and whom it is about.
fn read(delivery: &Delivery) -> Option<EventId> {
    delivery.event.as_ref().ok().map(|event| event.id)
}

/// What no client of this kind can read: three ways to write it.
const BAD: [(&[u8], &[u8]); 3] = [
    (b"shop.1.order", b"\r\nx: caf\xe9"),
    (b"shop.1.order", b"\r\nno name: 1"),
    (b"shop.1.caf\xe9", b""),
];

/// INV-1, R093: what cannot be read is a fault, and buried with its body and its place; what is behind it comes. With partitions and
/// without, and while other messages come and go.
#[tokio::test]
async fn what_cannot_be_read_is_buried_and_holds_up_nobody() {
    for subject in ["shop.>", "shop.{partition:2}.>"] {
        let Some(server) = Server::start() else { return };
        let (shop, dead) =
            (server.stream("SHOP", "shop.>").await, server.stream("dead", "dead").await);
        let subscription = group(server.settings(), subject).await;
        let broker = NatsBroker::new(server.settings()).unwrap();
        let mut raw = Raw::connect(&server, None);
        for (number, (subject, headers)) in BAD.into_iter().enumerate() {
            raw.publish(subject, headers, &format!("body {number}"));
        }
        raw.heard();
        stored(&shop, BAD.len() as u64).await;
        let behind = event("1", 1, 10);
        until_acked(&broker, "shop.1.order", &behind).await;
        let (mut other, begun) = (event("2", 1, 10), Instant::now());
        until_acked(&broker, "shop.0.order", &other).await;
        let (mut refused, mut others, mut came, mut told) = (Vec::new(), 1, false, Vec::new());
        while !came || refused.len() < BAD.len() {
            assert!(begun.elapsed() < PATIENCE, "{subject}: {refused:?} {came} {others} {told:?}");
            let received = match timeout(PATIENCE, subscription.receive(8)).await.unwrap() {
                Ok(received) => received,
                Err(error) => {
                    told.push(error.to_string());
                    continue;
                }
            };
            for delivery in received {
                let Err(fault) = delivery.event.clone() else {
                    // The connection may be gone once more by now: then it comes again.
                    let settled = subscription.ack(&delivery).await.is_ok();
                    came |= settled && read(&delivery) == Some(behind.id);
                    if settled && read(&delivery) == Some(other.id) {
                        others += 1;
                        other = event("2", others, 10);
                        until_acked(&broker, "shop.0.order", &other).await;
                    }
                    continue;
                };
                assert_eq!(fault.kind, ErrorKind::Invalid, "{fault}");
                if subscription.reject(&delivery, &fault).await.is_ok() {
                    refused.push(delivery.receipt.message);
                }
            }
        }
        assert_eq!(refused, [1, 2, 3], "each once, in their order");
        for number in 1..=3 {
            let letter = dead.get_raw_message(number).await.unwrap();
            assert_eq!(letter.payload, format!("body {}", number - 1));
            let says = |name: &str| letter.headers.get(name).unwrap().as_str().to_owned();
            assert_eq!(says("postrider-dead-sequence"), number.to_string());
            assert_eq!(says("postrider-dead-left-out"), "headers: they cannot be read");
            assert!(says("postrider-dead-reason").contains("Invalid: its "), "{letter:?}");
        }
        assert_eq!(dead.get_info().await.unwrap().state.messages, 3);
        println!("{subject}: {others} others came meanwhile");
    }
}

/// Waits until the stream has so many.
async fn stored(stream: &Stream, count: u64) {
    let begun = Instant::now();
    while stream.get_info().await.unwrap().state.messages < count {
        assert!(begun.elapsed() < PATIENCE);
    }
}

/// F36, INV-1: who may not read the stream is told which consumer it is, and which messages it may be. Nobody looks where a server was
/// merely started again (the control), with messages in somebody's hands.
#[tokio::test]
async fn who_may_not_look_is_told_where_to() {
    let config = "authorization { users = [ { user: all, password: all }, { user: blind, password: blind, \
        permissions: { publish: { deny: \"$JS.API.STREAM.MSG.GET.>\" } } } ] }";
    let Some(mut server) = Server::with(config) else { return };
    let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "all".into());
    let jetstream = jetstream::new(options.connect(server.address()).await.unwrap());
    for (name, subject) in [("SHOP", "shop.>"), ("dead", "dead")] {
        let subjects = vec![subject.to_owned()];
        let config =
            jetstream::stream::Config { name: name.into(), subjects, ..Default::default() };
        jetstream.create_stream(config).await.unwrap();
    }
    let user = |name: &str| {
        let mut settings = server.settings();
        settings.credentials = Credentials::User { name: name.into(), password: name.into() };
        settings
    };
    let broker = NatsBroker::new(user("all")).unwrap();
    // Longer than a busy machine stands still: it stays in work elsewhere.
    let (shop, time) = ("shop.>", Duration::from_secs(10));
    let (settings, holding) = (user("blind"), group_for(user("all"), shop, time).await);
    until_acked(&broker, "shop.held", &event("1", 1, 10)).await;
    let held = received(&holding, 1).await;
    assert_eq!(held.len(), 1, "it is in work elsewhere");
    let subscription = group_for(settings, shop, time).await;
    assert!(timeout(VISIBILITY / 4, subscription.receive(8)).await.is_err(), "it waits");
    server.kill();
    server.run().unwrap();
    let next = event("2", 1, 10);
    until_acked(&broker, "shop.order", &next).await;
    let (mut came, begun) = (false, Instant::now());
    while !came {
        assert!(begun.elapsed() < PATIENCE);
        match timeout(PATIENCE, subscription.receive(8)).await.unwrap() {
            Ok(received) => came = received.iter().any(|it| read(it) == Some(next.id)),
            Err(error) => assert!(!error.to_string().contains("looked at"), "{error}"),
        }
    }
    Raw::connect(&server, Some("all")).publish(b"shop.order", b"\r\nx: caf\xe9", "body");
    let begun = Instant::now();
    let told = loop {
        assert!(begun.elapsed() < PATIENCE);
        match timeout(PATIENCE, subscription.receive(8)).await.unwrap() {
            Err(error) if error.to_string().contains("looked at") => break error,
            _ => {}
        }
    };
    assert_eq!(told.kind(), ErrorKind::Unauthorized, "{told}");
    let told = told.to_string();
    assert!(told.contains("to 3, which cannot be looked at"), "{told}");
    assert!(told.contains("$JS.API.STREAM.MSG.GET.SHOP`: grant it"), "{told}");
    assert!(told.contains("consumer=billing"), "{told}");
}
