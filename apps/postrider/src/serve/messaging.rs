//! The metrics of the OpenTelemetry messaging conventions, counted around the contracts: what a relay sends, and what a
//! sidecar receives, hands over, and settles.
//!
//! Invariants: what broker, subscription, and receiver are asked and what they answer is not changed. A label holds
//! nothing of which there can be more than the configuration names: a topic stands there only if a route, or the source,
//! names it as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::operate::Finding;
use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Delivery, Destination, Event, Fault, HandlerName,
    Outcome, Outgoing, Result, Route, Subscription,
};

use super::catalog;
use super::metrics::Metrics;

/// So many names of topics stand in labels, of one destination or source: a metric of durations has seventeen series for
/// each, and a store of metrics is often told to refuse more than some ten thousand of a process. 100 by default; those
/// behind them are counted together, without a name.
const NAMES_MAX: usize = 100;

/// Said of a call that was given up at its deadline: what became of it, nobody knows.
const DROPPED: &str = "dropped";

/// The names of topics that may stand in a label.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<BTreeSet<String>>);

impl Names {
    /// These. What has more than a name, like an address with its path, is left out: it may be a secret.
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> Names {
        Names(Arc::new(
            names.into_iter().filter(|name| !name.contains("://")).take(NAMES_MAX).collect(),
        ))
    }

    /// The topics that a destination's routes name without a field of the event.
    fn of_routes(routes: &[Route]) -> Names {
        Names::of(routes.iter().filter(|route| !route.drop).filter_map(|route| {
            let (topic, goes_on) = route.topic.prefix();
            (!goes_on).then_some(topic)
        }))
    }

    /// The label: nothing for a topic that is not one of them.
    fn label(&self, topic: &str) -> &str {
        self.0.get(topic).map_or("", String::as_str)
    }
}

/// Puts counting around what the brokers of a relay are sent.
pub(crate) fn wrap(metrics: &Arc<Metrics>, destinations: &mut [(Destination, Arc<dyn Broker>)]) {
    for (definition, broker) in destinations {
        *broker = Arc::new(MeteredBroker {
            metrics: Arc::clone(metrics),
            names: Names::of_routes(&definition.routes),
            broker: Arc::clone(broker),
        });
    }
}

/// A broker whose sends are counted.
struct MeteredBroker {
    metrics: Arc<Metrics>,
    names: Names,
    broker: Arc<dyn Broker>,
}

impl Broker for MeteredBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let send = Send { broker: self, batch, began: Instant::now(), over: false };
            let answer = self.broker.publish(batch).await;
            send.end(&answer);
            answer
        })
    }

    fn system(&self) -> &'static str {
        self.broker.system()
    }

    fn examine<'a>(&'a self, routes: &'a [Route]) -> BoxFuture<'a, Result<Vec<Finding>>> {
        self.broker.examine(routes)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.broker.close()
    }
}

/// A call of a broker that is under way.
struct Send<'a> {
    broker: &'a MeteredBroker,
    batch: &'a [Outgoing],
    began: Instant,
    over: bool,
}

impl Send<'_> {
    fn end(mut self, answer: &Result<Vec<Outcome>>) {
        self.over = true;
        // How many ended in which way; nearly always all in one.
        let mut ends: BTreeMap<String, u64> = BTreeMap::new();
        match answer {
            Ok(outcomes) => {
                for outcome in outcomes {
                    if let Some(end) = end_of(outcome) {
                        *ends.entry(end).or_default() += 1;
                    }
                }
            }
            Err(error) => _ = ends.insert(error.kind().snake_case(), self.batch.len() as u64),
        }
        for (error, count) in ends {
            self.count(&error, count);
        }
    }

    fn count(&self, error: &str, count: u64) {
        let MeteredBroker { metrics, names, broker } = self.broker;
        // A batch goes to one topic.
        let topic = self.batch.first().map_or("", |outgoing| names.label(&outgoing.topic));
        metrics.add(catalog::SENT, &["send", broker.system(), topic, error], count);
        let labels = ["send", "send", broker.system(), "", topic, error];
        metrics.observe_all(catalog::OPERATION, &labels, self.began.elapsed(), count);
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.count(DROPPED, self.batch.len() as u64);
        }
    }
}

/// What went wrong with an event, empty if nothing did; none where it was not tried.
fn end_of(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Acked => Some(String::new()),
        Outcome::Skipped => None,
        Outcome::Retry { fault, .. }
        | Outcome::Rejected(fault)
        | Outcome::Unroutable(fault)
        | Outcome::Hindered(fault)
        | Outcome::Gone(fault) => Some(fault.kind.snake_case()),
    }
}

/// A subscription whose deliveries and answers are counted.
pub(crate) struct MeteredSubscription {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) names: Names,
    pub(crate) subscription: Arc<dyn Subscription>,
}

impl MeteredSubscription {
    async fn settle(
        &self,
        operation: &'static str,
        delivery: &Delivery,
        answer: BoxFuture<'_, Result<()>>,
    ) -> Result<()> {
        let began = Instant::now();
        let heard = answer.await;
        let error = heard.as_ref().err().map(|error| error.kind().snake_case()).unwrap_or_default();
        let (system, group) = origin(delivery);
        let topic = self.names.label(&delivery.topic);
        let labels = [operation, "settle", system, group, topic, &error];
        self.metrics.observe_all(catalog::OPERATION, &labels, began.elapsed(), 1);
        heard
    }
}

impl Subscription for MeteredSubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.subscription.capabilities()
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let deliveries = self.subscription.receive(max).await?;
            for delivery in &deliveries {
                let (system, group) = origin(delivery);
                let topic = self.names.label(&delivery.topic);
                self.metrics.add(catalog::CONSUMED, &["receive", system, group, topic], 1);
            }
            Ok(deliveries)
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.settle("ack", delivery, self.subscription.ack(delivery)))
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        let answer = self.subscription.nack(delivery, delay, counted);
        Box::pin(self.settle("nack", delivery, answer))
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.settle("reject", delivery, self.subscription.reject(delivery, fault)))
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

/// A receiver whose work is counted.
pub(crate) struct MeteredReceiver {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) names: Names,
    pub(crate) receiver: Arc<dyn Receiver>,
}

impl Receiver for MeteredReceiver {
    fn handler(&self) -> &HandlerName {
        self.receiver.handler()
    }

    fn counts_tries(&self) -> bool {
        self.receiver.counts_tries()
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        self.receiver.at_rest()
    }

    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        self.receiver.buried(delivery)
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async move {
            let began = Instant::now();
            let answer = self.receiver.receive(event, delivery).await;
            let error = match &answer {
                // Waiting for the endpoint, for whoever has the claim, or to be alone, is no work.
                Ok(Verdict::Busy { .. } | Verdict::Alone) => return answer,
                Ok(Verdict::Done | Verdict::Duplicate) => String::new(),
                Ok(Verdict::Retry { fault, .. } | Verdict::Reject(fault)) => {
                    fault.kind.snake_case()
                }
                Err(error) => error.kind().snake_case(),
            };
            let (system, group) = origin(delivery);
            let topic = self.names.label(&delivery.topic);
            let labels = ["process", system, group, topic, &error];
            self.metrics.observe_all(catalog::PROCESS, &labels, began.elapsed(), 1);
            answer
        })
    }
}

/// Which broker a delivery came from, and to which group.
fn origin(delivery: &Delivery) -> (&'static str, &str) {
    let origin = delivery.origin.as_ref();
    let system = origin.map_or("postrider", |origin| origin.system);
    (system, origin.and_then(|origin| origin.group.as_deref()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
