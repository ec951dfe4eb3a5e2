//! The tally: what a handle has counted, for metrics and for tests.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use postrider_core::KeyHash;

use crate::record::Place;
use crate::stored::Stored;

/// Foreign entries that are remembered, so that not every sweep of the index counts them again: 16 bytes each. What
/// is beyond is counted whenever it is seen. So many rows whose items are gone are remembered as well, until they are
/// settled; what is beyond is logged whenever it is seen, and counted as merged.
const REMEMBERED_MAX: usize = 10_000;

/// What a handle has counted since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tally {
    /// Entries of the index that were none of ours, and were let be: each once, as long as 10,000 are remembered.
    pub foreign: u64,
    /// Events that somebody else had marked before. Of those of business items also such as have a newer version by
    /// now, which is pending.
    pub marked_by_others: u64,
    /// Waiting versions of business items that were overwritten before their turn: the newest one stands for them. Also
    /// such as were published, by a relay that ended before it could let go of their rows.
    pub merged: u64,
    /// Waiting versions of business items that were deleted before their turn, or written without a stamp: nothing
    /// stands for them, so their events are lost. Each is logged with its item's key.
    pub gone: u64,
    /// Records of the stream without an image: their items were fetched by key.
    pub without_image: u64,
    /// Times at which the stream could not be read any more, and the index was asked instead.
    pub interruptions: u64,
    /// Times at which records of the stream may have been missed: the index was read from its front.
    pub gaps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counting {
    foreign: AtomicU64,
    /// The foreign entries that were counted, by the hashes of their keys.
    remembered: Mutex<HashSet<(u64, u64)>>,
    pub(crate) marked_by_others: AtomicU64,
    merged: AtomicU64,
    gone: AtomicU64,
    /// Rows whose items were seen to be gone, by their numbers, until they are settled.
    found_gone: Mutex<HashSet<u64>>,
    pub(crate) without_image: AtomicU64,
    pub(crate) interruptions: AtomicU64,
    pub(crate) gaps: AtomicU64,
}

impl Counting {
    /// Counts foreign entries that were not seen before.
    pub(crate) fn saw_foreign(&self, places: &[Place]) {
        if places.is_empty() {
            return;
        }
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = 0;
        for place in places {
            let known = (KeyHash::of(&place.pk).0, KeyHash::of(&place.sk).0);
            fresh += u64::from(!remembered.contains(&known));
            if remembered.len() < REMEMBERED_MAX {
                remembered.insert(known);
            }
        }
        add(&self.foreign, fresh);
    }

    /// Notes that nothing stands for a waiting version any more; whether that is news.
    pub(crate) fn found_gone(&self, seq: u64) -> bool {
        let mut found = self.found_gone.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < REMEMBERED_MAX { found.insert(seq) } else { !found.contains(&seq) }
    }

    /// Counts a row that has left `waiting`, if it is a version of a business item that had nothing to send.
    pub(crate) fn left(&self, row: &Stored, erased: bool) {
        if !erased || row.place.version.is_none() {
            return;
        }
        let mut found = self.found_gone.lock().unwrap_or_else(PoisonError::into_inner);
        add(if found.remove(&row.row.seq) { &self.gone } else { &self.merged }, 1);
    }

    pub(crate) fn told(&self) -> Tally {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally {
            foreign: of(&self.foreign),
            marked_by_others: of(&self.marked_by_others),
            merged: of(&self.merged),
            gone: of(&self.gone),
            without_image: of(&self.without_image),
            interruptions: of(&self.interruptions),
            gaps: of(&self.gaps),
        }
    }
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R049: what is none of ours is counted, and a sweep that sees it again does not count it again.
    #[test]
    fn a_foreign_entry_is_counted_once_and_none_goes_uncounted() {
        let (counting, place) = (Counting::default(), Place::new("order/1", "ORDER#1"));
        counting.saw_foreign(&[place.clone(), Place::new("order/1", "ORDER#2")]);
        counting.saw_foreign(std::slice::from_ref(&place));
        assert_eq!(counting.told().foreign, 2);
        let many = |from: usize| -> Vec<Place> {
            (from..from + REMEMBERED_MAX).map(|n| Place::new("p", &n.to_string())).collect()
        };
        counting.saw_foreign(&many(0));
        counting.saw_foreign(&many(REMEMBERED_MAX));
        assert_eq!(counting.told().foreign, 2 + 2 * REMEMBERED_MAX as u64);
        assert!(counting.remembered.lock().unwrap().len() <= REMEMBERED_MAX, "bounded");
        counting.saw_foreign(std::slice::from_ref(&place));
        assert_eq!(counting.told().foreign, 2 + 2 * REMEMBERED_MAX as u64, "still remembered");
    }
}
