//! A network between us and the server that loses answers, delays them, and leaves connections half open.

use std::time::Duration;

use async_nats::jetstream::stream;
use postrider_core::{Broker, ErrorKind, Outcome, Subscription};
use postrider_nats::{NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings};
use postrider_testkit::proxy::{Proxy, Traffic};
use tokio::time::Instant;

use crate::publishing::{event, outgoing, stored};
use crate::server::Server;
use crate::trouble::{assert_in_order, carry};

/// How long a publish may take.
const DEADLINE: Duration = Duration::from_secs(1);

/// A server with a stream, and the way to it.
async fn stage() -> Option<(Server, stream::Stream, Proxy, NatsSettings)> {
    let server = Server::start()?;
    let stream = server.stream("orders", "orders").await;
    let proxy = Proxy::to(server.port()).await;
    let mut settings = NatsSettings::new(format!("nats://127.0.0.1:{}", proxy.port));
    settings.deadline = DEADLINE;
    Some((server, stream, proxy, settings))
}

/// Whether it is said that nobody knows what became of the event.
fn is_unknown(said: &Result<Vec<Outcome>, postrider_core::Error>) -> bool {
    match said {
        Ok(outcomes) => matches!(outcomes[..], [Outcome::Retry { .. }]),
        Err(error) => [ErrorKind::Unavailable, ErrorKind::Timeout].contains(&error.kind()),
    }
}

/// Publishes until it is acknowledged.
async fn until_acked(broker: &NatsBroker, sent: &std::sync::Arc<postrider_core::Event>) {
    let begun = Instant::now();
    loop {
        let said = broker.publish(&[outgoing("orders", sent)]).await;
        if matches!(&said, Ok(outcomes) if outcomes[..] == [Outcome::Acked]) {
            return;
        }
        assert!(is_unknown(&said), "{said:?}");
        assert!(begun.elapsed() < Duration::from_secs(40), "{said:?}");
    }
}

/// F8, R061: the stream took it and the answer was lost: it does not count as published, is sent again under the same
/// id, and is there once.
#[tokio::test]
async fn a_lost_answer_counts_as_not_published() {
    let Some((_server, stream, proxy, settings)) = stage().await else { return };
    let broker = NatsBroker::new(settings).unwrap();
    let (first, second) = (event("1", 1, 10), event("1", 2, 10));
    until_acked(&broker, &first).await;
    proxy.set(Traffic::AnswersLost);
    let said = broker.publish(&[outgoing("orders", &second)]).await;
    assert!(is_unknown(&said), "{said:?}");
    // It arrived all the same.
    assert_eq!(stored(&stream).await, [first.id, second.id]);
    proxy.set(Traffic::Open);
    until_acked(&broker, &second).await;
    assert_eq!(stored(&stream).await, [first.id, second.id]);
}

/// F9: an answer that is late counts while it is awaited; one that is later than the deadline does not, and the call
/// ends with its deadline.
#[tokio::test]
async fn a_late_answer_counts_within_the_deadline() {
    let Some((_server, stream, proxy, settings)) = stage().await else { return };
    let broker = NatsBroker::new(settings).unwrap();
    let sent = [event("1", 1, 10), event("1", 2, 10), event("1", 3, 10)];
    until_acked(&broker, &sent[0]).await;
    proxy.set(Traffic::AnswersLate(DEADLINE / 4));
    until_acked(&broker, &sent[1]).await;
    for late in [DEADLINE * 2, DEADLINE * 30] {
        proxy.set(Traffic::AnswersLate(late));
        let begun = Instant::now();
        let said = broker.publish(&[outgoing("orders", &sent[2])]).await;
        assert!(is_unknown(&said), "{said:?}");
        assert!(begun.elapsed() < DEADLINE * 15, "it waited for longer than its deadline");
    }
    assert_eq!(stored(&stream).await, sent.each_ref().map(|event| event.id));
}

/// F5, F9, INV-3: the way is cut and opened again and again in mid-batch, with answers lost in between: everything
/// arrives, each key in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_is_cut_keeps_the_order() {
    let Some((_server, stream, proxy, settings)) = stage().await else { return };
    let broker = NatsBroker::new(settings).unwrap();
    let carrying = tokio::spawn(async move { carry(&broker, 20, 300).await });
    for round in 0..6 {
        let before = stream.get_info().await.unwrap().state.messages;
        while !carrying.is_finished()
            && stream.get_info().await.unwrap().state.messages < before + 50
        {
            tokio::task::yield_now().await;
        }
        proxy.set([Traffic::Cut, Traffic::AnswersLost][round % 2]);
        // waits: for longer than the deadline
        tokio::time::sleep(DEADLINE + DEADLINE / 4).await;
        proxy.set(Traffic::Open);
    }
    let sent = carrying.await.unwrap();
    let ids = stored(&stream).await;
    assert_in_order(&ids, &sent);
}

/// F10: an acknowledgement whose confirmation is lost is an error, and what it was about may come again; nothing is
/// forgotten.
#[tokio::test]
async fn an_acknowledgement_without_an_answer_is_an_error() {
    let Some((server, _stream, proxy, settings)) = stage().await else { return };
    let mut group = SubscriptionSettings::new("orders", "billing");
    group.visibility = DEADLINE * 2;
    let subscription = NatsSubscription::open(settings, group).await.unwrap();
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    until_acked(&broker, &sent).await;
    let deliveries = subscription.receive(1).await.unwrap();
    proxy.set(Traffic::Cut);
    let refused = subscription.ack(&deliveries[0]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    proxy.set(Traffic::Open);
    // What was sent into the cut may have arrived since, or the message comes again: both are right, and a new one
    // comes in any case.
    let next = event("1", 2, 10);
    until_acked(&broker, &next).await;
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(40), "the next one does not come");
        let Ok(deliveries) = subscription.receive(10).await else { continue };
        let ids = deliveries.iter().map(|it| it.event.as_ref().unwrap().id);
        if ids.into_iter().any(|id| id == next.id) {
            return;
        }
    }
}
