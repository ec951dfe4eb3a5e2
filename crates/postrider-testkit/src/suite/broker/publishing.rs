//! Publishing: what the answer says is so.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use postrider_core::{Event, Marks, NewEvent, Outcome, Outgoing};

use super::{BrokerHarness, event, first_seen, ids, outgoing, publish_acked, publish_all};
use crate::suite::skip;

fn different_keys(count: u32) -> Vec<Arc<Event>> {
    (0..count).map(|n| event(&n.to_string(), n)).collect()
}

/// R120: one outcome per event of the batch.
pub async fn each_event_has_an_outcome_in_order<H: BrokerHarness>() {
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let count = broker.capabilities().batch_rows_max.clamp(1, 10);
    let events = different_keys(count);
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing(&topic, event)).collect();
    publish_acked(&*broker, &batch).await;
    let received = harness.received(&topic).await;
    let all: BTreeSet<_> = ids(&events).into_iter().collect();
    assert_eq!(BTreeSet::from_iter(ids(&received)), all);
}

/// R062, R063: the envelope travels whole: id, source, key, type, payload, headers.
pub async fn what_is_acknowledged_is_there_with_its_id_and_content<H: BrokerHarness>() {
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let new = NewEvent::new("order", "42", "order.placed")
        .source("/suite")
        .ordered_by("customer/7")
        .version(2)
        .tenant("acme")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .json(&serde_json::json!({"total": 1250}))
        .expect("JSON");
    let sent = Arc::new(new.event().clone());
    let opaque = NewEvent::new("order", "43", "order.placed")
        .source("/suite")
        .bytes((0..=255).collect::<Vec<u8>>(), "application/octet-stream");
    let opaque = Arc::new(opaque.event().clone());
    publish_all(&*broker, &topic, &[Arc::clone(&sent), Arc::clone(&opaque)]).await;
    let received = harness.received(&topic).await;
    for sent in [sent, opaque] {
        let read = received.iter().find(|read| read.id == sent.id);
        let read = read.expect("it was acknowledged");
        assert_eq!(read.source, sent.source);
        assert_eq!(read.key(), sent.key());
        assert_eq!(read.event_type, sent.event_type);
        assert_eq!(read.event_version, sent.event_version);
        assert_eq!(read.payload, sent.payload);
        assert_eq!(read.content_type, sent.content_type);
        assert_eq!(read.tenant, sent.tenant);
        assert_eq!(read.headers.get("traceparent"), sent.headers.get("traceparent"));
        assert_eq!(read.occurred_at, sent.occurred_at);
    }
}

/// R068: events of a key arrive in the order in which they were sent.
pub async fn a_batch_keeps_its_order<H: BrokerHarness>() {
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    if !broker.capabilities().keeps_key_order {
        return skip("a_batch_keeps_its_order", "this broker keeps no order");
    }
    let events: Vec<_> = (0..60).map(|n| event(&(n % 3).to_string(), n)).collect();
    publish_all(&*broker, &topic, &events).await;
    let received = harness.received(&topic).await;
    for key in ["order/0", "order/1", "order/2"] {
        let of_key = |events: &[Arc<Event>]| -> Vec<Arc<Event>> {
            let own = events.iter().filter(|event| event.key() == key);
            own.cloned().collect()
        };
        assert_eq!(first_seen(&of_key(&received)), ids(&of_key(&events)), "{key}");
    }
}

/// R011, R065: sent again it is the same event; a broker that absorbs duplicates keeps one.
pub async fn an_event_sent_again_keeps_its_id<H: BrokerHarness>() {
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let sent = event("1", 1);
    for attempt in 1..=3 {
        let again = Outgoing { attempt, ..outgoing(&topic, &sent) };
        publish_acked(&*broker, &[again]).await;
    }
    let received = harness.received(&topic).await;
    assert_eq!(first_seen(&received), [sent.id]);
    if broker.capabilities().deduplicates_for.is_some() {
        assert_eq!(received.len(), 1, "declared to absorb duplicates");
    }
}

/// R005: it was stored and the answer was lost: an error, or a failure that names the event where
/// it was sent alone, and never an acknowledgement; sent again, it is there with the same id.
pub async fn a_lost_answer_is_an_error_and_the_event_is_there<H: BrokerHarness>() {
    const CASE: &str = "a_lost_answer_is_an_error_and_the_event_is_there";
    let harness = H::start().await;
    if !harness.lose_next_answer() {
        return skip(CASE, "an answer cannot be lost");
    }
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let sent = event("1", 1);
    let lost = broker.publish(&[outgoing(&topic, &sent)]).await;
    let told = match &lost {
        Err(_) => true,
        Ok(outcomes) => matches!(outcomes[..], [Outcome::Retry { .. } | Outcome::Hindered(_)]),
    };
    assert!(told, "{lost:?}");
    publish_acked(&*broker, &[outgoing(&topic, &sent)]).await;
    assert_eq!(first_seen(&harness.received(&topic).await), [sent.id]);
}

/// R057, R095, R120: the refused event fails by name; the others are stored.
pub async fn of_a_batch_only_the_refused_event_fails<H: BrokerHarness>() {
    const CASE: &str = "of_a_batch_only_the_refused_event_fails";
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    if broker.capabilities().batch_rows_max < 3 {
        return skip(CASE, "no batches of three");
    }
    let events = different_keys(3);
    if !harness.refuse(events[1].id) {
        return skip(CASE, "no event can be refused");
    }
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing(&topic, event)).collect();
    let outcomes = broker.publish(&batch).await.expect("the batch is answered");
    assert_eq!(outcomes.len(), 3);
    assert!(!matches!(outcomes[1], Outcome::Acked | Outcome::Skipped), "{outcomes:?}");
    let received: BTreeSet<_> = ids(&harness.received(&topic).await).into_iter().collect();
    for (event, outcome) in events.iter().zip(&outcomes) {
        let there = received.contains(&event.id);
        assert_eq!(there, *outcome == Outcome::Acked, "{outcome:?}");
    }
    assert_eq!(received.len(), 2, "the others are stored");
}

/// A broker that declares prefix order acknowledges nothing of a key behind its refused event.
pub async fn with_prefix_order_a_refusal_stops_its_key<H: BrokerHarness>() {
    const CASE: &str = "with_prefix_order_a_refusal_stops_its_key";
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let capabilities = broker.capabilities();
    if !capabilities.prefix_order || capabilities.batch_rows_max < 4 {
        return skip(CASE, "one event of a key per batch");
    }
    let events = [event("1", 1), event("1", 2), event("2", 1), event("1", 3)];
    if !harness.refuse(events[1].id) {
        return skip(CASE, "no event can be refused");
    }
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing(&topic, event)).collect();
    let outcomes = broker.publish(&batch).await.expect("the batch is answered");
    assert_eq!(outcomes[0], Outcome::Acked);
    assert_ne!(outcomes[1], Outcome::Acked);
    assert_eq!(outcomes[2], Outcome::Acked, "another key");
    assert_eq!(outcomes[3], Outcome::Skipped);
    let received = first_seen(&harness.received(&topic).await);
    assert!(!received.contains(&events[1].id) && !received.contains(&events[3].id));
}

/// R001: everything that was acknowledged to any of several publishers is there.
pub async fn concurrent_publishes_lose_nothing<H: BrokerHarness>() {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let publish = |publisher: u32| {
        let (broker, topic) = (harness.broker(), Arc::clone(&topic));
        async move {
            let key = |n: u32| format!("{publisher}-{}", n % 4);
            let events: Vec<_> = (0..20).map(|n| event(&key(n), n)).collect();
            publish_all(&*broker, &topic, &events).await;
            ids(&events)
        }
    };
    let sent: BTreeSet<_> = join_all((0..4).map(publish)).await.into_iter().flatten().collect();
    let received: BTreeSet<_> = ids(&harness.received(&topic).await).into_iter().collect();
    assert_eq!(received, sent);
}

/// R064: what was sent to one topic is in no other.
pub async fn topics_are_apart<H: BrokerHarness>() {
    let harness = H::start().await;
    let broker = harness.broker();
    let (orders, refunds) = (harness.topic("orders"), harness.topic("refunds"));
    if orders == refunds {
        return skip("topics_are_apart", "this broker has one topic");
    }
    let (order, refund) = (event("1", 1), event("1", 2));
    publish_acked(&*broker, &[outgoing(&orders, &order)]).await;
    publish_acked(&*broker, &[outgoing(&refunds, &refund)]).await;
    assert_eq!(first_seen(&harness.received(&orders).await), [order.id]);
    assert_eq!(first_seen(&harness.received(&refunds).await), [refund.id]);
}

/// A redriven event, out of its key's order on purpose, is taken like any other.
pub async fn a_late_event_is_taken<H: BrokerHarness>() {
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let sent = event("1", 1);
    let late = Outgoing {
        marks: Marks { late: true, replay: false },
        attempt: 7,
        ..outgoing(&topic, &sent)
    };
    publish_acked(&*broker, &[late]).await;
    assert_eq!(first_seen(&harness.received(&topic).await), [sent.id]);
    let Some(subscription) = harness.subscribe(&topic, "late").await else {
        return;
    };
    let delivery = super::receive::<H>(&*subscription, 1).await.remove(0);
    assert!(delivery.marks.late, "the consumer is told");
}

/// R125: acknowledged is durable, where that is declared.
pub async fn a_restart_keeps_what_was_acknowledged<H: BrokerHarness>() {
    const CASE: &str = "a_restart_keeps_what_was_acknowledged";
    let mut harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    if !broker.capabilities().durable {
        return skip(CASE, "this broker does not declare `durable`");
    }
    let before: Vec<_> = (0..10).map(|n| event(&n.to_string(), n)).collect();
    publish_all(&*broker, &topic, &before).await;
    drop(broker);
    if !harness.restart().await {
        return skip(CASE, "this broker cannot be restarted here");
    }
    let after = event("1", 99);
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    publish_acked(&*broker, &[outgoing(&topic, &after)]).await;
    let received: BTreeSet<_> = ids(&harness.received(&topic).await).into_iter().collect();
    let expected: BTreeSet<_> = ids(&before).into_iter().chain([after.id]).collect();
    assert_eq!(received, expected);
}

/// After `close` nothing is sent and nothing is claimed to be.
pub async fn a_closed_broker_refuses_cleanly<H: BrokerHarness>() {
    let harness = H::start().await;
    let (broker, topic) = (harness.broker(), harness.topic("orders"));
    let (before, after) = (event("1", 1), event("1", 2));
    publish_acked(&*broker, &[outgoing(&topic, &before)]).await;
    broker.close().await.expect("close");
    broker.close().await.expect("closing twice is no error");
    let refused = broker.publish(&[outgoing(&topic, &after)]).await;
    let acked = matches!(&refused, Ok(outcomes) if outcomes.contains(&Outcome::Acked));
    assert!(!acked, "{refused:?}");
    assert_eq!(first_seen(&harness.received(&topic).await), [before.id]);
}
