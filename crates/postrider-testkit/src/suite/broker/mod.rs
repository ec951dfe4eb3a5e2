//! The cases of `broker_suite!`: an answer for each event, never better than the truth (INV-7), and
//! consumers that get each event again until they settle it (INV-1).

mod consuming;
mod promise;
mod publishing;
mod settling;

pub use consuming::*;
pub use publishing::*;
pub use settling::*;

/// Why the cases cannot run.
#[doc(hidden)]
pub fn unavailable<H: crate::suite::BrokerHarness>() -> Option<String> {
    H::unavailable()
}

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{
    Broker, Delivery, ErrorKind, Event, EventId, Format, Marks, NewEvent, Outcome, Outgoing,
    Subscription,
};

use super::BrokerHarness;

/// How long a case waits to see that nothing comes, in real time.
const QUIET: Duration = Duration::from_millis(150);

/// Applies the suite to a harness: `broker_suite!(Harness);` makes a module `broker_suite` with one
/// test per case.
#[macro_export]
macro_rules! broker_suite {
    ($harness:ty) => {
        mod broker_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!(
                $harness,
                broker,
                // publishing
                each_event_has_an_outcome_in_order,
                what_is_acknowledged_is_there_with_its_id_and_content,
                a_batch_keeps_its_order,
                an_event_sent_again_keeps_its_id,
                a_lost_answer_is_an_error_and_the_event_is_there,
                of_a_batch_only_the_refused_event_fails,
                with_prefix_order_a_refusal_stops_its_key,
                concurrent_publishes_lose_nothing,
                topics_are_apart,
                a_late_event_is_taken,
                a_restart_keeps_what_was_acknowledged,
                a_closed_broker_refuses_cleanly,
                // consuming
                a_consumer_receives_what_was_published,
                two_groups_each_receive_everything,
                two_consumers_of_a_group_share,
                a_key_is_delivered_in_order_across_consumers,
                dropping_a_receive_loses_nothing,
                // settling
                what_is_acknowledged_does_not_come_again,
                what_is_not_settled_comes_again,
                an_extended_delivery_stays_invisible,
                a_refused_delivery_comes_again_after_its_delay,
                somebody_elses_turn_is_not_counted,
                what_can_never_be_delivered_is_put_aside,
                a_stale_receipt_settles_nothing,
                a_restart_delivers_again_what_was_not_settled,
            );
        }
    };
}

/// An event as a relay has it.
fn event(key: &str, n: u32) -> Arc<Event> {
    let new = NewEvent::new("order", key, format!("order.changed.{n}"))
        .source("/suite")
        .json(&serde_json::json!({ "n": n, "text": "ünï \"code\"\n" }))
        .expect("JSON");
    Arc::new(new.event().clone())
}

fn outgoing(topic: &Arc<str>, event: &Arc<Event>) -> Outgoing {
    Outgoing {
        event: Arc::clone(event),
        topic: Arc::clone(topic),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

fn ids(events: &[Arc<Event>]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}

/// Publishes, in batches the broker can take, and insists on every acknowledgement. A broker
/// without prefix order gets one event of a key per batch.
async fn publish_all(broker: &dyn Broker, topic: &Arc<str>, events: &[Arc<Event>]) {
    let capabilities = broker.capabilities();
    let rows_max = capabilities.batch_rows_max.max(1) as usize;
    let mut batch: Vec<Outgoing> = Vec::new();
    for event in events {
        let same_key = |out: &Outgoing| out.event.key_hash() == event.key_hash();
        let key_in_batch = !capabilities.prefix_order && batch.iter().any(same_key);
        if batch.len() == rows_max || key_in_batch {
            publish_acked(broker, &batch).await;
            batch.clear();
        }
        batch.push(outgoing(topic, event));
    }
    publish_acked(broker, &batch).await;
}

async fn publish_acked(broker: &dyn Broker, batch: &[Outgoing]) {
    if batch.is_empty() {
        return;
    }
    let outcomes = broker.publish(batch).await.expect("publish");
    assert_eq!(outcomes, vec![Outcome::Acked; batch.len()]);
}

/// Distinct ids in the order of their first appearance: copies are allowed.
fn first_seen(events: &[Arc<Event>]) -> Vec<EventId> {
    let mut seen = std::collections::BTreeSet::new();
    let ids = events.iter().map(|event| event.id);
    ids.filter(|id| seen.insert(*id)).collect()
}

/// So often a consumer may say that its server is away, before that is a fault of its own.
const REFUSED_MAX: u32 = 3;

/// Receives until so many deliveries came.
async fn receive<H: BrokerHarness>(subscription: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let (mut deliveries, mut refused) = (Vec::new(), 0);
    while deliveries.len() < count {
        let batch = tokio::time::timeout(H::patience(), subscription.receive(count)).await;
        match batch.unwrap_or_else(|_| panic!("{} of {count} came", deliveries.len())) {
            // A server on a busy machine may not answer in time. Whoever asks again is answered.
            Err(error) if error.kind() == ErrorKind::Unavailable && refused < REFUSED_MAX => {
                refused += 1;
            }
            batch => deliveries.extend(batch.expect("receive")),
        }
    }
    deliveries
}

/// Insists that nothing comes now.
async fn receive_nothing(subscription: &dyn Subscription) {
    nothing_comes(subscription).await.expect("nothing should come");
}

/// Whether nothing comes now, or what did.
async fn nothing_comes(subscription: &dyn Subscription) -> Result<(), String> {
    match tokio::time::timeout(QUIET, subscription.receive(10)).await {
        Ok(came) => Err(format!("nothing should come, but {came:?} did")),
        Err(_) => Ok(()),
    }
}

fn id_of(delivery: &Delivery) -> EventId {
    delivery.event.as_ref().expect("an event").id
}

/// A consumer, or a skip that says there is none.
async fn consumer<H: BrokerHarness>(
    harness: &H,
    case: &str,
    topic: &str,
    group: &str,
) -> Option<Arc<dyn Subscription>> {
    let subscription = harness.subscribe(topic, group).await;
    if subscription.is_none() {
        super::skip(case, "this broker has no consumers");
    }
    subscription
}
