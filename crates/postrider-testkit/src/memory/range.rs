//! Ranges: what of a key is passed and stands nowhere, from a cursor on.
//!
//! Invariant: nothing that a range stands for is retired, and a destination that is set back has no ranges left: it
//! reads again all that they stood for.

use postrider_core::range::{Range, RangeChange};
use postrider_core::{Cursor, DestinationId};

use super::state::{LogRow, State};

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

    /// A destination is set back to a place that lies before all of its ranges, which end.
    pub(super) fn end_ranges(&mut self, id: &DestinationId, partition: u16) {
        self.ranges.remove(&(id.clone(), partition));
    }
}
