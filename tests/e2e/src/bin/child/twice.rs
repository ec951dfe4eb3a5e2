//! A broker that stores everything twice.

use std::sync::Arc;

use postrider_core::{BoxFuture, Broker, BrokerCapabilities, Outcome, Outgoing, Result};

/// Publishes each batch twice.
pub(crate) struct Twice(pub(crate) Arc<dyn Broker>);

impl Broker for Twice {
    fn capabilities(&self) -> BrokerCapabilities {
        self.0.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            self.0.publish(batch).await?;
            self.0.publish(batch).await
        })
    }
}
