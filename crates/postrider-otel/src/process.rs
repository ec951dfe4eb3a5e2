//! Process: a receiver with a span around each delivery, from the hand-over to the verdict.
//!
//! Invariants: what the receiver is asked and what it answers are not changed. A delivery that comes
//! again is another span of the same trace.

use std::sync::Arc;

use opentelemetry::context::FutureExt as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{BoxFuture, Delivery, Event, HandlerName, Result};

use crate::outcome::Open;
use crate::resume::InWork;
use crate::tracing::{Operation, Tracing, from_creation, marks, origin, system};
use crate::{context, semconv};

/// A receiver whose deliveries are traced; see [`Tracing::receiver`].
///
/// An event without a context begins a trace of its own here, if the sampler wants it; one whose
/// context is not sampled has no span, and its receiver runs in that context.
///
/// | verdict | `postrider.outcome` | status |
/// |---|---|---|
/// | done | `done` | unset |
/// | done before | `duplicate` | unset |
/// | somebody else is at it | `busy` | unset |
/// | it is to be tried alone, later | `put_off` | unset |
/// | to be tried again | `retry` | error |
/// | never to succeed | `rejected` | error |
/// | the inbox did not answer | `failed` | error |
/// | the handler was stopped, or panicked outside of what catches it | `unknown` | error |
pub struct TracedReceiver {
    tracing: Tracing,
    receiver: Arc<dyn Receiver>,
}

impl TracedReceiver {
    pub(crate) fn new(tracing: Tracing, receiver: Arc<dyn Receiver>) -> TracedReceiver {
        TracedReceiver { tracing, receiver }
    }

    /// The context in which the receiver works, and the span in it, if there is one.
    fn open(&self, event: &Event, delivery: &Delivery) -> (Context, Option<Open>) {
        let creation = context::read(&event.headers);
        if let Some(creation) = creation.as_ref().filter(|creation| !creation.is_sampled()) {
            return (Context::new().with_remote_span_context(creation.clone()), None);
        }
        let context = self.start(event, delivery, creation.as_ref());
        let span = Open::new(context.clone(), self.tracing.is_detailed());
        (context, Some(span))
    }

    fn start(&self, event: &Event, delivery: &Delivery, creation: Option<&SpanContext>) -> Context {
        let handler = self.receiver.handler().as_str();
        let mut span = self.tracing.span(Operation::PROCESS, system(delivery), handler, event);
        let attributes = span.attributes.get_or_insert_default();
        attributes.push(KeyValue::new(semconv::HANDLER, handler.to_owned()));
        attributes.push(KeyValue::new(semconv::ATTEMPT, i64::from(delivery.count)));
        attributes.extend(self.tracing.topic(&delivery.topic, event));
        attributes.extend(origin(delivery));
        attributes.extend(marks(delivery.marks));
        let (span, parent) = match creation {
            Some(creation) => from_creation(span, creation),
            None => (span, Context::new()),
        };
        self.tracing.start(span, &parent)
    }
}

impl std::fmt::Debug for TracedReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TracedReceiver").field("handler", self.handler()).finish_non_exhaustive()
    }
}

impl Receiver for TracedReceiver {
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
            let (context, span) = self.open(event, delivery);
            // A copy of its own, because a broker may give one event to two handlers at once, and
            // `resume` knows a delivery by its event. The payload is shared.
            let event = Arc::new(Event::clone(event));
            let _in_work = InWork::begin(&event, &context);
            let answer = self.receiver.receive(&event, delivery).with_context(context).await;
            if let Some(span) = span {
                end(span, &answer);
            }
            answer
        })
    }
}

fn end(span: Open, answer: &Result<Verdict>) {
    match answer {
        Ok(Verdict::Done) => span.end("done"),
        Ok(Verdict::Duplicate) => span.end("duplicate"),
        Ok(Verdict::Busy { .. }) => span.end("busy"),
        Ok(Verdict::Alone) => span.end("put_off"),
        Ok(Verdict::Retry { fault, .. }) => span.fault("retry", fault),
        Ok(Verdict::Reject(fault)) => span.fault("rejected", fault),
        Err(error) => span.fail("failed", error.kind(), &error.to_string()),
    }
}
