//! The relay before a FIFO queue that refuses one event for good: what becomes of those behind it, of its key and of
//! others.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::Counts;
use postrider_core::{
    DeadKeyPolicy, Destination, DestinationId, Event, NewEvent, OutboxSource, Route,
};
use postrider_relay::{Relay, Settings};
use postrider_testkit::memory::{MemoryClock, MemoryStore};
use postrider_testkit::services;

use crate::queue::{Queue, Road};

/// What the queue takes of a message, where the service's own limit would be a megabyte: it refuses the larger one.
const BYTES_MAX: usize = 2_048;
/// How often it is tried under `halt` before the others are judged.
const TRIES: u64 = 3;

/// An order's event; one that is too large for the queue, if so.
fn event(order: &str, n: u32, too_large: bool) -> NewEvent {
    let filling = "x".repeat(if too_large { 2 * BYTES_MAX } else { 10 });
    let event = NewEvent::new("order", order, format!("order.changed.{n}")).source("/shop");
    event.json(&filling).unwrap()
}

/// `a1` is too large, and `b` is another key: what arrives under a policy, in its order, and what waits.
async fn arrive(policy: DeadKeyPolicy) -> Option<(Vec<String>, Counts)> {
    let server = services::url("aws").inspect_err(|reason| {
        println!("skipped: an event that SQS refuses: {reason}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
    });
    let mut queue = Queue::make(&server.ok()?, Road::Queue).await;
    queue.take_at_most(BYTES_MAX).await;
    let store = MemoryStore::new(1, MemoryClock::running());
    let mut route = Route::all(Road::Queue.queue().parse().unwrap());
    route.dead_key = policy;
    (route.retry.delay_min, route.retry.delay_max) =
        (Duration::from_millis(20), Duration::from_millis(50));
    let id = DestinationId::new("queue").unwrap();
    let definition = Destination::new(id.clone(), "sqs", vec![route]);
    let relay = Relay::builder(Arc::new(store.clone()))
        .destination(definition, Arc::new(queue.broker()))
        .settings(Settings::default());
    let first = [event("a", 1, true), event("a", 2, false), event("a", 3, false)];
    let others = (1..4).map(|n| event("b", n, false));
    store.commit(first.into_iter().chain(others).collect()).unwrap();
    let relay = relay.start().await.unwrap();
    let mut health = relay.health();
    let passing = if policy == DeadKeyPolicy::Skip { 2 } else { 0 };
    let tries = if policy == DeadKeyPolicy::Halt { TRIES } else { 1 };
    health
        .wait_for(|health| health.delivered == 3 + passing && health.failures >= tries)
        .await
        .unwrap();
    // One of each key once more: when the other key's has arrived, this one's had its turn.
    store.commit(vec![event("a", 4, false), event("b", 4, false)]).unwrap();
    let passing = if policy == DeadKeyPolicy::Skip { 3 } else { 0 };
    health.wait_for(|health| health.delivered == 4 + passing).await.unwrap();
    relay.drain();
    relay.stopped().await;
    let counts = store.counts(&id).await.unwrap();
    let short = |event: &Event| {
        let n = event.event_type.rsplit('.').next().unwrap_or_default();
        format!("{}{n}", event.aggregate_id)
    };
    let mut arrived: Vec<String> = queue.take().await.iter().map(short).collect();
    // Of two keys only each one's own order is promised: the sort is by key, and stable.
    arrived.sort_by(|one, other| one[..1].cmp(&other[..1]));
    queue.remove().await;
    Some((arrived, counts))
}

/// INV-3, R122: under `park` an event that SQS refuses for good becomes a dead letter, its key's other events wait
/// behind it, and the other key goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_dead_letter_nothing_of_its_key_arrives() {
    let Some((arrived, counts)) = arrive(DeadKeyPolicy::Park).await else { return };
    assert_eq!(arrived, ["b1", "b2", "b3", "b4"]);
    assert_eq!((counts.dead, counts.parked, counts.retrying), (1, 3, 0), "{counts:?}");
}

/// INV-3, R122: under `halt` it is tried again and again, and nothing of its key passes it either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_its_key_passes_an_event_that_is_tried_for_ever() {
    let Some((arrived, counts)) = arrive(DeadKeyPolicy::Halt).await else { return };
    assert_eq!(arrived, ["b1", "b2", "b3", "b4"]);
    assert_eq!((counts.dead, counts.parked, counts.retrying), (0, 3, 1), "{counts:?}");
}

/// R122. The negative control: under `skip` they pass it, in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_skip_they_pass_it() {
    let Some((arrived, counts)) = arrive(DeadKeyPolicy::Skip).await else { return };
    assert_eq!(arrived, ["a2", "a3", "a4", "b1", "b2", "b3", "b4"]);
    assert_eq!((counts.dead, counts.parked, counts.retrying), (1, 0, 0), "{counts:?}");
}
