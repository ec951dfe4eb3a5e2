//! The window of one (partition, destination): what was read and is not yet saved, in order.
//!
//! Keeps INV-1 (the saved cursor passes an event only after the event is acknowledged or waits) and
//! its part of INV-6 (rows and bytes are counted, and the fetch stops at the limits).

use std::collections::VecDeque;
use std::sync::Arc;

use postrider_core::waiting::{Passed, RowRef};
use postrider_core::{Cursor, KeyHash, planted};

/// Names a row of the window. Grows by one with each row read; never used twice in a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ordinal(u64);

/// A row. Windows of all partitions together have tens of thousands of them, so it is kept small.
#[derive(Debug)]
struct Slot {
    row: RowRef,
    key: KeyHash,
    /// Of its cursor. The base is one of [`Window::bases`].
    position: u64,
    /// Saturated: no event is so large.
    bytes: u32,
    outcome: Option<Passed>,
}

/// So many slots more when a window is full: doubled, half of it would often be for nothing in each of many
/// windows, and the longest is copied 32 times.
const GROWTH: usize = 256;

/// What a settled row takes until it is saved: its slot, and its place in the settlement. Its event is gone.
const SLOT_BYTES: u64 = 80;

/// What was read and is not yet saved.
#[derive(Debug)]
pub(crate) struct Window {
    slots: VecDeque<Slot>,
    /// The base of the cursors from an ordinal on: rows of a page share one.
    bases: VecDeque<(u64, Arc<[u8]>)>,
    /// The ordinal of the first slot.
    first: u64,
    bytes: u64,
    /// Where the store's cursor stands.
    saved: Cursor,
    /// Where the next page is read.
    read: Cursor,
    /// Slots with an outcome, anywhere in the window.
    settled: usize,
    /// Bytes of the same.
    settled_bytes: u64,
    /// Slots with an outcome before the first without: what a save takes along.
    front: usize,
    /// Bytes of the same.
    front_bytes: u64,
}

/// A move of the saved cursor.
#[derive(Debug)]
pub(crate) struct Advance {
    pub(crate) from: Cursor,
    pub(crate) to: Cursor,
    pub(crate) passed: Vec<(RowRef, Passed)>,
}

impl Window {
    /// An empty window at the saved cursor.
    pub(crate) fn new(saved: Cursor) -> Window {
        Window {
            slots: VecDeque::new(),
            bases: VecDeque::new(),
            first: 0,
            bytes: 0,
            read: saved.clone(),
            saved,
            settled: 0,
            settled_bytes: 0,
            front: 0,
            front_bytes: 0,
        }
    }

    /// Adds a row behind the others.
    pub(crate) fn push(
        &mut self,
        row: RowRef,
        key: KeyHash,
        cursor: Cursor,
        bytes: u64,
    ) -> Ordinal {
        let ordinal = self.first + self.slots.len() as u64;
        if self.bases.back().is_none_or(|(_, base)| base != cursor.base()) {
            self.bases.push_back((ordinal, Arc::clone(cursor.base())));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(GROWTH);
        }
        self.slots.push_back(Slot { row, key, position: cursor.position(), bytes, outcome: None });
        self.bytes += u64::from(bytes);
        Ordinal(ordinal)
    }

    /// The cursor of a row, by its place among the slots.
    fn cursor(&self, index: usize) -> Option<Cursor> {
        let ordinal = self.first + index as u64;
        let behind = self.bases.partition_point(|(from, _)| *from <= ordinal);
        let (_, base) = self.bases.get(behind.checked_sub(1)?)?;
        Some(Cursor::new(Arc::clone(base), self.slots.get(index)?.position))
    }

    /// Records where the next page begins.
    pub(crate) fn read_to(&mut self, end: Cursor) {
        self.read = end;
    }

    /// Records what became of a row. Rows that left the window already keep what they had.
    pub(crate) fn settle(&mut self, ordinal: Ordinal, outcome: Passed) {
        let index = ordinal.0.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(slot) = index.and_then(|index| self.slots.get_mut(index)) else {
            return;
        };
        if slot.outcome.is_none() {
            slot.outcome = Some(outcome);
            self.settled += 1;
            self.settled_bytes += u64::from(slot.bytes);
        }
        while let Some(slot) = self.slots.get(self.front).filter(|slot| slot.outcome.is_some()) {
            self.front_bytes += u64::from(slot.bytes);
            self.front += 1;
        }
    }

    /// The move that can be saved now: over the longest run of settled rows at the front.
    pub(crate) fn advance(&self) -> Option<Advance> {
        let mut passed = Vec::with_capacity(self.settled.min(self.slots.len()));
        let mut last = None;
        for (index, slot) in self.slots.iter().enumerate() {
            if planted!(CursorPastUnacknowledged) {
                last = Some(index);
            }
            let Some(outcome) = slot.outcome else { break };
            passed.push((slot.row, outcome));
            last = Some(index);
        }
        let to = match passed.len() == self.slots.len() {
            // Nothing is unsettled: the end of the last page is safe too, rows or not.
            true => self.read.clone(),
            false => self.cursor(last?)?,
        };
        let past = planted!(CursorPastUnacknowledged) && !passed.is_empty();
        (past || to != self.saved).then(|| Advance { from: self.saved.clone(), to, passed })
    }

    /// Forgets what a saved move passed.
    pub(crate) fn saved(&mut self, to: Cursor, rows: usize) {
        for slot in self.slots.drain(..rows.min(self.slots.len())) {
            self.bytes -= u64::from(slot.bytes);
            if self.front > 0 {
                self.front -= 1;
                self.front_bytes -= u64::from(slot.bytes);
            }
            if slot.outcome.is_some() {
                self.settled -= 1;
                self.settled_bytes -= u64::from(slot.bytes);
            }
            self.first += 1;
        }
        // The base that the first slot stands in, and those behind it.
        while self.bases.get(1).is_some_and(|(from, _)| *from <= self.first) {
            self.bases.pop_front();
        }
        self.saved = to;
    }

    /// Rows read and not saved.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the same.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rows with an outcome that is not saved.
    pub(crate) fn settled(&self) -> usize {
        self.settled
    }

    /// Bytes of rows without an outcome: their events are in memory.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.bytes - self.settled_bytes
    }

    /// What remains of settled rows, whose events are gone.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.settled as u64 * SLOT_BYTES
    }

    /// What a save would free: bytes of rows.
    pub(crate) fn savable_bytes(&self) -> u64 {
        self.front_bytes
    }

    /// The same in memory.
    pub(crate) fn savable_slot_bytes(&self) -> u64 {
        self.front as u64 * SLOT_BYTES
    }

    /// The keys of rows that hold many others: unsettled ones in the first half of the window, if at
    /// least half of it is settled.
    pub(crate) fn holders(&self) -> Vec<KeyHash> {
        if self.settled * 2 < self.slots.len() || self.settled == self.slots.len() {
            return Vec::new();
        }
        let half = self.slots.len().div_ceil(2);
        let first = self.slots.iter().take(half);
        first.filter(|slot| slot.outcome.is_none()).map(|slot| slot.key).collect()
    }

    /// The key of the first row that has no outcome.
    pub(crate) fn first_open(&self) -> Option<KeyHash> {
        self.slots.iter().find(|slot| slot.outcome.is_none()).map(|slot| slot.key)
    }

    /// Whether something could be saved.
    pub(crate) fn is_dirty(&self) -> bool {
        match self.slots.front() {
            Some(slot) => slot.outcome.is_some(),
            None => self.read != self.saved,
        }
    }

    /// Where the next page is read.
    pub(crate) fn read(&self) -> &Cursor {
        &self.read
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::EventId;
    use proptest::prelude::*;

    fn row(n: u64) -> RowRef {
        RowRef { seq: n, id: EventId::from_u128(u128::from(n)) }
    }

    fn window(rows: u64) -> (Window, Vec<Ordinal>) {
        let mut window = Window::new(Cursor::number(0));
        let ordinals = (1..=rows)
            .map(|n| window.push(row(n), KeyHash(n), Cursor::number(n), 10))
            .collect::<Vec<_>>();
        window.read_to(Cursor::number(rows));
        (window, ordinals)
    }

    #[test]
    fn the_cursor_stops_before_the_first_unsettled_row() {
        let (mut window, ordinals) = window(3);
        window.settle(ordinals[0], Passed::Acked);
        window.settle(ordinals[2], Passed::Acked);
        let advance = window.advance().unwrap();
        assert_eq!((advance.to, advance.passed.len()), (Cursor::number(1), 1));
    }

    #[test]
    fn an_empty_page_moves_the_cursor_when_nothing_is_unsettled() {
        let (mut window, ordinals) = window(1);
        window.read_to(Cursor::number(9));
        assert!(window.advance().is_none());
        window.settle(ordinals[0], Passed::OtherRoute);
        assert_eq!(window.advance().unwrap().to, Cursor::number(9));
    }

    proptest! {
        /// Whatever the order of outcomes and saves: the cursor never passes an unsettled row, every
        /// row is passed once, and nothing is left over.
        #[test]
        fn outcomes_in_any_order_pass_each_row_once(
            order in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
            saves in proptest::collection::vec(any::<bool>(), 40),
        ) {
            let (mut window, ordinals) = window(40);
            let mut settled = std::collections::BTreeSet::new();
            let mut passed = Vec::new();
            for (index, save) in order.into_iter().zip(saves) {
                window.settle(ordinals[index], Passed::Acked);
                settled.insert(index as u64 + 1);
                let front = window.advance().map_or(0, |advance| advance.passed.len() as u64);
                prop_assert_eq!(window.savable_bytes(), 10 * front);
                prop_assert_eq!(window.savable_slot_bytes(), SLOT_BYTES * front);
                let Some(advance) = window.advance().filter(|_| save) else { continue };
                prop_assert_eq!(&advance.from, &window.saved);
                for n in 1..=advance.to.position() {
                    prop_assert!(settled.contains(&n));
                }
                passed.extend(advance.passed.iter().map(|(row, _)| row.seq));
                window.saved(advance.to, advance.passed.len());
            }
            if let Some(advance) = window.advance() {
                passed.extend(advance.passed.iter().map(|(row, _)| row.seq));
                window.saved(advance.to, advance.passed.len());
            }
            prop_assert_eq!(passed, (1..=40).collect::<Vec<_>>());
            prop_assert_eq!((window.len(), window.settled()), (0, 0));
            prop_assert_eq!((window.bytes(), window.settled_bytes, window.front_bytes), (0, 0, 0));
        }
    }
}
