//! Keyed numbers: no order but within a key. An index and a stream that lag name the keys with something
//! pending; a key's own events are read as they are, in the order of its numbers, and are settled only
//! in that order.
//!
//! A key's numbers are in the order of the store's: writers of one key conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_core::waiting::SettlementPart;
use postrider_core::{DestinationId, Error, ErrorKind, Result};

use super::super::state::State;

/// What is pending of the keys that are found by now and was not handed out: key by key, in the order in
/// which they were found.
pub(super) fn fresh(
    state: &State,
    pending: &BTreeSet<u64>,
    under_way: &BTreeSet<u64>,
    partition: u16,
    now: Duration,
) -> Vec<u64> {
    let mut keys: BTreeMap<&str, (Duration, Vec<u64>)> = BTreeMap::new();
    for row in pending.iter().filter_map(|seq| state.row_of(partition, *seq)) {
        let (found_at, seqs) = keys.entry(&row.key).or_insert((Duration::MAX, Vec::new()));
        *found_at = row.found_at.min(*found_at);
        if !under_way.contains(&row.row.seq) {
            seqs.push(row.row.seq);
        }
    }
    let mut found: Vec<_> = keys.into_iter().filter(|(_, (at, _))| *at <= now).collect();
    found.sort_by_key(|(key, (at, _))| (*at, *key));
    found.into_iter().flat_map(|(_, (_, seqs))| seqs).collect()
}

/// A key's events are settled in the order of its numbers: none over one that is pending.
pub(super) fn check(
    state: &State,
    id: &DestinationId,
    part: &SettlementPart,
    partition: u16,
) -> Result<()> {
    let pending = state.pending_of(id, partition);
    let passed: BTreeSet<u64> = part.passed.iter().map(|(row, _)| row.seq).collect();
    let last = passed.last().copied().unwrap_or_default();
    let mut holding: BTreeSet<&str> = BTreeSet::new();
    for row in pending.range(..=last).filter_map(|seq| state.row_of(partition, *seq)) {
        if !passed.contains(&row.row.seq) {
            holding.insert(&row.key);
        } else if holding.contains(&*row.key) {
            return Err(Error::new(ErrorKind::Conflict, "settle")
                .message("an earlier event of the key is pending; nothing was written")
                .context("destination", &part.destination)
                .context("key", &row.key));
        }
    }
    Ok(())
}
