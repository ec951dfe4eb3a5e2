//! The ledger: a history in eight numbers, for reports and for the demo.

use std::collections::BTreeSet;

use postrider_core::EventId;
use serde::{Deserialize, Serialize};

use crate::Standing;
use crate::index::Index;

/// The sums of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Events that were committed.
    pub committed: u64,
    /// Committed events that arrived at least once, anywhere.
    pub delivered: u64,
    /// Deliveries of what had arrived there before, less those that led to a second effect.
    pub duplicates_absorbed: u64,
    /// Effects of all handlers.
    pub effects: u64,
    /// Committed events that are missing somewhere: neither delivered nor waiting.
    pub lost: u64,
    /// Events that arrived and had not been committed.
    pub ghosts: u64,
    /// First deliveries out of their key's order.
    pub order_violations: u64,
    /// Events that are dead letters of a destination.
    pub dead_lettered: u64,
}

impl Ledger {
    pub(crate) fn of(index: &Index<'_>) -> Ledger {
        let arrived: BTreeSet<EventId> = index.delivered.iter().map(|(_, id)| *id).collect();
        let (ghosts, delivered): (Vec<EventId>, Vec<EventId>) =
            arrived.iter().partition(|id| index.is_ghost(**id));
        let lost = index.commits.values().filter(|commit| !index.missing(commit).is_empty());
        let dead = index.waiting.values().filter(|waiting| waiting.state == Standing::Dead);
        let repeated = index.deliveries.len() - index.delivered.len();
        let surplus: u64 = index.effects.values().map(|count| count - count.min(&1)).sum();
        Ledger {
            committed: count(index.commits.len()),
            delivered: count(delivered.len()),
            duplicates_absorbed: count(repeated).saturating_sub(surplus),
            effects: index.effects.values().sum(),
            lost: count(lost.count()),
            ghosts: count(ghosts.len()),
            order_violations: count(index.out_of_order().len() + index.passed_holder().len()),
            dead_lettered: count(dead.count()),
        }
    }

    /// Whether the sums themselves show a broken promise.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.ghosts == 0 && self.order_violations == 0
    }
}

fn count(length: usize) -> u64 {
    length as u64
}
