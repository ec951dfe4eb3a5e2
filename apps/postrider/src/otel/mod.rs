//! Traces: from `observe.otlp` of the configuration to a collector, behind the feature `otel`.
//!
//! Invariant: whoever calls this need not know whether the program was built with it. Nothing here
//! makes an event wait.

#[cfg(feature = "otel")]
mod client;
#[cfg(feature = "otel")]
mod export;

use std::sync::Arc;

use postrider_core::inbox::Receiver;
use postrider_core::{Broker, Destination, Headers, Subscription};

use crate::failure::Failure;

/// Traces that are sent, or that nobody asked for.
pub(crate) struct Traces {
    #[cfg(feature = "otel")]
    export: Option<export::Export>,
}

#[cfg(feature = "otel")]
impl Traces {
    /// Begins to send to a collector, if one is named. Needs a Tokio runtime.
    ///
    /// # Errors
    /// A configuration failure if its address cannot be used.
    pub(crate) fn start(collector: Option<&str>) -> Result<Traces, Failure> {
        let export = collector.map(export::Export::start).transpose()?;
        Ok(Traces { export })
    }

    /// Puts spans around what the brokers of a relay are sent.
    pub(crate) fn wrap(&self, destinations: &mut [(Destination, Arc<dyn Broker>)]) {
        let Some(export) = &self.export else {
            return;
        };
        for (definition, broker) in destinations {
            *broker = Arc::new(export.tracing().broker(&definition.id, Arc::clone(broker)));
        }
    }

    /// The receiver, with spans around what it is handed.
    pub(crate) fn receiver(&self, receiver: Arc<dyn Receiver>) -> Arc<dyn Receiver> {
        match &self.export {
            Some(export) => Arc::new(export.tracing().receiver(receiver)),
            None => receiver,
        }
    }

    /// The subscription, with spans around what it is answered.
    pub(crate) fn subscription(
        &self,
        subscription: Arc<dyn Subscription>,
    ) -> Arc<dyn Subscription> {
        match &self.export {
            Some(export) => Arc::new(export.tracing().subscription(subscription)),
            None => subscription,
        }
    }

    /// Sends what there is, for a few seconds at most, and stops.
    pub(crate) async fn stop(self) {
        if let Some(export) = self.export {
            // It waits for its own thread, and that one for this runtime. If it panics, there is
            // nothing left to send.
            let _ = tokio::task::spawn_blocking(move || export.stop()).await;
        }
    }
}

/// `traceparent` and `tracestate` of the current span, for a request that is sent from it.
#[cfg(feature = "otel")]
pub(crate) fn current_headers() -> Headers {
    postrider_otel::current_headers()
}

#[cfg(not(feature = "otel"))]
impl Traces {
    #[allow(clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(crate) fn start(collector: Option<&str>) -> Result<Traces, Failure> {
        if collector.is_some() {
            crate::terminal::note(
                "warning: observe.otlp is set, but this postrider was built without the feature \
                 `otel`: no traces are sent",
            );
        }
        Ok(Traces {})
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn wrap(&self, _: &mut [(Destination, Arc<dyn Broker>)]) {}

    pub(crate) fn receiver(&self, receiver: Arc<dyn Receiver>) -> Arc<dyn Receiver> {
        receiver
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn subscription(
        &self,
        subscription: Arc<dyn Subscription>,
    ) -> Arc<dyn Subscription> {
        subscription
    }

    #[allow(clippy::unused_async, reason = "as with the feature")]
    pub(crate) async fn stop(self) {}
}

#[cfg(not(feature = "otel"))]
pub(crate) fn current_headers() -> Headers {
    Headers::new()
}
