//! A topic of the suite as the subjects of its partitions, and back.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Delivery, Fault, Outcome, Outgoing, Result,
    Subscription, Template,
};

/// Publishes as a route with the topic `TOPIC.{partition:N}` does.
pub(crate) struct Spread<B> {
    pub(crate) inner: B,
    pub(crate) partitions: u16,
}

impl<B: Broker> Broker for Spread<B> {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        let spread = |outgoing: &Outgoing| {
            let template = format!("{}.{{partition:{}}}", outgoing.topic, self.partitions);
            let template: Template = template.parse().unwrap();
            Outgoing { topic: template.render(&outgoing.event).into(), ..outgoing.clone() }
        };
        let batch: Vec<Outgoing> = batch.iter().map(spread).collect();
        Box::pin(async move { self.inner.publish(&batch).await })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

/// Receives from all partitions of a topic, under the topic's name.
pub(crate) struct Together<S>(pub(crate) S);

impl<S: Subscription> Subscription for Together<S> {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.0.capabilities()
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let mut deliveries = self.0.receive(max).await?;
            for delivery in &mut deliveries {
                let (topic, partition) = delivery.topic.rsplit_once('.').unwrap();
                let origin = delivery.origin.as_ref().unwrap();
                assert_eq!(origin.partition, Some(partition.parse().unwrap()));
                delivery.topic = Arc::from(topic);
            }
            Ok(deliveries)
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        self.0.ack(delivery)
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        self.0.nack(delivery, delay, counted)
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        self.0.reject(delivery, fault)
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        self.0.extend(delivery, by)
    }
}
