//! The bench: a tracer whose spans can be looked at, and events to trace.

use std::sync::Arc;

use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, Sampler, SdkTracerProvider, ShouldSample, SpanData,
};
use postrider_core::subscription::Receipt;
use postrider_core::{Delivery, Event, EventId};
use postrider_otel::Tracing;

/// A context that somebody else made, and sampled.
pub(crate) const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// The same, not sampled.
pub(crate) const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const SPAN: &str = "b7ad6b7169203331";

pub(crate) struct Bench {
    pub(crate) provider: SdkTracerProvider,
    exporter: InMemorySpanExporter,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
    }

    pub(crate) fn with_sampler(sampler: impl ShouldSample + 'static) -> Bench {
        let exporter = InMemorySpanExporter::default();
        let sampler: Box<dyn ShouldSample> = Box::new(sampler);
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_simple_exporter(exporter.clone())
            .build();
        Bench { provider, exporter }
    }

    pub(crate) fn tracing(&self) -> Tracing {
        Tracing::with_provider(&self.provider)
    }

    /// The spans that ended, in this order.
    pub(crate) fn spans(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    /// Those whose name begins so.
    pub(crate) fn named(&self, name: &str) -> Vec<SpanData> {
        self.spans().into_iter().filter(|span| span.name.starts_with(name)).collect()
    }
}

/// An event with a context, or with whatever is given for one.
pub(crate) fn event(parent: Option<&str>) -> Event {
    let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    event.headers.extend(parent.map(|parent| ("traceparent".to_owned(), parent.to_owned())));
    event
}

pub(crate) fn delivery(event: &Arc<Event>, count: u32) -> Delivery {
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt);
    delivery.count = count;
    delivery
}

/// What an attribute says, as text.
pub(crate) fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let pair = span.attributes.iter().find(|pair| pair.key.as_str() == name);
    pair.map(|pair| pair.value.to_string())
}

pub(crate) fn outcome(span: &SpanData) -> String {
    attribute(span, "postrider.outcome").unwrap_or_default()
}

pub(crate) fn failed(span: &SpanData) -> bool {
    matches!(span.status, Status::Error { .. })
}

/// The span is a child of that one and links to it.
pub(crate) fn follows(span: &SpanData, parent: SpanId) -> bool {
    let links: Vec<SpanId> = span.links.iter().map(|link| link.span_context.span_id()).collect();
    span.parent_span_id == parent && links == [parent]
}
