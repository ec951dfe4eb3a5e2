//! Consuming: groups, instances, and the order of a key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::{Delivery, ErrorKind, EventId, Subscription};

use super::promise::Promise;
use super::{BrokerHarness, REFUSED_MAX, consumer, event, id_of, ids, publish_all, receive};
use crate::memory::lock;
use crate::suite::skip;

/// How long an instance asks before it looks at what all have done.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
    let mut deliveries = receive::<H>(&*subscription, 10).await;
    for sent in &events {
        // Nothing is settled here: where the machine is slow, what came first may come again before the last.
        let delivery = loop {
            match deliveries.iter().find(|delivery| id_of(delivery) == sent.id) {
                Some(delivery) => break delivery,
                None => deliveries.extend(receive::<H>(&*subscription, 1).await),
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
        let deliveries = receive::<H>(&*subscription, 5).await;
        assert_eq!(deliveries.iter().map(id_of).collect::<BTreeSet<_>>(), all);
        for delivery in &deliveries {
            subscription.ack(delivery).await.expect("ack");
        }
    }
}

/// What the instances of a group did together.
struct Done {
    deliveries: Vec<Delivery>,
    /// When the last of them came.
    last: Instant,
    /// Whether one was with its consumer for its visibility or longer, on a clock that runs by itself. Only then may one come
    /// twice.
    outlived: bool,
}

impl Done {
    fn new() -> Arc<Mutex<Done>> {
        Arc::new(Mutex::new(Done { deliveries: Vec::new(), last: Instant::now(), outlived: false }))
    }

    fn distinct(&self) -> usize {
        self.deliveries.iter().map(id_of).collect::<BTreeSet<_>>().len()
    }
}

/// Receives and acknowledges one delivery at a time until so many events were done by all together.
async fn work<H: BrokerHarness>(
    subscription: Arc<dyn Subscription>,
    done: Arc<Mutex<Done>>,
    target: usize,
) {
    let visibility = subscription.capabilities().visibility;
    // What a call took along that was given up comes with the next one.
    let (mut asked_before, mut refused) = (Promise::asked::<H>(visibility), 0);
    while lock(&done).distinct() < target {
        let quiet = lock(&done).last.elapsed();
        assert!(quiet < H::patience(), "nothing came for {quiet:?}, and less than {target}");
        let asked = Promise::asked::<H>(visibility);
        // The other instance may take the last one: look again at the count from time to time.
        let batch = tokio::time::timeout(LOOK_EVERY, subscription.receive(1)).await;
        let promise = std::mem::replace(&mut asked_before, asked);
        let deliveries = match batch {
            Err(_) => continue,
            // A server on a busy machine may not answer in time. Whoever asks again is answered.
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable && refused < REFUSED_MAX => {
                refused += 1;
                continue;
            }
            Ok(batch) => batch.expect("receive"),
        };
        refused = 0;
        for delivery in deliveries {
            // Recorded before it is settled: only then may its key's next come.
            {
                let mut done = lock(&done);
                done.deliveries.push(delivery.clone());
                done.last = Instant::now();
            }
            tokio::task::yield_now().await;
            let acked = subscription.ack(&delivery).await;
            lock(&done).outlived |= promise.is_over();
            match acked {
                Err(error) if error.kind() == ErrorKind::Fenced && promise.is_over() => {}
                acked => acked.expect("ack"),
            }
        }
    }
}

/// Lets two instances of a group do all events, and returns what they did.
async fn share<H: BrokerHarness>(instances: [Arc<dyn Subscription>; 2], events: usize) -> Done {
    let done = Done::new();
    let workers = instances.map(|it| tokio::spawn(work::<H>(it, Arc::clone(&done), events)));
    for worker in workers {
        worker.await.expect("no panic");
    }
    Arc::into_inner(done).and_then(|done| done.into_inner().ok()).expect("both have ended")
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
    let done = share::<H>([first, second], 30).await;
    let seen: BTreeSet<EventId> = done.deliveries.iter().map(id_of).collect();
    assert_eq!(seen, ids(&events).into_iter().collect());
    if !done.outlived {
        assert_eq!(done.deliveries.len(), 30, "nothing twice while all is well");
    }
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
    let done = share::<H>([first, second], 60).await;
    let (mut delivered, mut seen) = (BTreeMap::<String, Vec<EventId>>::new(), BTreeSet::new());
    for delivery in &done.deliveries {
        // What came again after its time comes where it stood: the first of each are in order.
        if seen.insert(id_of(delivery)) || !done.outlived {
            let key = delivery.event.as_ref().expect("an event").key();
            delivered.entry(key).or_default().push(id_of(delivery));
        }
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
            receive::<H>(&*subscription, 1).await.remove(0)
        }
    };
    assert_eq!(id_of(&delivery), sent.id);
}
