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

/// A row that is not settled, or stands behind one that is not. Windows of all partitions together have tens of
/// thousands of them, so it is kept small.
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

/// So many rows more when there is no room: doubled, half of it would often be for nothing in each of many
/// windows, and the longest is copied 32 times.
const GROWTH: usize = 256;

/// What is left of a row once all before it are settled too: its place in the settlement. Its event is gone.
const PASSED_BYTES: u64 = size_of::<(RowRef, Passed)>() as u64;
/// And before that.
const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

/// What was read and is not yet saved.
///
/// Rows leave `slots` for `passed` as soon as none before them is unsettled, and that for a settlement as it
/// is: what is settled and not saved is most of what a fast relay has read, and is neither kept as a slot nor copied.
#[derive(Debug)]
pub(crate) struct Window {
    /// From the first row that is not settled on.
    slots: VecDeque<Slot>,
    /// The base of the cursors from an ordinal on: rows of a page share one. The first is that of the last row
    /// before the slots, if there was one.
    bases: VecDeque<(u64, Arc<[u8]>)>,
    /// The ordinal of the first slot.
    first: u64,
    bytes: u64,
    /// Where the store's cursor stands.
    saved: Cursor,
    /// Where the next page is read.
    read: Cursor,
    /// What the next save takes along: the settled rows before the slots.
    passed: Vec<(RowRef, Passed)>,
    /// Bytes of the same.
    passed_bytes: u64,
    /// The position of the last of them.
    passed_to: u64,
    /// Rows of the save under way.
    saving: usize,
    /// Bytes of the same.
    saving_bytes: u64,
    /// Slots with an outcome.
    settled: usize,
    /// Bytes of the same.
    settled_bytes: u64,
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
            passed: Vec::new(),
            passed_bytes: 0,
            passed_to: 0,
            saving: 0,
            saving_bytes: 0,
            settled: 0,
            settled_bytes: 0,
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

    /// The base of the cursor of a row that is not passed, or of the last that is.
    fn base(&self, ordinal: u64) -> Option<Arc<[u8]>> {
        let behind = self.bases.partition_point(|(from, _)| *from <= ordinal);
        self.bases.get(behind.checked_sub(1)?).map(|(_, base)| Arc::clone(base))
    }

    /// Records where the next page begins.
    pub(crate) fn read_to(&mut self, end: Cursor) {
        self.read = end;
    }

    /// Records what became of a row. Rows that left the slots already keep what they had.
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
        while self.pass_first() {}
    }

    /// Moves the first slot to what the next save takes along, if it is settled.
    fn pass_first(&mut self) -> bool {
        let Some((slot, outcome)) = self.slots.front().and_then(|slot| Some((slot, slot.outcome?)))
        else {
            return false;
        };
        if self.passed.len() == self.passed.capacity() {
            self.passed.reserve_exact(GROWTH);
        }
        self.passed.push((slot.row, outcome));
        self.passed_to = slot.position;
        let bytes = u64::from(slot.bytes);
        self.passed_bytes += bytes;
        self.settled -= 1;
        self.settled_bytes -= bytes;
        while self.bases.get(1).is_some_and(|(from, _)| *from <= self.first) {
            self.bases.pop_front();
        }
        self.first += 1;
        self.slots.pop_front();
        true
    }

    /// Takes the move that can be saved now: over the longest run of settled rows at the front. Whoever takes it sends
    /// it until it is [`saved`](Self::saved): what it passes is in nobody else's hands.
    pub(crate) fn advance(&mut self) -> Option<Advance> {
        let past = planted!(CursorPastUnacknowledged);
        let to = match self.slots.front() {
            // Nothing is unsettled: the end of the last page is safe too, rows or not.
            None => self.read.clone(),
            Some(open) if past => Cursor::new(self.base(self.first)?, open.position),
            Some(_) if self.passed.is_empty() => return None,
            Some(_) => Cursor::new(self.base(self.first.checked_sub(1)?)?, self.passed_to),
        };
        if to == self.saved {
            return None;
        }
        let passed = std::mem::take(&mut self.passed);
        self.saving += passed.len();
        self.saving_bytes += std::mem::take(&mut self.passed_bytes);
        Some(Advance { from: self.saved.clone(), to, passed })
    }

    /// The move under way is saved.
    pub(crate) fn saved(&mut self, to: Cursor) {
        self.saving = 0;
        self.bytes -= std::mem::take(&mut self.saving_bytes);
        self.saved = to;
    }

    /// Where the store's cursor stands.
    pub(crate) fn saved_at(&self) -> &Cursor {
        &self.saved
    }

    /// The first row that it has not passed, or that is read next.
    pub(crate) fn unsaved_from(&self) -> Ordinal {
        Ordinal(self.first - self.savable() as u64)
    }

    /// The first row that is not settled, or that is read next.
    pub(crate) fn open_from(&self) -> Ordinal {
        Ordinal(self.first)
    }

    /// Rows read and not saved.
    pub(crate) fn len(&self) -> usize {
        self.savable() + self.slots.len()
    }

    /// Those that no unsettled row stands before.
    fn savable(&self) -> usize {
        self.passed.len() + self.saving
    }

    /// Bytes of rows read and not saved.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rows with an outcome that is not saved.
    pub(crate) fn settled(&self) -> usize {
        self.savable() + self.settled
    }

    /// Bytes of rows without an outcome: their events are in memory.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.bytes - self.savable_bytes() - self.settled_bytes
    }

    /// What remains of settled rows, whose events are gone.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.savable_slot_bytes() + self.settled as u64 * SLOT_BYTES
    }

    /// What a save frees: bytes of rows.
    pub(crate) fn savable_bytes(&self) -> u64 {
        self.passed_bytes + self.saving_bytes
    }

    /// The same in memory.
    pub(crate) fn savable_slot_bytes(&self) -> u64 {
        self.savable() as u64 * PASSED_BYTES
    }

    /// The keys of rows that hold many others: unsettled ones in the first half of the window, if at
    /// least half of it is settled.
    pub(crate) fn holders(&self) -> Vec<KeyHash> {
        if self.settled() * 2 < self.len() || self.slots.is_empty() {
            return Vec::new();
        }
        let half = self.len().div_ceil(2).saturating_sub(self.savable());
        let first = self.slots.iter().take(half);
        first.filter(|slot| slot.outcome.is_none()).map(|slot| slot.key).collect()
    }

    /// The key of the first row that has no outcome.
    pub(crate) fn first_open(&self) -> Option<KeyHash> {
        self.slots.front().map(|slot| slot.key)
    }

    /// Whether something could be saved, or is being saved.
    pub(crate) fn is_dirty(&self) -> bool {
        self.savable() > 0 || (self.slots.is_empty() && self.read != self.saved)
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
                let gone = passed.len() as u64;
                let front = (gone + 1..).take_while(|n| settled.contains(n)).count() as u64;
                prop_assert_eq!(window.savable_bytes(), 10 * front);
                prop_assert_eq!(window.savable_slot_bytes(), PASSED_BYTES * front);
                let behind = settled.len() as u64 - gone - front;
                let slots = PASSED_BYTES * front + SLOT_BYTES * behind;
                prop_assert_eq!(window.slot_bytes(), slots);
                if !save {
                    continue;
                }
                let Some(advance) = window.advance() else { continue };
                prop_assert_eq!(&advance.from, &window.saved);
                for n in 1..=advance.to.position() {
                    prop_assert!(settled.contains(&n));
                }
                passed.extend(advance.passed.iter().map(|(row, _)| row.seq));
                window.saved(advance.to);
            }
            if let Some(advance) = window.advance() {
                passed.extend(advance.passed.iter().map(|(row, _)| row.seq));
                window.saved(advance.to);
            }
            prop_assert_eq!(passed, (1..=40).collect::<Vec<_>>());
            prop_assert_eq!((window.len(), window.settled()), (0, 0));
            prop_assert_eq!((window.bytes(), window.open_bytes(), window.slot_bytes()), (0, 0, 0));
        }
    }
}
