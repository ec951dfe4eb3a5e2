//! What all relays of a test have in common: everything that they read, in order, and who died.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::Lease;
use uuid::Uuid;

use crate::place::Read;

/// What all relays of a test did, in the order in which they did it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) reads: Mutex<Vec<Read>>,
    facts: Mutex<Facts>,
}

/// Beside what was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Read, and not settled when the partition was given up.
    pub(crate) given_up: BTreeSet<Uuid>,
    /// Leases of relays that died, not yet taken over.
    pub(crate) orphans: Vec<Lease>,
    /// Leases that were taken over: partition and token.
    pub(crate) taken: BTreeSet<(u16, u64)>,
    pub(crate) takeovers: usize,
    pub(crate) handovers: usize,
    /// Settlements of dead owners that were refused.
    pub(crate) fenced: usize,
    pub(crate) pages: usize,
    pub(crate) settlements: usize,
    /// Errors, by kind and operation.
    pub(crate) trouble: BTreeMap<String, usize>,
}

impl Facts {
    /// The holders of these leases are dead.
    pub(crate) fn orphaned(&mut self, leases: impl IntoIterator<Item = Lease>) {
        for lease in leases {
            if !self.orphans.contains(&lease) {
                self.orphans.push(lease);
            }
        }
    }
}

impl Record {
    pub(crate) fn reads(&self) -> Vec<Read> {
        lock(&self.reads).clone()
    }

    pub(crate) fn facts(&self) -> Facts {
        lock(&self.facts).clone()
    }

    pub(crate) fn facts_mut(&self) -> MutexGuard<'_, Facts> {
        lock(&self.facts)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
