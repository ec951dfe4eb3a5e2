//! The worker that charges, and the payment provider that it calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use postrider::inbox::{Context, LeasedHandler, Outcome};
use postrider::{Error, Event};
use tokio::sync::watch;

/// A payment provider: it remembers every charge, and the key that it was asked with.
#[derive(Debug)]
pub struct Provider {
    charges: Mutex<Vec<(String, String)>>,
    count: watch::Sender<usize>,
}

impl Default for Provider {
    fn default() -> Provider {
        Provider { charges: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl Provider {
    fn charge(&self, order: &str, key: String) -> String {
        let mut charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.push((order.to_owned(), key));
        self.count.send_replace(charges.len());
        format!("charge {}", charges.len())
    }

    /// How many charges there were, as they become more.
    pub fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// How often each order was charged.
    pub fn charges(&self) -> HashMap<String, u32> {
        let charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.iter().fold(HashMap::new(), |mut all, (order, _)| {
            *all.entry(order.clone()).or_default() += 1;
            all
        })
    }
}

/// Charges an order that was placed. The step's key is the same at every try, so a provider that knows such keys
/// charges once even where a worker dies between the charge and its note.
pub(crate) fn handler(provider: Arc<Provider>) -> impl LeasedHandler + 'static {
    move |event: Arc<Event>, context: Context| {
        let provider = Arc::clone(&provider);
        async move {
            let order = event.aggregate_id.to_string();
            let charge = |key: String| async move { Ok::<_, Error>(provider.charge(&order, key)) };
            let receipt = context.step("charge", charge).await?;
            Ok(Outcome::Ack(receipt))
        }
    }
}
