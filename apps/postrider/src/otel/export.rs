//! The export: a bounded queue of spans, a thread that sends them in batches, and the count of what did
//! not arrive.
//!
//! Invariant: a span that finds no room is dropped and counted; whoever ends it never waits. The queue
//! has the limits that OpenTelemetry gives it (2,048 spans, batches of 512, every 5 s; `OTEL_BSP_*`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};
use postrider_otel::Tracing;

use super::client::{Client, TIMEOUT};
use crate::failure::Failure;

/// How long the end of the program waits for the last spans. Default 3 s: a collector that does not
/// answer must not keep a relay from being restarted.
const FLUSH: Duration = Duration::from_secs(3);

/// Spans on their way to a collector.
pub(super) struct Export {
    provider: SdkTracerProvider,
    tracing: Tracing,
    counts: Arc<Counts>,
    collector: String,
}

/// What became of the spans.
#[derive(Debug, Default)]
struct Counts {
    ended: AtomicU64,
    sent: AtomicU64,
    failing: AtomicBool,
}

impl Export {
    /// Begins to send to a collector. It need not be there yet.
    ///
    /// # Errors
    /// A configuration failure if the address is none for plain HTTP.
    pub(super) fn start(collector: &str) -> Result<Export, Failure> {
        let endpoint = endpoint(collector)?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&endpoint)
            .with_timeout(TIMEOUT)
            .build()
            .map_err(|error| Failure::config(format!("observe.otlp: {error}")))?;
        let counts = Arc::new(Counts::default());
        let exporter = Counted { exporter, counts: Arc::clone(&counts) };
        let queue = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_span_processor(Queue { queue, counts: Arc::clone(&counts) })
            .build();
        let tracing = Tracing::with_provider(&provider);
        tracing::info!(collector = endpoint, "traces are sent");
        Ok(Export { provider, tracing, counts, collector: endpoint })
    }

    pub(super) fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    /// Sends what there is, and says what did not arrive. Waits for that.
    pub(super) fn stop(self) {
        // What went wrong is in the counts.
        let _ = self.provider.shutdown_with_timeout(FLUSH);
        let sent = self.counts.sent.load(Ordering::Relaxed);
        let lost = self.counts.ended.load(Ordering::Relaxed).saturating_sub(sent);
        let collector = self.collector;
        if lost > 0 {
            tracing::warn!(sent, lost, collector, "some spans did not reach the collector");
        } else {
            tracing::debug!(sent, collector, "all spans were sent");
        }
    }
}

/// The place for traces of a collector's base address, as OTLP puts it.
fn endpoint(collector: &str) -> Result<String, Failure> {
    const TRACES: &str = "/v1/traces";
    if !collector.to_ascii_lowercase().starts_with("http://") {
        return Err(Failure::config("observe.otlp: traces go over plain HTTP only").advice(
            "Nothing was started. Name a collector on this machine, like http://127.0.0.1:4318, and \
             let it send on.",
        ));
    }
    let base = collector.trim_end_matches('/');
    Ok(if base.ends_with(TRACES) { base.to_owned() } else { format!("{base}{TRACES}") })
}

/// Who we are: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, else `postrider`.
fn resource() -> Resource {
    let version = || KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let given = Resource::builder().with_attribute(version()).build();
    let name = given.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return given;
    }
    Resource::builder().with_attribute(version()).with_service_name("postrider").build()
}

/// The queue, with a count of what was to go through it.
#[derive(Debug)]
struct Queue {
    queue: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.queue.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.counts.ended.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

/// The exporter, with a count of what arrived, and a word when it begins to fail and when it is over.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    counts: Arc<Counts>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let result = self.exporter.export(batch).await;
        let failing = self.counts.failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Ok(()) => {
                self.counts.sent.fetch_add(spans, Ordering::Relaxed);
                if failing {
                    tracing::info!("the collector takes spans again");
                }
            }
            Err(error) if !failing => {
                tracing::warn!(%error, "spans are lost until the collector takes them again");
            }
            Err(_) => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_for_traces_is_below_the_collectors_address() {
        for (collector, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("http://gateway/otlp", "http://gateway/otlp/v1/traces"),
            ("http://gateway/v1/traces", "http://gateway/v1/traces"),
        ] {
            assert_eq!(endpoint(collector).unwrap(), expected, "{collector}");
        }
        let refused = endpoint("https://collector.example").unwrap_err().plain_text();
        assert!(refused.contains("plain HTTP only"), "{refused}");
    }
}
