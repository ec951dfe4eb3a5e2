//! The payment provider: somebody else's service, outside every transaction of ours.
//!
//! Like any provider worth its money it does nothing for a key that it has seen; a caller that gives a
//! new key each time gets a new charge each time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use postrider_core::EventId;

/// What the provider remembers.
#[derive(Debug, Default)]
pub(crate) struct Bank {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The order that each idempotency key charged.
    charged: BTreeMap<String, String>,
    calls: usize,
}

impl Bank {
    /// Charges an order under an idempotency key, or says that it did.
    pub(crate) fn charge(&self, key: &str, order: &str) -> &'static str {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.calls += 1;
        if seen.charged.contains_key(key) {
            return "charged before";
        }
        seen.charged.insert(key.to_owned(), order.to_owned());
        "charged"
    }

    /// Charges an order under a key that nobody ever gives again.
    pub(crate) fn charge_anew(&self, order: &str) -> &'static str {
        self.charge(&EventId::mint().to_string(), order)
    }

    /// How often an order was charged.
    pub(crate) fn charges(&self, order: &str) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.charged.values().filter(|charged| *charged == order).count()
    }

    /// How often it was asked to charge anything.
    pub(crate) fn calls(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).calls
    }
}
