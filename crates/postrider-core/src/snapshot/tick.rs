//! Ticks: how low a scan for new rows must begin.
//!
//! A cursor's *floor* is a number of the sequence at or below which no transaction that its snapshot
//! names as unknown (`xid >= xmax`) has written or will write. Too low costs time. Too high loses rows,
//! and every simple idea is too high: the sequence's value *at* the fetch and the highest number seen
//! so far both lie above the number that a transaction beyond `xmax` may already have drawn, since
//! `xmax` is one past the last transaction that *ended*, not the last that began.
//!
//! A tick is two statements, one after the other: the first reads the sequence; after its answer the
//! second, a transaction of its own, takes a transaction number.
//!
//! **Proof.** Let the tick have read `v` and then taken the number `t`, and let `t < S.xmax`. A
//! transaction `x >= S.xmax` has `x > t`, and numbers ascend, so `x` was given after `t`, which was
//! after `v` was read. `x` draws from the sequence after it was given `x`. So every number it draws is
//! above `v`. ∎
//!
//! `t < S.xmax` holds whenever the tick was acknowledged before the fetch of `S` was sent, because `t`
//! had ended by then. It is checked by value, so an answer that overtakes another cannot break it.
//!
//! `v` must have been *given*. PostgreSQL's `select last_value from seq` does not say that: the row is read without the
//! sequence's lock, and every 32 numbers `nextval` writes to its log that 32 more were given, by way of the
//! same row. Who looks at that moment reads a number that is still to be drawn. `pg_sequence_last_value`
//! takes the lock.
//!
//! What is *no* tick: a read inside a transaction that has a number already (locking a row takes one),
//! for then `t` was given before `v` was read. A store should answer the read with
//! `pg_current_xact_id_if_assigned()` beside it, and drop the tick unless that is null.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Incarnation, Snapshot};
use crate::Tick;

/// Between two ticks at least so much: each takes a transaction number, of which there are 2^32
/// between two freezes. 20 a second are 1.7 million a day.
pub const TICK_PAUSE: Duration = Duration::from_millis(50);

/// So many ticks are remembered. A fetch that takes longer than this many ticks keeps the old floor.
const KEPT_MAX: usize = 64;

/// What a sequence has given out, from what it says of itself: a fresh one has a last value that it
/// has not given yet.
///
/// ```
/// use postrider_core::snapshot::given_through;
/// assert_eq!((given_through(1, false), given_through(1, true)), (0, 1));
/// ```
pub const fn given_through(last_value: u64, is_called: bool) -> u64 {
    if is_called { last_value } else { last_value.saturating_sub(1) }
}

/// The sequence as it was read, and the transaction number that was taken after that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceTick {
    /// [`given_through`] of what the first statement read.
    pub floor: u64,
    /// What the second statement took.
    pub xid: u64,
    /// The life of the server that *both* statements read.
    pub incarnation: Incarnation,
}

/// The ticks of one process, for all its partitions and destinations.
#[derive(Clone, Debug, Default)]
pub struct SequenceTicks {
    /// Ascending in both numbers, all of one life.
    ticks: VecDeque<SequenceTick>,
    begun: Option<Tick>,
}

impl SequenceTicks {
    /// Whether it is time for a tick: before the first fetch, and then at most every [`TICK_PAUSE`].
    pub fn is_due(&self, now: Tick) -> bool {
        self.begun.is_none_or(|begun| now.since(begun) >= TICK_PAUSE)
    }

    /// A tick is begun.
    pub fn begin(&mut self, now: Tick) {
        self.begun = Some(now);
    }

    /// A tick is acknowledged. One of another life than the others replaces them.
    pub fn note(&mut self, tick: SequenceTick) {
        if self.ticks.back().is_some_and(|last| last.incarnation != tick.incarnation) {
            self.ticks.clear();
        }
        // Answers may overtake each other. One that says no more than the last is worth less: a lower
        // transaction number serves more snapshots.
        if self.ticks.back().is_some_and(|last| tick.floor <= last.floor || tick.xid <= last.xid) {
            return;
        }
        if self.ticks.len() == KEPT_MAX {
            self.ticks.pop_front();
        }
        self.ticks.push_back(tick);
    }

    /// The floor that may be used for a snapshot of a life of the server; `None` if no tick serves it,
    /// and then the cursor keeps the floor it has.
    pub fn floor_for(&self, seen: &Snapshot, incarnation: Incarnation) -> Option<u64> {
        let serves =
            |tick: &&SequenceTick| tick.incarnation == incarnation && tick.xid < seen.xmax();
        self.ticks.iter().rev().find(serves).map(|tick| tick.floor)
    }

    /// The last tick, whatever life it belongs to: what a store that compares on the server hands over.
    pub fn last(&self) -> Option<SequenceTick> {
        self.ticks.back().copied()
    }

    /// The highest floor that was read in a life of the server: a sequence that says less has been set
    /// back, and one that says no more needs no tick.
    pub fn highest(&self, incarnation: Incarnation) -> Option<u64> {
        let last = self.ticks.back().filter(|tick| tick.incarnation == incarnation);
        last.map(|tick| tick.floor)
    }
}
