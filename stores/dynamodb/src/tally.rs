//! The tally: what a handle has counted, for metrics and for tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a handle has counted since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tally {
    /// Entries of the index that were none of ours, and were let be.
    pub foreign: u64,
    /// Events that somebody else had marked before. Of those of business items also such as have a newer version by
    /// now, which is pending.
    pub marked_by_others: u64,
    /// Waiting versions of business items that were overwritten or deleted before their turn: the newest one
    /// stands for them.
    pub merged: u64,
    /// Records of the stream without an image: their items were fetched by key.
    pub without_image: u64,
    /// Times at which the stream could not be read any more, and the index was asked instead.
    pub interruptions: u64,
    /// Times at which records of the stream may have been missed: the index was read from its front.
    pub gaps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) foreign: AtomicU64,
    pub(crate) marked_by_others: AtomicU64,
    pub(crate) merged: AtomicU64,
    pub(crate) without_image: AtomicU64,
    pub(crate) interruptions: AtomicU64,
    pub(crate) gaps: AtomicU64,
}

impl Counting {
    pub(crate) fn told(&self) -> Tally {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally {
            foreign: of(&self.foreign),
            marked_by_others: of(&self.marked_by_others),
            merged: of(&self.merged),
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
