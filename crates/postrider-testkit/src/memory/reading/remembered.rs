//! What a process remembers of a store with snapshots: its ticks, and to which life of the server
//! what it holds of each partition belongs.

use std::collections::BTreeMap;

use postrider_core::snapshot::{CrashToken, Incarnation, SequenceTicks};
use postrider_core::{Lease, Tick};

/// The memory of a handle.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) ticks: SequenceTicks,
    /// What the sequence had given, as the last fetch read it.
    pub(super) given: Option<(u64, Incarnation)>,
    /// By partition: under which token of the lease it was loaded, and in which life.
    lives: BTreeMap<u16, (u64, CrashToken)>,
    plantings: u64,
}

impl Remembered {
    /// Something is loaded under a lease. Returns the life that everything loaded under it belongs to:
    /// with the first load under a lease, what was loaded before is forgotten.
    pub(super) fn begin(&mut self, lease: &Lease, seen: Incarnation) -> Option<Incarnation> {
        let entry = self.lives.entry(lease.partition.0).or_default();
        if entry.0 != lease.token || entry.1.known().is_none() {
            entry.0 = lease.token;
            entry.1.adopt(seen);
        }
        entry.1.known()
    }

    /// The life that what was loaded under a lease belongs to.
    pub(super) fn life_of(&self, lease: &Lease) -> Option<Incarnation> {
        let entry = self.lives.get(&lease.partition.0);
        entry.filter(|(token, _)| *token == lease.token).and_then(|(_, token)| token.known())
    }

    /// Whether a tick begins now: it is time, and it may say something new.
    pub(super) fn begins_tick(&mut self, now: Tick) -> bool {
        let idle = self.given.is_some_and(|(given, life)| self.ticks.highest(life) == Some(given));
        let begins = !idle && self.ticks.is_due(now);
        if begins {
            self.ticks.begin(now);
        }
        begins
    }

    /// Tells one planting of this handle from any other.
    pub(super) fn next_planting(&mut self) -> u64 {
        self.plantings += 1;
        self.plantings
    }
}
