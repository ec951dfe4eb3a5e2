//! OpenTelemetry traces for Postrider: from the enqueue, through the relay, to the handler.
//!
//! An event carries the context of its creation in its headers `traceparent` and `tracestate` (W3C
//! Trace Context), unchanged from the outbox to the handler. This crate writes them at the enqueue,
//! and opens spans around the contracts that engines call: it knows neither engine, store, nor
//! broker, and depends on the OpenTelemetry API alone. Which SDK and exporter there is, and what is
//! sampled, the application decides.
//!
//! | Where | Span | Kind | Opened by |
//! |---|---|---|---|
//! | enqueue | `create {event type}` | producer | [`Traced::traced`] |
//! | each attempt of a relay | `send {destination}` | client | [`Tracing::broker`] |
//! | each delivery to a handler | `process {handler}` | consumer | [`Tracing::receiver`] |
//! | each answer to a delivery | `ack`, `nack`, `reject {group}` | client | [`Tracing::subscription`] |
//!
//! All but `create` are children of it and link to it, so an event is one trace, however
//! often it is tried. Names and attributes follow the OpenTelemetry conventions for messaging,
//! version [`SEMANTIC_CONVENTIONS`], which are still in development.
//!
//! # Invariants
//!
//! * An event flows whatever its trace context is. One that is no valid context is as good as none.
//! * A context that is not sampled makes no span in a relay or a consumer, whatever the sampler says,
//!   and stays not sampled for whoever is called from there.
//! * Payloads are never attributes. Keys, and the words of an answer, are none unless
//!   [`Tracing::detailed`] says so: both may name a person.
//!
//! # Example
//!
//! ```
//! use postrider_core::NewEvent;
//! use postrider_otel::Traced as _;
//!
//! // In a span, this writes the headers. Without a tracer it changes nothing.
//! let event = NewEvent::new("order", "42", "order.placed").traced();
//! assert!(event.event().headers.is_empty());
//! ```

mod context;
mod create;
mod outcome;
mod process;
mod resume;
mod semconv;
mod send;
mod settle;
mod tracing;

pub use context::current_headers;
pub use create::Traced;
pub use process::TracedReceiver;
pub use resume::{Resumed, resume};
pub use semconv::SEMANTIC_CONVENTIONS;
pub use send::TracedBroker;
pub use settle::TracedSubscription;
pub use tracing::Tracing;

/// The example of the guide, compiled as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/tracing.md")]
struct Guide;
