//! What a server refuses for good, through a relay: alone, with what it was refused for, and with what follows of its key held
//! behind it, until somebody has mended the cause.

use std::time::Duration;

use postrider_core::operate::{Note, RowKey, Status, Submission, Verb};
use postrider_core::{DeadKeyPolicy, Destination, EventId, NewEvent, RetryPolicy, Route};

use crate::kafka::Kafka;
use crate::nats::Nats;
use crate::outbox::Store;
use crate::server::Server;
use crate::shop::{Shop, id, stop};

/// What the topic takes, and what is more than that.
const LIMIT: u32 = 10_000;
const LARGE: usize = 20_000;
/// What takes the large one as well.
const ENOUGH: u32 = 100_000;

/// Three of one key, of which the first is too large, with three of another one between them.
fn events() -> Vec<NewEvent> {
    let of = |(key, n): (&str, u32)| {
        let bytes = if (key, n) == ("large", 1) { LARGE } else { 10 };
        NewEvent::new("order", key, "order.changed")
            .version(n)
            .bytes(vec![b'x'; bytes], "application/octet-stream")
    };
    [("other", 1), ("large", 1), ("large", 2), ("other", 2), ("large", 3), ("other", 3)]
        .map(of)
        .into()
}

async fn refuse<S: Server>(store: Store, policy: DeadKeyPolicy, words: &str) {
    let Some(server) = S::start().await else { return };
    server.limit(LIMIT).await;
    let Some(shop) = Shop::open(store).await else { return };
    let ids = shop.commit(&events()).await;
    let of_key = |key: &str| -> Vec<EventId> {
        let all = events().into_iter().zip(&ids);
        all.filter(|(event, _)| &*event.event().aggregate_id == key).map(|(_, id)| *id).collect()
    };
    let (large, other) = (of_key("large"), of_key("other"));
    let retry = RetryPolicy {
        delay_min: Duration::from_millis(200),
        delay_max: Duration::from_millis(500),
        ..RetryPolicy::default()
    };
    let route = Route::all("orders".parse().unwrap()).dead_key(policy).retry(retry);
    let definition = Destination::new(id("a"), S::NAME, vec![route]);
    let relay = shop.relay([(definition, server.broker())]).await;
    // In the order of the rows: the refused one first, and what waits behind it.
    let expected = match policy {
        DeadKeyPolicy::Park => vec![Status::Dead, Status::Parked, Status::Parked],
        DeadKeyPolicy::Skip => vec![Status::Dead],
        DeadKeyPolicy::Halt => vec![Status::Retrying, Status::Parked, Status::Parked],
    };
    let passed = if policy == DeadKeyPolicy::Skip { 5 } else { 3 };
    server.holds(passed).await;
    let rows = shop
        .waiting(|rows| {
            let tried = rows.first().is_some_and(|row| row.attempts >= 1);
            tried && rows.iter().map(|row| row.status).collect::<Vec<_>>() == expected
        })
        .await;
    assert_eq!(rows[0].id, Some(large[0]));
    assert!(rows[0].detail.contains(words), "said of it: {}", rows[0].detail);
    let arrived = server.arrived().await;
    let of = |ids: &[EventId]| -> Vec<EventId> {
        arrived.iter().filter(|id| ids.contains(id)).copied().collect()
    };
    assert_eq!(of(&other), other, "{policy:?}: its neighbours go on, in order");
    let followed = if policy == DeadKeyPolicy::Skip { &large[1..] } else { &[] };
    assert_eq!(of(&large), followed, "{policy:?}: nothing passes it");
    // The cause is mended; under `halt` nobody has to say so.
    server.limit(ENOUGH).await;
    if policy != DeadKeyPolicy::Halt {
        let row = RowKey { destination: id("a"), seq: rows[0].seq };
        let note = Note::new("anna@db1", "the limit was raised").unwrap();
        let submission = Submission { verb: Verb::Redrive(vec![row]), note };
        shop.store().submit(&submission).await.unwrap();
    }
    server.holds(6).await;
    shop.waiting(|rows| rows.is_empty()).await;
    let arrived: Vec<EventId> =
        server.arrived().await.into_iter().filter(|id| large.contains(id)).collect();
    let order = match policy {
        DeadKeyPolicy::Skip => vec![large[1], large[2], large[0]],
        _ => large,
    };
    assert_eq!(arrived, order, "{policy:?}: each once, and the key in its order");
    stop(relay).await;
}

/// Each with the store from which it is played to NATS.
const POLICIES: [(DeadKeyPolicy, Store); 3] = [
    (DeadKeyPolicy::Park, Store::Sqlite),
    (DeadKeyPolicy::Halt, Store::Postgres),
    (DeadKeyPolicy::Skip, Store::Sqlite),
];

/// R122, F18, INV-3: 1 is refused by the server, 2 and 3 of its key are not: under `park` and `halt` they do not arrive
/// before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_refused_event_of_its_key_waits_for_it_at_nats() {
    for (policy, store) in POLICIES {
        refuse::<Nats>(store, policy, "message size exceeds maximum allowed").await;
    }
}

/// The same at Kafka, whose client has a whole batch of a key under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_refused_event_of_its_key_waits_for_it_at_kafka() {
    for (policy, store) in POLICIES {
        // Each broker has each store behind it, and none all policies from one.
        let store = if store == Store::Sqlite { Store::Postgres } else { Store::Sqlite };
        refuse::<Kafka>(store, policy, "which takes 10000 (`max.message.bytes`)").await;
    }
}
