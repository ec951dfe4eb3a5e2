//! Ranges: what of a key is passed and stands nowhere, from a cursor on.
//!
//! Invariant: nothing that a range stands for is retired, and a destination that is set back has no ranges left: it
//! reads again all that they stood for.

use postrider_core::range::{Range, RangeChange};
use postrider_core::waiting::RowRef;
use postrider_core::{Cursor, DestinationId};

use super::MemoryStore;
use super::state::{LogRow, State};

impl MemoryStore {
    /// The ranges of a destination, of all partitions.
    pub fn ranges(&self, destination: &DestinationId) -> Vec<Range> {
        let state = self.state();
        let of_it = state.ranges.iter().filter(|((id, _), _)| id == destination);
        of_it.flat_map(|(_, ranges)| ranges.clone()).collect()
    }

    /// What a destination has passed and neither sent nor let wait, because a range stands for it.
    pub fn ranged(&self, destination: &DestinationId) -> Vec<RowRef> {
        let state = self.state();
        let mut found = Vec::new();
        for partition in state.partitions() {
            let waits = state.waiting.get(&(destination.clone(), partition));
            let waits = |row: &LogRow| waits.is_some_and(|all| all.contains_key(&row.row.seq));
            let rows = state.rows(partition).unwrap_or_default().iter();
            let ranged = rows.filter(|row| {
                state.is_in_range(destination, partition, row)
                    && state.has_passed(destination, partition, row)
                    && !waits(row)
            });
            found.extend(ranged.map(|row| row.row));
        }
        found
    }
}

impl State {
    /// Carries out what a settlement says of a destination's ranges.
    pub(super) fn change_ranges(
        &mut self,
        id: &DestinationId,
        partition: u16,
        changes: &[RangeChange],
    ) {
        let place = (id.clone(), partition);
        for change in changes {
            let ranges = self.ranges.entry(place.clone()).or_default();
            let stands = |key, from: &Cursor| {
                ranges.iter().position(|range| range.key_hash == key && range.cursor == *from)
            };
            match change {
                RangeChange::Open(new) => {
                    if !ranges.iter().any(|range| range.key_hash == new.key_hash) {
                        ranges.push(new.clone());
                    }
                }
                RangeChange::Move { key_hash, from, to } => {
                    if let Some(place) = stands(*key_hash, from) {
                        ranges[place].cursor = to.clone();
                    }
                }
                RangeChange::Close { key_hash, from } => {
                    if let Some(place) = stands(*key_hash, from) {
                        ranges.remove(place);
                    }
                }
            }
        }
        self.ranges.retain(|_, ranges| !ranges.is_empty());
    }

    /// What a destination is told of its ranges; nothing where the store keeps none.
    pub(super) fn ranges_of(&self, id: &DestinationId, partition: u16) -> Option<Vec<Range>> {
        let ranges = self.ranges.get(&(id.clone(), partition));
        (!self.kind.marks_rows()).then(|| ranges.cloned().unwrap_or_default())
    }

    /// Whether every range of a partition has passed a row.
    pub(super) fn is_behind_ranges(&self, partition: u16, row: &LogRow) -> bool {
        let mut ranges = self.ranges.iter().filter(|((_, p), _)| *p == partition);
        ranges.all(|(_, all)| all.iter().all(|range| self.is_passed(&range.cursor, row)))
    }

    /// Whether a range stands for a row, if the destination has passed it and it does not wait.
    pub(super) fn is_in_range(&self, id: &DestinationId, partition: u16, row: &LogRow) -> bool {
        let ranges = self.ranges.get(&(id.clone(), partition)).into_iter().flatten();
        let mut of_key = ranges.filter(|range| range.key_hash == row.key_hash);
        of_key.any(|range| !self.is_passed(&range.cursor, row))
    }

    /// A destination is set back to a place that lies before all of its ranges, which end.
    pub(super) fn end_ranges(&mut self, id: &DestinationId, partition: u16) {
        self.ranges.remove(&(id.clone(), partition));
    }
}
