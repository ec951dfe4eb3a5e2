//! Send: a broker with a span around each event of each attempt, from the call to the answer.
//!
//! Invariants: what the broker is asked and what it answers are not changed. Only an event whose
//! creation was sampled has a span, so the cost of the others is a look at a header, and as many spans
//! are open as events are under way.

use std::sync::Arc;

use opentelemetry::KeyValue;
use postrider_core::operate::Finding;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, DestinationId, Error, Outcome, Outgoing, Result, Route,
};

use crate::outcome::Open;
use crate::tracing::{Operation, Tracing, from_creation, marks};
use crate::{context, semconv};

/// A broker whose attempts to publish are traced; see [`Tracing::broker`].
///
/// | outcome of the event | `postrider.outcome` | status |
/// |---|---|---|
/// | acknowledged | `acked` | unset |
/// | to be tried again | `retry` | error |
/// | refused for good | `rejected` | error |
/// | no such endpoint, or it does not accept us | `unroutable` | error |
/// | the endpoint is gone | `gone` | error |
/// | not tried, because one before it failed | `skipped` | unset |
/// | a failure that names no event | `unknown` | error |
/// | the call was dropped at its deadline | `unknown` | error, type `dropped` |
#[derive(Debug)]
pub struct TracedBroker {
    tracing: Tracing,
    destination: Arc<str>,
    broker: ByName,
}

/// Brokers have no `Debug`, and a wrapper needs one for its own tests.
struct ByName(Arc<dyn Broker>);

impl std::fmt::Debug for ByName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Broker")
    }
}

impl TracedBroker {
    pub(crate) fn new(
        tracing: Tracing,
        destination: &DestinationId,
        broker: Arc<dyn Broker>,
    ) -> TracedBroker {
        TracedBroker {
            tracing,
            destination: Arc::from(destination.as_str()),
            broker: ByName(broker),
        }
    }

    /// The spans of a batch: `None` where an event has none.
    fn open(&self, batch: &[Outgoing]) -> Vec<Option<Open>> {
        batch.iter().map(|outgoing| self.open_one(outgoing, batch.len())).collect()
    }

    fn open_one(&self, outgoing: &Outgoing, batch: usize) -> Option<Open> {
        let event = &outgoing.event;
        let creation = context::read(&event.headers).filter(|creation| creation.is_sampled())?;
        let system = self.broker.0.system();
        let mut span = self.tracing.span(Operation::SEND, system, &self.destination, event);
        let attributes = span.attributes.get_or_insert_default();
        attributes.push(KeyValue::new(semconv::DESTINATION, Arc::clone(&self.destination)));
        attributes.push(KeyValue::new(semconv::ATTEMPT, i64::from(outgoing.attempt)));
        attributes.push(KeyValue::new(semconv::BATCH, batch as i64));
        attributes.extend(self.tracing.topic(&outgoing.topic, event));
        attributes.extend(marks(outgoing.marks));
        let (span, parent) = from_creation(span, &creation);
        Some(Open::new(self.tracing.start(span, &parent), self.tracing.is_detailed()))
    }
}

impl Broker for TracedBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.0.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let spans = self.open(batch);
            let answer = self.broker.0.publish(batch).await;
            match &answer {
                Ok(outcomes) => {
                    for (span, outcome) in spans.into_iter().zip(outcomes) {
                        if let Some(span) = span {
                            end(span, outcome);
                        }
                    }
                }
                Err(error) => {
                    for span in spans.into_iter().flatten() {
                        fail(span, error);
                    }
                }
            }
            answer
        })
    }

    fn system(&self) -> &'static str {
        self.broker.0.system()
    }

    fn examine<'a>(&'a self, routes: &'a [Route]) -> BoxFuture<'a, Result<Vec<Finding>>> {
        self.broker.0.examine(routes)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.broker.0.close()
    }
}

fn end(span: Open, outcome: &Outcome) {
    match outcome {
        Outcome::Acked => span.end("acked"),
        Outcome::Skipped => span.end("skipped"),
        Outcome::Retry { fault, .. } => span.fault("retry", fault),
        Outcome::Rejected(fault) => span.fault("rejected", fault),
        Outcome::Unroutable(fault) => span.fault("unroutable", fault),
        Outcome::Hindered(fault) => span.fault("hindered", fault),
        Outcome::Gone(fault) => span.fault("gone", fault),
    }
}

fn fail(span: Open, error: &Error) {
    span.fail("unknown", error.kind(), &error.to_string());
}
