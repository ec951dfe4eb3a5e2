//! Create: a span for the event that is about to be staged, and its context into the headers.
//!
//! Invariant: an event that has a valid context keeps it: whoever wrote it knows better.

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use postrider_core::NewEvent;

use crate::context;
use crate::tracing::{Operation, SYSTEM, Tracing};

/// Puts the trace into an event.
pub trait Traced: Sized {
    /// Records that the event is created, as a child of the current span, and puts the context of that
    /// into its headers. Call it last, in the span whose work the event tells of.
    ///
    /// The current span is OpenTelemetry's, which is also the one of `tracing` where the layer of
    /// `tracing-opentelemetry` is installed. If nothing records, the context that is there is passed on
    /// as it is; if there is none, nothing changes. An event that has a valid `traceparent` is left
    /// alone. Baggage is not passed on.
    ///
    /// The headers take up to 80 bytes, and up to 512 more for the state of the tracing systems; they
    /// count against the limits of the destination.
    ///
    /// ```
    /// use postrider_core::NewEvent;
    /// use postrider_otel::Traced as _;
    ///
    /// let event = NewEvent::new("order", "42", "order.placed").traced();
    /// # let _ = event;
    /// ```
    #[must_use = "an event that is not enqueued in a transaction never happened"]
    fn traced(self) -> Self {
        self.traced_by(&Tracing::global())
    }

    /// Like [`Traced::traced`], with another provider or other rules than the global ones.
    #[must_use = "an event that is not enqueued in a transaction never happened"]
    fn traced_by(self, tracing: &Tracing) -> Self;
}

impl Traced for NewEvent {
    fn traced_by(self, tracing: &Tracing) -> NewEvent {
        if context::read(&self.event().headers).is_some() {
            return self;
        }
        let span = {
            let event = self.event();
            tracing.span(Operation::CREATE, SYSTEM, &event.event_type, event)
        };
        let created = Context::map_current(|current| tracing.start(span, current));
        let span = created.span();
        // The rest of the transaction is somebody else's span.
        span.end();
        match span.span_context() {
            valid if valid.is_valid() => context::write(self, valid),
            _ => self,
        }
    }
}
