//! Consuming: groups, instances, and the order of a key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postrider_core::{Delivery, EventId};

use super::{BrokerHarness, PATIENCE, consumer, event, id_of, ids, publish_all, receive};
use crate::suite::skip;

/// R001: what was published is delivered, whole.
pub async fn a_consumer_receives_what_was_published<H: BrokerHarness>() {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let case = "a_consumer_receives_what_was_published";
    let Some(subscription) = consumer(&harness, case, &topic, "billing").await else {
        return;
    };
    let events: Vec<_> = (0..10).map(|n| event(&n.to_string(), n)).collect();
    publish_all(&*harness.broker(), &topic, &events).await;
    let mut deliveries = receive(&*subscription, 10).await;
    for sent in &events {
        // Nothing is settled here: where the machine is slow, what came first may come again before the last.
        let delivery = loop {
            match deliveries.iter().find(|delivery| id_of(delivery) == sent.id) {
                Some(delivery) => break delivery,
                None => deliveries.extend(receive(&*subscription, 1).await),
            }
        };
        let read = delivery.event.as_ref().expect("an event");
        assert_eq!(read.payload, sent.payload);
        assert_eq!(read.source, sent.source);
        assert_eq!(delivery.topic, topic);
        assert_eq!(delivery.count, 1);
        assert!(!delivery.marks.late);
    }
}

/// R073: groups are independent of each other.
pub async fn two_groups_each_receive_everything<H: BrokerHarness>() {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let case = "two_groups_each_receive_everything";
    let Some(billing) = consumer(&harness, case, &topic, "billing").await else {
        return;
    };
    if !harness.has_groups() {
        return skip(case, "a queue is one group");
    }
    let shipping = harness.subscribe(&topic, "shipping").await.expect("as before");
    let events: Vec<_> = (0..5).map(|n| event(&n.to_string(), n)).collect();
    publish_all(&*harness.broker(), &topic, &events).await;
    let all: BTreeSet<EventId> = ids(&events).into_iter().collect();
    for subscription in [billing, shipping] {
        let deliveries = receive(&*subscription, 5).await;
        assert_eq!(deliveries.iter().map(id_of).collect::<BTreeSet<_>>(), all);
        for delivery in &deliveries {
            subscription.ack(delivery).await.expect("ack");
        }
    }
}

/// Receives and acknowledges one delivery at a time until so many were done by all together.
async fn work(
    subscription: Arc<dyn postrider_core::Subscription>,
    done: Arc<std::sync::Mutex<Vec<Delivery>>>,
    target: usize,
) {
    while crate::memory::lock(&done).len() < target {
        // The other instance may take the last one: look again at the count from time to time.
        let patience = std::time::Duration::from_millis(100);
        let Ok(batch) = tokio::time::timeout(patience, subscription.receive(1)).await else {
            continue;
        };
        for delivery in batch.expect("receive") {
            // Recorded before it is settled: only then may its key's next come.
            crate::memory::lock(&done).push(delivery.clone());
            tokio::task::yield_now().await;
            subscription.ack(&delivery).await.expect("ack");
        }
    }
}

/// R036: the instances of a group share the work; each delivery goes to one.
pub async fn two_consumers_of_a_group_share<H: BrokerHarness>() {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let case = "two_consumers_of_a_group_share";
    let Some(first) = consumer(&harness, case, &topic, "billing").await else {
        return;
    };
    let second = harness.subscribe(&topic, "billing").await.expect("as before");
    let events: Vec<_> = (0..30).map(|n| event(&n.to_string(), n)).collect();
    publish_all(&*harness.broker(), &topic, &events).await;
    let done = Arc::new(std::sync::Mutex::new(Vec::new()));
    let workers = [first, second].map(|s| tokio::spawn(work(s, Arc::clone(&done), 30)));
    for worker in workers {
        tokio::time::timeout(PATIENCE, worker).await.expect("in time").expect("no panic");
    }
    let done = crate::memory::lock(&done).clone();
    assert_eq!(done.len(), 30, "nothing twice while all is well");
    let seen: BTreeSet<EventId> = done.iter().map(id_of).collect();
    assert_eq!(seen, ids(&events).into_iter().collect());
}

/// R070: where it is declared, a key's next event comes, to any instance, after the one before it
/// is settled.
pub async fn a_key_is_delivered_in_order_across_consumers<H: BrokerHarness>() {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let case = "a_key_is_delivered_in_order_across_consumers";
    let Some(first) = consumer(&harness, case, &topic, "billing").await else {
        return;
    };
    if !first.capabilities().key_order {
        return skip(case, "no key order across instances");
    }
    let second = harness.subscribe(&topic, "billing").await.expect("as before");
    let events: Vec<_> = (0..60).map(|n| event(&(n % 5).to_string(), n)).collect();
    publish_all(&*harness.broker(), &topic, &events).await;
    let done = Arc::new(std::sync::Mutex::new(Vec::new()));
    let workers = [first, second].map(|s| tokio::spawn(work(s, Arc::clone(&done), 60)));
    for worker in workers {
        tokio::time::timeout(PATIENCE, worker).await.expect("in time").expect("no panic");
    }
    let mut delivered: BTreeMap<String, Vec<EventId>> = BTreeMap::new();
    for delivery in crate::memory::lock(&done).iter() {
        let key = delivery.event.as_ref().expect("an event").key();
        delivered.entry(key).or_default().push(id_of(delivery));
    }
    for (key, delivered) in delivered {
        let own = events.iter().filter(|event| event.key() == key);
        let sent: Vec<EventId> = own.map(|event| event.id).collect();
        assert_eq!(delivered, sent, "{key}");
    }
}

/// A consumer that gives up waiting takes nothing with it.
pub async fn dropping_a_receive_loses_nothing<H: BrokerHarness>() {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let case = "dropping_a_receive_loses_nothing";
    let Some(subscription) = consumer(&harness, case, &topic, "billing").await else {
        return;
    };
    super::receive_nothing(&*subscription).await;
    let sent = event("1", 1);
    publish_all(&*harness.broker(), &topic, std::slice::from_ref(&sent)).await;
    // What the dropped call took, if anything, comes again after the visibility timeout.
    let visibility = subscription.capabilities().visibility;
    let patient = tokio::time::timeout(std::time::Duration::from_secs(2), subscription.receive(1));
    let delivery = match patient.await {
        Ok(batch) => batch.expect("receive").remove(0),
        Err(_) => {
            harness.pass(visibility + visibility / 4).await;
            receive(&*subscription, 1).await.remove(0)
        }
    };
    assert_eq!(id_of(&delivery), sent.id);
}
