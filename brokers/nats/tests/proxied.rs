//! A network between us and the server that loses answers, delays them, and leaves connections half open.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream;
use postrider_core::{Broker, ErrorKind, EventId, Outcome, Outgoing, Subscription};
use postrider_nats::{NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::{event, outgoing, until_acked};
use postrider_testkit::proxy::{Proxy, Traffic};
use postrider_testkit::wire::{self, DEADLINE, Wired};
use tokio::time::Instant;

use crate::publishing::stored;
use crate::server::Server;

/// A server with a stream, and the way to it.
struct Nats {
    server: Server,
    stream: stream::Stream,
    proxy: Proxy,
}

impl Nats {
    async fn start() -> Option<Nats> {
        let server = Server::start()?;
        let stream = server.stream("orders", "orders").await;
        let proxy = Proxy::to(server.port()).await;
        Some(Nats { server, stream, proxy })
    }

    fn settings(&self) -> NatsSettings {
        let mut settings = NatsSettings::new(format!("nats://127.0.0.1:{}", self.proxy.port));
        settings.deadline = DEADLINE;
        settings
    }
}

impl Wired for Nats {
    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(NatsBroker::new(self.settings()).unwrap())
    }

    fn topic(&self) -> &str {
        "orders"
    }

    async fn count(&self) -> u64 {
        self.stream.get_info().await.map_or(0, |info| info.state.messages)
    }

    async fn ids(&self) -> Vec<EventId> {
        stored(&self.stream).await
    }
}

/// F9, R061: a lost answer counts as not published, and the copy is dropped by its id.
#[tokio::test]
async fn a_lost_answer_counts_as_not_published() {
    let Some(nats) = Nats::start().await else { return };
    wire::a_lost_answer_counts_as_not_published(&nats).await;
    assert_eq!(nats.ids().await.len(), 2);
}

/// F8: an answer that is late counts within the deadline.
#[tokio::test]
async fn a_late_answer_counts_within_the_deadline() {
    let Some(nats) = Nats::start().await else { return };
    wire::a_late_answer_counts_within_the_deadline(&nats).await;
    assert_eq!(nats.ids().await.len(), 3);
}

/// F5, F9, INV-3: the way is cut and opened again and again in mid-batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_is_cut_keeps_the_order() {
    let Some(nats) = Nats::start().await else { return };
    wire::a_way_that_is_cut_keeps_the_order(&nats, 6).await;
}

/// F6: a connection with nobody behind it is left.
#[tokio::test]
async fn a_half_open_connection_is_left() {
    let Some(nats) = Nats::start().await else { return };
    wire::a_half_open_connection_is_left(&nats).await;
}

/// INV-8: a server that is there and behind which no stream answers, as one that is cut off from its cluster, is left for
/// another one.
#[tokio::test]
async fn a_server_whose_streams_say_nothing_is_left_for_another() {
    let Some(nats) = Nats::start().await else { return };
    let Some(mute) = Server::start() else { return };
    let config = stream::Config { no_ack: true, ..nats.stream.cached_info().config.clone() };
    mute.stream_of(config).await;
    nats.proxy.cut(true);
    let servers = format!("nats://127.0.0.1:{},127.0.0.1:{}", mute.port(), nats.proxy.port);
    let mut settings = NatsSettings::new(servers);
    settings.deadline = DEADLINE;
    let broker = NatsBroker::new(settings).unwrap();
    let sent = event("1", 1, 10);
    let begun = Instant::now();
    loop {
        // Of both servers this one alone takes connections.
        match broker.publish(&[outgoing("orders", &sent)]).await.as_deref() {
            Ok([Outcome::Retry { fault, .. }]) if fault.kind == ErrorKind::Timeout => break,
            said => assert!(begun.elapsed() < Duration::from_secs(30), "{said:?}"),
        }
    }
    nats.proxy.cut(false);
    until_acked(&broker, "orders", &sent).await;
    assert_eq!(nats.ids().await, [sent.id]);
}

/// Batches into a connection that takes nothing: so many at once, so often, that what the system and the client keep
/// of them is full.
const AT_ONCE: u32 = 4;
const ROUNDS: u32 = 5;
/// Events of each, and bytes of an event.
const EVENTS: u32 = 512;
const BYTES: usize = 4_096;

/// F6: with nobody behind the connection, batches that nobody takes any more end with their deadlines as well, with
/// JetStream and without; nothing of them counts as published, and most was never sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_into_a_half_open_connection_end_with_their_deadlines() {
    for allow_lossy in [false, true] {
        let Some(nats) = Nats::start().await else { return };
        let mut settings = nats.settings();
        settings.allow_lossy = allow_lossy;
        let broker = NatsBroker::new(settings).unwrap();
        until_acked(&broker, "orders", &event("first", 1, 10)).await;
        nats.proxy.cut(true);
        let mut untried = 0;
        for round in 0..ROUNDS {
            let publish = async |at| {
                let key = |n| format!("{at}-{n}");
                let batch: Vec<Outgoing> = (0..EVENTS)
                    .map(|n| outgoing("orders", &event(&key(n), round, BYTES)))
                    .collect();
                let begun = Instant::now();
                let said = broker.publish(&batch).await;
                (said, begun.elapsed())
            };
            let calls = futures_util::future::join_all((0..AT_ONCE).map(publish)).await;
            for (said, took) in calls {
                assert!(took < DEADLINE * 15, "{took:?} in round {round}");
                let Ok(outcomes) = said else { continue };
                assert_eq!(outcomes.len(), EVENTS as usize);
                let first = outcomes.iter().position(|it| *it == Outcome::Skipped);
                let (tried, rest) = outcomes.split_at(first.unwrap_or(outcomes.len()));
                assert!(tried.iter().all(|it| matches!(it, Outcome::Retry { .. })), "{tried:?}");
                assert!(rest.iter().all(|it| *it == Outcome::Skipped), "{rest:?}");
                untried += rest.len();
            }
        }
        // Without JetStream no event is named.
        assert!(allow_lossy || untried > EVENTS as usize, "{untried} were not tried");
        nats.proxy.cut(false);
        until_acked(&broker, "orders", &event("first", 2, 10)).await;
    }
}

/// F10: an acknowledgement whose confirmation is lost is an error, and what it was about may come again; nothing is
/// forgotten.
#[tokio::test]
async fn an_acknowledgement_without_an_answer_is_an_error() {
    let Some(nats) = Nats::start().await else { return };
    let mut group = SubscriptionSettings::new("orders", "billing");
    group.visibility = DEADLINE * 2;
    let subscription = NatsSubscription::open(nats.settings(), group).await.unwrap();
    let broker = NatsBroker::new(nats.server.settings()).unwrap();
    let sent = event("1", 1, 10);
    until_acked(&broker, "orders", &sent).await;
    let deliveries = subscription.receive(1).await.unwrap();
    nats.proxy.set(Traffic::Cut);
    let refused = subscription.ack(&deliveries[0]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    nats.proxy.set(Traffic::Open);
    // What was sent into the cut may have arrived since, or the message comes again: both are right, and a new one
    // comes in any case.
    let next = event("1", 2, 10);
    until_acked(&broker, "orders", &next).await;
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
