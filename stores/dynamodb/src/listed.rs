//! What an operator's handle has shown of the outbox: events that are settled have no number, so they are
//! named by one that this handle made up, and remembers.
//!
//! Invariants: the memory is bounded, the oldest goes first; and a number is never taken for another event's:
//! what is not remembered is refused.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use postrider_core::{KeyHash, PartitionId};

use crate::reading::numbers_of;
use crate::record::Place;

/// How many places are remembered: what one request may name.
const PLACES_MAX: usize = postrider_core::operate::Submission::ROWS_MAX;

/// The places that were shown.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    places: HashMap<u64, Place>,
    order: VecDeque<u64>,
}

impl Listed {
    /// The number of an event that has none of its own: the same for the same place, in every handle.
    pub(crate) fn show(&self, partition: PartitionId, place: &Place) -> u64 {
        let numbers = numbers_of(partition);
        let hash = KeyHash::of(&format!("{}\0{}", place.pk, place.sk)).0;
        let number = numbers.start() | (hash & (numbers.end() - numbers.start()));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.places.insert(number, place.clone()).is_none() {
            seen.order.push_back(number);
        }
        while seen.order.len() > PLACES_MAX {
            if let Some(oldest) = seen.order.pop_front() {
                seen.places.remove(&oldest);
            }
        }
        number
    }

    /// The event of a number that was shown.
    pub(crate) fn place(&self, number: u64) -> Option<Place> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.places.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::partition_of_number;

    #[test]
    fn a_number_names_its_partition_and_is_known_to_who_showed_it() {
        let (shown, place) = (Listed::default(), Place::new("order/1", "OUTBOX#1"));
        let number = shown.show(PartitionId(7), &place);
        assert_eq!(number, Listed::default().show(PartitionId(7), &place));
        assert_eq!(partition_of_number(number), Some(PartitionId(7)));
        assert_eq!(shown.place(number), Some(place));
        assert_eq!(Listed::default().place(number), None);
    }
}
