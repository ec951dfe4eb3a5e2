//! A consumer of the memory broker.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{BoxFuture, Delivery, Fault, Result, Subscription};

use super::group::Group;
use super::{MemoryBroker, lock};

/// One instance of a consumer group.
#[derive(Debug)]
pub struct MemorySubscription {
    broker: MemoryBroker,
    topic: Arc<str>,
    group: String,
    visibility: Duration,
}

impl MemorySubscription {
    pub(super) fn new(
        broker: MemoryBroker,
        topic: Arc<str>,
        group: String,
        visibility: Duration,
    ) -> MemorySubscription {
        MemorySubscription { broker, topic, group, visibility }
    }

    /// What may be delivered now; none if nothing may.
    pub fn poll(&self, max: usize) -> Vec<Delivery> {
        let now = self.broker.shared.clock.elapsed();
        let mut state = lock(&self.broker.shared.state);
        let topic = state.topics.entry(Arc::clone(&self.topic)).or_default();
        let group = topic.groups.entry(self.group.clone()).or_default();
        let taken = group.take(&topic.log, max.max(1), now, self.visibility);
        let deliver = |taken: &super::group::Taken| {
            let message = &topic.log[taken.index];
            let receipt = Receipt { message: taken.index as u64, token: taken.token };
            let event = Ok(Arc::clone(&message.event));
            let mut delivery = Delivery::new(event, Arc::clone(&self.topic), receipt);
            delivery.marks = message.marks;
            delivery.count = taken.count;
            delivery
        };
        taken.iter().map(deliver).collect()
    }

    fn settle(
        &self,
        delivery: &Delivery,
        how: impl FnOnce(&mut Group, usize, u64, Duration) -> Result<()>,
    ) -> Result<()> {
        let now = self.broker.shared.clock.elapsed();
        let result = {
            let mut state = lock(&self.broker.shared.state);
            let topic = state.topics.entry(Arc::clone(&self.topic)).or_default();
            let group = topic.groups.entry(self.group.clone()).or_default();
            let index = usize::try_from(delivery.receipt.message).unwrap_or(usize::MAX);
            how(group, index, delivery.receipt.token, now)
        };
        self.broker.shared.changed();
        result
    }

    /// How long until time alone makes something deliverable, on a clock that runs by itself.
    fn next_in(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(3_600);
        if !self.broker.shared.clock.runs() {
            return LONG;
        }
        let now = self.broker.shared.clock.elapsed();
        let state = lock(&self.broker.shared.state);
        let topic = state.topics.get(&self.topic);
        let group = topic.and_then(|topic| topic.groups.get(&self.group));
        let at = group.and_then(Group::next_at);
        at.map_or(LONG, |at| at.saturating_sub(now).max(Duration::from_millis(1)))
    }
}

impl Subscription for MemorySubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        let mut capabilities = SubscriptionCapabilities::least(self.visibility);
        capabilities.key_order = true;
        capabilities.counts_deliveries = true;
        capabilities
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            loop {
                // Look after registering, so that nothing that happens in between is missed.
                let mut changes = self.broker.shared.changes.subscribe();
                let mut clock = self.broker.shared.clock.watch();
                let deliveries = self.poll(max);
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
                let next_in = self.next_in();
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = clock.changed() => {}
                    // waits: a running clock is waited for, until the next message is due
                    () = tokio::time::sleep(next_in) => {}
                }
            }
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.settle(delivery, |group, index, token, now| group.ack(index, token, now))
        })
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.settle(delivery, |group, index, token, now| {
                group.nack(index, token, now, delay, counted)
            })
        })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.settle(delivery, |group, index, token, now| group.reject(index, token, now, fault))
        })
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.settle(delivery, |group, index, token, now| group.extend(index, token, now, by))
        })
    }
}
