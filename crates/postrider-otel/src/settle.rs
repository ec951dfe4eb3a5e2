//! Settle: a subscription with a span around each answer that a delivery gets, until the broker has heard it.
//!
//! Invariants: what the broker is told and what it answers are not changed. Only a delivery whose event was
//! created in a sampled trace has a span.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{BoxFuture, Delivery, Fault, Result, Subscription};

use crate::context;
use crate::outcome::Open;
use crate::tracing::{Operation, Tracing, from_creation, marks, origin, system};

/// A subscription whose answers are traced; see [`Tracing::subscription`].
///
/// | answer | span | `postrider.outcome` | status |
/// |---|---|---|---|
/// | done, and the broker has heard it | `ack` | `settled` | unset |
/// | not done, to come again | `nack` | `settled` | unset |
/// | never to come again | `reject` | `settled` | unset |
/// | the broker refused the answer, or did not hear it | as above | `unknown` | error |
pub struct TracedSubscription {
    tracing: Tracing,
    subscription: Arc<dyn Subscription>,
}

impl TracedSubscription {
    pub(crate) fn new(tracing: Tracing, subscription: Arc<dyn Subscription>) -> TracedSubscription {
        TracedSubscription { tracing, subscription }
    }

    fn open(&self, operation: Operation, delivery: &Delivery) -> Option<Open> {
        let event = delivery.event.as_ref().ok()?;
        let creation = context::read(&event.headers).filter(|creation| creation.is_sampled())?;
        let from = delivery.origin.as_ref();
        let group = from.and_then(|origin| origin.group.as_deref()).unwrap_or("delivery");
        let mut span = self.tracing.span(operation, system(delivery), group, event);
        let attributes = span.attributes.get_or_insert_default();
        attributes.extend(self.tracing.topic(&delivery.topic, event));
        attributes.extend(origin(delivery));
        attributes.extend(marks(delivery.marks));
        let (span, parent) = from_creation(span, &creation);
        Some(Open::new(self.tracing.start(span, &parent), self.tracing.is_detailed()))
    }

    async fn settle(
        &self,
        operation: Operation,
        delivery: &Delivery,
        answer: BoxFuture<'_, Result<()>>,
    ) -> Result<()> {
        let span = self.open(operation, delivery);
        let heard = answer.await;
        if let Some(span) = span {
            match &heard {
                Ok(()) => span.end("settled"),
                Err(error) => span.fail("unknown", error.kind(), &error.to_string()),
            }
        }
        heard
    }
}

impl std::fmt::Debug for TracedSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TracedSubscription").finish_non_exhaustive()
    }
}

impl Subscription for TracedSubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.subscription.capabilities()
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        self.subscription.receive(max)
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        let answer = self.subscription.ack(delivery);
        Box::pin(self.settle(Operation::ACK, delivery, answer))
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        let answer = self.subscription.nack(delivery, delay, counted);
        Box::pin(self.settle(Operation::NACK, delivery, answer))
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        let answer = self.subscription.reject(delivery, fault);
        Box::pin(self.settle(Operation::REJECT, delivery, answer))
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        self.subscription.extend(delivery, by)
    }

    fn hindrance(&self) -> Option<String> {
        self.subscription.hindrance()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.subscription.close()
    }
}
