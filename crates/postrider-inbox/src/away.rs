//! The messages that were given back and are expected again.
//!
//! Invariants: one entry per (key, message), found by its expiry in order; none expires before the
//! broker has answered what gave it back, because only from then on can the message come.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{KeyHash, Tick};

use crate::command::DeliveryNo;

/// Messages that are away, with the time at which each is forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Away {
    messages: BTreeMap<(KeyHash, u64), Expiry>,
    order: BTreeSet<(Tick, KeyHash, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Expiry {
    /// The broker was told to take back this delivery, and has not answered.
    Asked(DeliveryNo),
    At(Tick),
}

impl Away {
    /// Remembers a message that this delivery brought, until its return is answered.
    pub(crate) fn insert(&mut self, key: KeyHash, message: u64, no: DeliveryNo) {
        self.remove(key, message);
        self.messages.insert((key, message), Expiry::Asked(no));
    }

    /// The broker answered the return of this delivery: its message is remembered until then. Says
    /// nothing about one that has come again since.
    pub(crate) fn answered(&mut self, key: KeyHash, message: u64, no: DeliveryNo, expires: Tick) {
        let Some(expiry) = self.messages.get_mut(&(key, message)) else {
            return;
        };
        if matches!(expiry, Expiry::Asked(asked) if *asked == no) {
            *expiry = Expiry::At(expires);
            self.order.insert((expires, key, message));
        }
    }

    /// It came again.
    pub(crate) fn remove(&mut self, key: KeyHash, message: u64) {
        if let Some(Expiry::At(expires)) = self.messages.remove(&(key, message)) {
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
        self.messages.len()
    }
}
