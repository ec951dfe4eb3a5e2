//! Tracing: the tracer, what may stand on spans, and the ways into it.
//!
//! Invariant: a clone is the same tracer with the same rules.

use std::fmt;
use std::sync::Arc;

use opentelemetry::global::{BoxedTracer, ObjectSafeTracerProvider};
use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanKind, TraceContextExt as _, Tracer as _,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, global};
use postrider_core::inbox::Receiver;
use postrider_core::{Broker, Delivery, DestinationId, Event, Marks, Subscription};

use crate::process::TracedReceiver;
use crate::semconv;
use crate::send::TracedBroker;
use crate::settle::TracedSubscription;

/// The system of a span that is about no broker, or of an unknown one.
pub(crate) const SYSTEM: &str = "postrider";

/// What is done to a message: the conventions' name and type of it, and the kind of its span.
pub(crate) struct Operation {
    name: &'static str,
    class: &'static str,
    kind: SpanKind,
}

impl Operation {
    pub(crate) const CREATE: Operation = Operation::new("create", "create", SpanKind::Producer);
    pub(crate) const SEND: Operation = Operation::new("send", "send", SpanKind::Client);
    pub(crate) const PROCESS: Operation = Operation::new("process", "process", SpanKind::Consumer);
    pub(crate) const ACK: Operation = Operation::new("ack", "settle", SpanKind::Client);
    pub(crate) const NACK: Operation = Operation::new("nack", "settle", SpanKind::Client);
    pub(crate) const REJECT: Operation = Operation::new("reject", "settle", SpanKind::Client);

    const fn new(name: &'static str, class: &'static str, kind: SpanKind) -> Operation {
        Operation { name, class, kind }
    }
}

/// Opens spans. Cheap to clone.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use postrider_core::{Broker, Destination, inbox::Receiver};
/// use postrider_otel::Tracing;
///
/// # fn example(definition: Destination, broker: Arc<dyn Broker>, billing: Arc<dyn Receiver>) {
/// let tracing = Tracing::global();
/// // Give these to the relay and to the consumer in place of the bare ones.
/// let broker: Arc<dyn Broker> = Arc::new(tracing.broker(&definition.id, broker));
/// let billing: Arc<dyn Receiver> = Arc::new(tracing.receiver(billing));
/// # }
/// ```
#[derive(Clone)]
pub struct Tracing {
    tracer: Arc<BoxedTracer>,
    detailed: bool,
}

impl Tracing {
    /// With the provider that was set with `opentelemetry::global::set_tracer_provider` before this
    /// call. Where none was, no span is ever made.
    pub fn global() -> Tracing {
        Tracing { tracer: Arc::new(global::tracer_with_scope(scope())), detailed: false }
    }

    /// With a provider, whatever the global one is.
    pub fn with_provider(provider: &impl ObjectSafeTracerProvider) -> Tracing {
        let tracer = BoxedTracer::new(provider.boxed_tracer(scope()));
        Tracing { tracer: Arc::new(tracer), detailed: false }
    }

    /// Also writes keys, and the text of failures. Both may name a person, and whoever sees the traces
    /// sees them; off by default.
    #[must_use]
    pub fn detailed(mut self) -> Tracing {
        self.detailed = true;
        self
    }

    /// A broker with a span around each event of each attempt to publish.
    pub fn broker(&self, destination: &DestinationId, broker: Arc<dyn Broker>) -> TracedBroker {
        TracedBroker::new(self.clone(), destination, broker)
    }

    /// A receiver with a span around each delivery. The span is the current one while the receiver
    /// works; in a thread of its own, see [`resume`](crate::resume).
    pub fn receiver(&self, receiver: Arc<dyn Receiver>) -> TracedReceiver {
        TracedReceiver::new(self.clone(), receiver)
    }

    /// A subscription with a span around each answer to a delivery.
    pub fn subscription(&self, subscription: Arc<dyn Subscription>) -> TracedSubscription {
        TracedSubscription::new(self.clone(), subscription)
    }

    pub(crate) fn is_detailed(&self) -> bool {
        self.detailed
    }

    /// Starts a span, and gives the context in which it is the current one.
    pub(crate) fn start(&self, span: SpanBuilder, parent: &Context) -> Context {
        parent.with_span(self.tracer.build_with_context(span, parent))
    }

    /// A span about an event, with what every one of them says.
    pub(crate) fn span(
        &self,
        operation: Operation,
        system: &'static str,
        target: &str,
        event: &Event,
    ) -> SpanBuilder {
        let Operation { name, class, kind } = operation;
        let mut attributes = vec![
            KeyValue::new(semconv::SYSTEM, system),
            KeyValue::new(semconv::OPERATION_NAME, name),
            KeyValue::new(semconv::OPERATION_TYPE, class),
            KeyValue::new(semconv::MESSAGE_ID, event.id.to_string()),
            KeyValue::new(semconv::EVENT_TYPE, event.event_type.to_string()),
        ];
        if !event.source.is_empty() {
            attributes.push(KeyValue::new(semconv::EVENT_SOURCE, Arc::clone(&event.source)));
        }
        if self.detailed {
            attributes.push(KeyValue::new(semconv::KEY, event.key()));
        }
        SpanBuilder::from_name(format!("{name} {target}"))
            .with_kind(kind)
            .with_attributes(attributes)
    }

    /// The topic as it may stand on a span.
    pub(crate) fn topic(&self, topic: &Arc<str>, event: &Event) -> Option<KeyValue> {
        let shown = if self.detailed { Some(Arc::clone(topic)) } else { shown(topic, event) };
        shown.map(|topic| KeyValue::new(semconv::DESTINATION_NAME, topic))
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("detailed", &self.detailed).finish_non_exhaustive()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("postrider")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(semconv::SCHEMA_URL)
        .build()
}

/// A parent from another process, and the link to it.
pub(crate) fn from_creation(span: SpanBuilder, creation: &SpanContext) -> (SpanBuilder, Context) {
    let parent = Context::new().with_remote_span_context(creation.clone());
    (span.with_links(vec![Link::with_context(creation.clone())]), parent)
}

/// What the marks of a delivery say, if they say anything.
pub(crate) fn marks(marks: Marks) -> impl Iterator<Item = KeyValue> {
    [(semconv::LATE, marks.late), (semconv::REPLAY, marks.replay)]
        .into_iter()
        .filter(|(_, marked)| *marked)
        .map(|(name, marked)| KeyValue::new(name, marked))
}

/// What a delivery says of where it stands.
pub(crate) fn origin(delivery: &Delivery) -> Vec<KeyValue> {
    let Some(origin) = &delivery.origin else { return Vec::new() };
    let group = origin.group.as_ref();
    let group = group.map(|group| KeyValue::new(semconv::GROUP, Arc::clone(group)));
    let partition = origin.partition.map(|id| KeyValue::new(semconv::PARTITION, id.to_string()));
    let name = if origin.system == "kafka" { semconv::KAFKA_OFFSET } else { semconv::OFFSET };
    let offset = origin.offset.map(|offset| KeyValue::new(name, offset));
    group.into_iter().chain(partition).chain(offset).collect()
}

/// Which broker a delivery came from.
pub(crate) fn system(delivery: &Delivery) -> &'static str {
    delivery.origin.as_ref().map_or(SYSTEM, |origin| origin.system)
}

/// A topic without what may name a person or be a secret: nothing, if the event's key or aggregate is
/// part of it; of an address, what stands before the path.
fn shown(topic: &Arc<str>, event: &Event) -> Option<Arc<str>> {
    let names = |text: &str| stands_in(topic, text);
    if names(&event.aggregate_id) || event.key.as_deref().is_some_and(names) {
        return None;
    }
    let Some((scheme, rest)) = topic.split_once("://") else {
        return Some(Arc::clone(topic));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(Arc::from(format!("{scheme}://{host}")))
}

/// Whether a text is a part of a topic, not merely letters within a word of it.
fn stands_in(topic: &str, text: &str) -> bool {
    if text.is_empty() {
        return false;
    }
    topic.match_indices(text).any(|(at, _)| {
        let before = topic[..at].chars().next_back();
        let after = topic[at + text.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use postrider_core::EventId;

    use super::*;

    #[test]
    fn a_topic_is_shown_without_what_may_name_a_person() {
        let mut event = Event::new(EventId::from_u128(7), "person", "1", "person.moved");
        event.key = Some("ann@example.org".into());
        for (topic, expected) in [
            ("person.moved", Some("person.moved")),
            ("v1.person", Some("v1.person")),
            ("person.1", None),
            ("1", None),
            ("person.1.moved", None),
            ("people/ann@example.org", None),
            ("https://user:hunter2@hooks.example/T0/secret?x=y", Some("https://hooks.example")),
            ("https://hooks.example:8443", Some("https://hooks.example:8443")),
        ] {
            let shown = shown(&Arc::from(topic), &event);
            assert_eq!(shown.as_deref(), expected, "{topic}");
        }
    }
}
