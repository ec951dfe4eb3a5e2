//! Servers that go away and stall.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, Error, ErrorKind, Fault, Outcome, Outgoing};
use postrider_kafka::KafkaBroker;
use postrider_testkit::carry::{assert_in_order, carry, until_acked};
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::publishing::{event, outgoing, publish};
use crate::server::Server;

/// F5, F6, F8, F10: the server is killed and stalled in mid-batch, again and again: nothing acknowledged is lost,
/// and each key is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_stalls_in_mid_batch_keep_the_order() {
    let Some(mut server) = Server::own().await else { return };
    let topic = server.topic("orders", 3, &[]).await;
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(2);
    let broker = KafkaBroker::new(settings).unwrap();
    let carrying = tokio::spawn({
        let topic = topic.clone();
        async move { carry(&broker, &topic, 20, 600).await }
    });
    let mut faults = 0;
    for round in 0..4 {
        let before = server.count(&topic).await;
        // In mid-batch: as soon as some more have arrived.
        while !carrying.is_finished() && server.count(&topic).await < before + 100 {
            // waits: a server tells nobody what it has got
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        faults += usize::from(!carrying.is_finished());
        match round % 2 {
            0 => block_in_place(|| {
                server.kill();
                server.run().unwrap();
            }),
            _ => {
                assert!(server.signal("-STOP"));
                // waits: longer than the deadline, so that answers come too late
                tokio::time::sleep(Duration::from_millis(2_500)).await;
                assert!(server.signal("-CONT"));
            }
        }
    }
    assert!(faults >= 3, "only {faults} faults fell into the run");
    let sent = carrying.await.unwrap();
    assert_in_order(&server.ids(&topic).await, &sent);
}

/// R070: 1 is refused for good while those of other keys go on. That 2 of its own key is not under way before that is
/// known is the relay's part of it (`tests/brokers`), since this broker promises no order behind a refusal.
#[tokio::test]
async fn a_refused_event_is_answered_by_itself() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("refusing", 1, &[("max.message.bytes", "5000")]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    assert!(!broker.capabilities().prefix_order, "so the relay sends one of a key at a time");
    let (first, other) = (event("1", 1, 9_000), event("2", 1, 10));
    let outcomes = publish(&broker, &topic, &[first, Arc::clone(&other)]).await;
    assert!(matches!(&outcomes[..], [Outcome::Rejected(_), Outcome::Acked]), "{outcomes:?}");
    assert_eq!(server.ids(&topic).await, [other.id]);
}

/// F5: a server that is away is an error that names it, and nothing was sent; as soon as it is back, it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let Some(mut server) = Server::own().await else { return };
    let topic = server.topic("orders", 1, &[]).await;
    server.kill();
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(1);
    let broker = KafkaBroker::new(settings).unwrap();
    let batch = [outgoing(&topic, &event("1", 1, 10))];
    let begun = Instant::now();
    let refused = broker.publish(&batch).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "the deadline holds");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("nothing was sent"), "{refused}");
    assert!(format!("{refused:?}").contains(&server.address()), "{refused:?}");
    block_in_place(|| server.run().unwrap());
    let begun = Instant::now();
    while !matches!(broker.publish(&batch).await.as_deref(), Ok([Outcome::Acked])) {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    // A server that stops while it is used: unknown, in time, and with the reason.
    server.kill();
    let told = broker.publish(&[outgoing(&topic, &event("1", 2, 10))]).await;
    let unknown = match &told {
        Ok(outcomes) => matches!(&outcomes[..], [Outcome::Hindered(_)]),
        Err(error) => error.kind() == ErrorKind::Unavailable,
    };
    assert!(unknown, "{told:?}");
}

/// Dropping a call leaves at most its batch, and closing waits until nothing more will be sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_after_close() {
    let Some(server) = Server::own().await else { return };
    let topic = server.topic("orders", 1, &[]).await;
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(1);
    let broker = KafkaBroker::new(settings).unwrap();
    // A server that has just begun may be slow at first.
    let first = [event("0", 1, 10)];
    for attempt in 0.. {
        if publish(&broker, &topic, &first).await == [Outcome::Acked] {
            break;
        }
        assert!(attempt < 20);
    }
    let before = server.count(&topic).await;
    assert!(server.signal("-STOP"));
    let events: Vec<_> = (0..50).map(|n| event(&n.to_string(), 2, 10)).collect();
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing(&topic, event)).collect();
    let dropped = tokio::time::timeout(Duration::from_millis(100), broker.publish(&batch)).await;
    assert!(dropped.is_err(), "a server that stands still does not answer");
    broker.close().await.unwrap();
    assert!(server.signal("-CONT"));
    // What was on its way when the server stopped, it may still read: at most the batch, and once.
    // waits: longer than the client would try
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let after = server.count(&topic).await;
    assert!((before..=before + 50).contains(&after), "{before}, then {after}");
    let refused = broker.publish(&batch).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
}

/// F25: a quota that lets almost nothing through makes events wait, and kills none; when it is lifted, everything
/// goes on, each key in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_kills_no_event() {
    let Some(server) = Server::own().await else { return };
    let topic = server.topic("orders", 2, &[]).await;
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(1);
    let broker = KafkaBroker::new(settings).unwrap();
    until_acked(&broker, &topic, &event("0", 0, 10)).await;
    let everybody = ["--alter", "--entity-type", "clients", "--entity-default"];
    let quota = |change: &'static str, what: &'static str| {
        let words = [&everybody[..], &[change, what]].concat();
        block_in_place(|| server.configure(&words).unwrap());
    };
    quota("--add-config", "producer_byte_rate=1000");
    // What comes first is taken, and its answer held back; what comes then waits for that.
    let begun = Instant::now();
    // By name: a quota is no outage.
    let named = |fault: &Fault| fault.kind == ErrorKind::Busy && fault.detail.contains("quota");
    let throttled = |said: &Result<Vec<Outcome>, Error>| match said {
        Ok(outcomes) => {
            outcomes.iter().any(|it| matches!(it, Outcome::Hindered(fault) if named(fault)))
        }
        Err(error) => error.kind() == ErrorKind::Busy && error.to_string().contains("quota"),
    };
    for n in 0.. {
        let batch: Vec<Outgoing> =
            (0..20).map(|key| outgoing(&topic, &event(&key.to_string(), n, 500))).collect();
        let said = broker.publish(&batch).await;
        let harmless =
            |it: &Outcome| matches!(it, Outcome::Acked | Outcome::Hindered(_) | Outcome::Skipped);
        assert!(said.iter().flatten().all(harmless), "{said:?}");
        if throttled(&said) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is held back: {said:?}");
    }
    let (carried, to) = (Arc::new(broker), topic.clone());
    let carrying = tokio::spawn({
        let broker = Arc::clone(&carried);
        async move { carry(&*broker, &to, 20, 10).await }
    });
    // waits: for some of it under the quota
    tokio::time::sleep(Duration::from_secs(2)).await;
    quota("--delete-config", "producer_byte_rate");
    let sent = carrying.await.unwrap();
    assert_in_order(&server.ids(&topic).await, &sent);
}
