//! The messages that were given back and are expected again.
//!
//! Invariant: one entry per (key, message), found by its expiry in order.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{KeyHash, Tick};

/// Messages that are away, with the time at which each is forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Away {
    expires: BTreeMap<(KeyHash, u64), Tick>,
    order: BTreeSet<(Tick, KeyHash, u64)>,
}

impl Away {
    /// Remembers a message until then.
    pub(crate) fn insert(&mut self, key: KeyHash, message: u64, expires: Tick) {
        self.remove(key, message);
        self.expires.insert((key, message), expires);
        self.order.insert((expires, key, message));
    }

    /// It came again.
    pub(crate) fn remove(&mut self, key: KeyHash, message: u64) {
        if let Some(expires) = self.expires.remove(&(key, message)) {
            self.order.remove(&(expires, key, message));
        }
    }

    /// Takes one message that did not come again in time.
    pub(crate) fn take_expired(&mut self, now: Tick) -> Option<(KeyHash, u64)> {
        let &(expires, key, message) = self.order.first()?;
        if expires > now {
            return None;
        }
        self.remove(key, message);
        Some((key, message))
    }

    /// When the next one is forgotten.
    pub(crate) fn next(&self) -> Option<Tick> {
        self.order.first().map(|&(expires, ..)| expires)
    }

    /// How many are away.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}
