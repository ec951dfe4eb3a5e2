//! Waiting events of one partition and destination, as its owner keeps them in memory.
//!
//! Only the owner writes them, under its lease, so what it loaded stays true while it writes through this.
//!
//! Invariants: a key's rows are in the order of its numbers; at most the head of a key is due, and what
//! follows is parked behind it; several keys of one item collection do not wait for each other. Which row is
//! the head is derived, not stored: so a transaction that was followed by a crash before the next leaves
//! nothing to repair. What a change costs does not grow with the length of a line.

mod asked;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use postrider_core::KeyHash;
use postrider_core::waiting::{Counts, NewWaiting, Placement, Reason, WaitingChange, WaitingState};

use crate::record::Place;
pub(crate) use crate::stored::{RowsOf, Stored, rows_pk};

/// What is kept in order: an ordering key in an item collection.
type Key = (Arc<str>, KeyHash);

/// The rows of a partition and destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    rows: HashMap<u64, Stored>,
    /// The rows that hold their key, in its order.
    lines: HashMap<Key, BTreeSet<(u64, u64)>>,
    /// The heads of lines that are tried again or held, by when.
    heads: BTreeSet<(i64, u64)>,
}

impl Waiting {
    pub(crate) fn new(rows: impl Iterator<Item = Stored>, now: i64) -> Waiting {
        let mut waiting = Waiting::default();
        for row in rows {
            waiting.put(row, now);
        }
        waiting
    }

    /// What waits behind the cursor. What is ahead of it is bounded by the window, and comes out only by what is
    /// read next, so it must not keep that from being read. Told apart only where all together are too many: this is
    /// asked at every settlement.
    pub(crate) fn behind(&self, max: usize) -> usize {
        match self.rows.len() < max {
            true => self.rows.len(),
            false => self.rows.values().filter(|row| !row.ahead).count(),
        }
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Stored> {
        self.rows.get(&seq)
    }

    /// All rows, in no order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Stored> {
        self.rows.values()
    }

    /// Notes that the cursor has passed a row; whether that is news.
    pub(crate) fn pass(&mut self, seq: u64) -> bool {
        self.rows.get_mut(&seq).is_some_and(|row| std::mem::take(&mut row.ahead))
    }

    /// Lets a row stand in the line of its key, if it holds it.
    fn put(&mut self, row: Stored, now: i64) {
        let (key, order) = (key_of(&row), row.order());
        if is_due_alone(&row) {
            self.heads.insert((row.due, row.row.seq));
        }
        if row.holds() {
            self.lines.entry(key.clone()).or_default().insert(order);
        }
        self.rows.insert(row.row.seq, row);
        self.line_up(&key, order, now);
    }

    /// Takes a row out of its line.
    fn take(&mut self, seq: u64, now: i64) -> Option<Stored> {
        let row = self.rows.remove(&seq)?;
        self.heads.remove(&(row.due, seq));
        let (key, order) = (key_of(&row), row.order());
        if let Some(line) = self.lines.get_mut(&key) {
            line.remove(&order);
            if line.is_empty() {
                self.lines.remove(&key);
            }
        }
        self.line_up(&key, order, now);
        Some(row)
    }

    /// Gives the rows of a line their states by their places, after one place of it has changed: the first
    /// that holds the key may be due, and what follows is parked. That one was the first before is the
    /// second now, or the first still: so only these and the changed one are looked at.
    fn line_up(&mut self, key: &Key, changed: (u64, u64), now: i64) {
        let Some(line) = self.lines.get(key) else { return };
        let mut at = line.iter();
        let (first, second) = (at.next().copied(), at.next().copied());
        let changed = Some(changed).filter(|order| line.contains(order));
        if let Some(row) = first.and_then(|(_, seq)| self.rows.get_mut(&seq)) {
            if row.state == WaitingState::Parked {
                row.state = WaitingState::Retrying;
                row.due = row.due.min(now);
            }
            if row.is_timed() {
                self.heads.insert((row.due, row.row.seq));
            }
        }
        for order in [second, changed].into_iter().flatten().filter(|order| Some(*order) != first) {
            let Some(row) = self.rows.get_mut(&order.1) else { continue };
            if row.is_timed() {
                self.heads.remove(&(row.due, row.row.seq));
                row.state = WaitingState::Parked;
            }
        }
    }

    /// The rows whose turn is next, the earliest due first: each with the run of its key, itself and what
    /// is parked directly behind it.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&Stored, impl Iterator<Item = &Stored>)> {
        let heads = self.heads.iter().filter_map(|(_, seq)| self.rows.get(seq));
        heads.map(|head| (head, self.run(head)))
    }

    fn run<'a>(&'a self, head: &'a Stored) -> impl Iterator<Item = &'a Stored> {
        // What is late stands in no line.
        let alone = head.late.then_some(head).into_iter();
        let line = self.lines.get(&key_of(head)).into_iter().flatten();
        let rows = line.filter_map(|(_, seq)| self.rows.get(seq));
        let seq = head.row.seq;
        let run =
            rows.take_while(move |row| row.row.seq == seq || row.state == WaitingState::Parked);
        alone.chain(run)
    }

    /// Lets an event in. One that is there, in any state, is left as it is; whether it is new.
    pub(crate) fn enter(
        &mut self,
        new: &NewWaiting,
        place: &Place,
        ahead: bool,
        now: i64,
        is_disabled: impl Fn(&str) -> bool,
    ) -> bool {
        if self.rows.contains_key(&new.row.seq) {
            return false;
        }
        let mut row = Stored {
            row: new.row,
            place: place.clone(),
            key_hash: new.key_hash,
            state: WaitingState::Retrying,
            due: now,
            attempts: 0,
            reason: Reason::Behind,
            detail: String::new(),
            holds_key: false,
            endpoint: None,
            ahead,
            late: false,
            moved_at: now,
            created_at: new.event.as_ref().map(|event| event.created_at.as_micros() / 1_000),
        };
        match &new.placement {
            Placement::Behind(reason) => row.reason = *reason,
            Placement::Retry { delay, attempted } => {
                row.state = WaitingState::of_timed(attempted.reason);
                row.due = later(now, *delay);
                row.record(attempted);
            }
            Placement::Disabled { endpoint, attempted } => {
                row.record(attempted);
                // One that is in service by now would be let out by nobody.
                if is_disabled(endpoint) {
                    row.state = WaitingState::Disabled;
                    row.endpoint = Some(endpoint.to_string());
                }
            }
            Placement::Dead { attempted, holds_key } => {
                row.state = WaitingState::Dead;
                row.holds_key = *holds_key;
                row.record(attempted);
            }
        }
        self.put(row, now);
        true
    }

    /// Changes an event that waits. What gave up is not undone by an attempt that was under way.
    /// Returns whether anything changed.
    pub(crate) fn change(
        &mut self,
        change: &WaitingChange,
        now: i64,
        is_disabled: impl Fn(&str) -> bool,
    ) -> bool {
        let seq = change.row().seq;
        let gave_up =
            |row: &&Stored| matches!(row.state, WaitingState::Dead | WaitingState::Discarded);
        if self.rows.get(&seq).is_none_or(|row| gave_up(&row)) {
            return false;
        }
        if matches!(change, WaitingChange::Delivered(_) | WaitingChange::Erased(_)) {
            return self.take(seq, now).is_some();
        }
        let row = self.rows.get_mut(&seq).expect("invariant: it was there just now");
        self.heads.remove(&(row.due, seq));
        row.moved_at = now;
        match change {
            WaitingChange::Delivered(_) | WaitingChange::Erased(_) => {}
            WaitingChange::Retry { delay, attempted, .. } => {
                // One that is parked or disabled stays so: its turn has not come.
                if row.is_timed() {
                    row.state = WaitingState::of_timed(attempted.reason);
                }
                row.record(attempted);
                row.due = later(now, *delay);
            }
            WaitingChange::Disabled { endpoint, attempted, .. } => {
                row.record(attempted);
                if is_disabled(endpoint) {
                    row.state = WaitingState::Disabled;
                    row.endpoint = Some(endpoint.to_string());
                } else {
                    row.due = now;
                }
            }
            WaitingChange::Dead { attempted, holds_key, .. } => {
                row.record(attempted);
                row.state = WaitingState::Dead;
                row.holds_key = *holds_key && !row.late;
            }
            WaitingChange::Postpone { delay, .. } => row.due = later(now, *delay),
        }
        if is_due_alone(row) {
            self.heads.insert((row.due, seq));
        }
        let (key, order, holds) = (key_of(row), row.order(), row.holds());
        if !holds && let Some(line) = self.lines.get_mut(&key) {
            line.remove(&order);
            if line.is_empty() {
                self.lines.remove(&key);
            }
        }
        self.line_up(&key, order, now);
        true
    }

    /// Adds how many wait, by state.
    pub(crate) fn count_into(&self, counts: &mut Counts) {
        for row in self.rows.values() {
            match row.state {
                WaitingState::Retrying => counts.retrying += 1,
                WaitingState::Parked => counts.parked += 1,
                WaitingState::Held => counts.held += 1,
                WaitingState::Disabled => counts.disabled += 1,
                WaitingState::Dead => counts.dead += 1,
                WaitingState::Discarded => {}
            }
        }
    }

    /// Keys that are held, with how many events hold each.
    pub(crate) fn held_keys(&self) -> Vec<(KeyHash, u32)> {
        let mut keys: BTreeMap<KeyHash, u32> = BTreeMap::new();
        for row in self.rows.values().filter(|row| row.holds()) {
            *keys.entry(row.key_hash).or_default() += 1;
        }
        keys.into_iter().collect()
    }

    /// What waits though the cursor has not passed it.
    pub(crate) fn ahead(&self) -> Vec<u64> {
        let mut ahead: Vec<u64> =
            self.rows.values().filter(|row| row.ahead).map(|row| row.row.seq).collect();
        ahead.sort_unstable();
        ahead
    }
}

/// Whether it is due by itself, whatever its key does.
fn is_due_alone(row: &Stored) -> bool {
    row.late && row.is_timed()
}

fn key_of(row: &Stored) -> Key {
    (Arc::clone(&row.place.pk), row.key_hash)
}

fn later(now: i64, delay: std::time::Duration) -> i64 {
    now.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use postrider_core::EventId;
    use postrider_core::waiting::{Attempted, RowRef};

    use super::*;
    use crate::item::Item;
    use crate::record::numbered_sk;

    const DUE: WaitingState = WaitingState::Retrying;
    const PARKED: WaitingState = WaitingState::Parked;

    fn new(seq: u64, key: u64, number: u64) -> (NewWaiting, Place) {
        let row = RowRef { seq, id: EventId::from_u128(u128::from(seq)) };
        let placement = Placement::Behind(Reason::Behind);
        let new = NewWaiting { row, key_hash: KeyHash(key), event: None, placement };
        (new, Place::new("k", &numbered_sk(number)))
    }

    /// The rows of a key that hold it, in its order.
    fn line(waiting: &Waiting, key: u64) -> Vec<(u64, WaitingState)> {
        let line = waiting.lines.get(&(Arc::from("k"), KeyHash(key))).into_iter().flatten();
        line.map(|(_, seq)| (*seq, waiting.rows[seq].state)).collect()
    }

    /// INV-3: a key's rows are in the order of the key's numbers, in whatever order they were numbered
    /// and entered, and stay so when they are read again.
    #[test]
    fn rows_line_up_by_the_keys_own_numbers() {
        let mut waiting = Waiting::default();
        for seq in [1, 3, 2] {
            let (new, place) = new(seq, 1, 100 - seq);
            assert!(waiting.enter(&new, &place, false, 0, |_| false));
            assert!(!waiting.enter(&new, &place, false, 0, |_| false), "it is there");
        }
        assert_eq!(line(&waiting, 1), [(3, DUE), (2, PARKED), (1, PARKED)]);
        let of = RowsOf { pk: "W".to_owned(), since: 1 };
        let items: Vec<Item> = waiting.rows.values().map(|row| row.item(&of)).collect();
        let again = Waiting::new(items.iter().filter_map(Stored::of), 9);
        assert_eq!(line(&again, 1), line(&waiting, 1));
        let third = waiting.get(3).unwrap().row;
        let delay = Duration::from_secs(1);
        assert!(waiting.change(&WaitingChange::Postpone { row: third, delay }, 5, |_| false));
        assert_eq!(waiting.get(3).unwrap().due, 1_005);
        assert!(waiting.change(&WaitingChange::Delivered(third), 7, |_| false));
        assert_eq!(line(&waiting, 1), [(2, DUE), (1, PARKED)]);
        let heads: Vec<u64> = waiting.runs().map(|(head, _)| head.row.seq).collect();
        assert_eq!(heads, [2]);
    }

    /// INV-3: two ordering keys in one item collection do not wait for each other; a dead letter of one that
    /// holds its key parks its own alone.
    #[test]
    fn keys_of_one_collection_do_not_wait_for_each_other() {
        let mut waiting = Waiting::default();
        for (seq, key) in [(1, 1), (2, 2), (3, 1), (4, 2)] {
            let (new, place) = new(seq, key, seq);
            assert!(waiting.enter(&new, &place, false, 0, |_| false));
        }
        assert_eq!(line(&waiting, 1), [(1, DUE), (3, PARKED)]);
        assert_eq!(line(&waiting, 2), [(2, DUE), (4, PARKED)]);
        let attempted =
            Attempted { attempts: 1, reason: Reason::Rejected, detail: "no".to_owned() };
        let row = waiting.get(1).unwrap().row;
        let dead = WaitingChange::Dead { row, attempted, holds_key: true };
        assert!(waiting.change(&dead, 0, |_| false));
        let heads: Vec<u64> = waiting.runs().map(|(head, _)| head.row.seq).collect();
        assert_eq!(heads, [2], "the other key goes on");
    }

    /// What is ahead of the cursor is none of what keeps new events from being read: it comes out only by reading.
    #[test]
    fn what_is_ahead_takes_no_room() {
        let mut waiting = Waiting::default();
        for seq in 1..=3 {
            let (new, place) = new(seq, seq, seq);
            assert!(waiting.enter(&new, &place, seq > 1, 0, |_| false));
        }
        assert_eq!((waiting.behind(3), waiting.behind(4)), (1, 3));
    }

    /// A line of the greatest length is entered, headed, and left row by row in the time of short ones: what a
    /// settlement costs does not grow with what waits. Quadratic, it would be hours.
    #[test]
    fn a_long_line_costs_what_a_short_one_does() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let all = crate::options::WAITING_MAX as u64;
        for seq in 1..=all {
            let (new, place) = new(seq, 1, seq);
            assert!(waiting.enter(&new, &place, false, 0, |_| false));
        }
        for seq in 1..=all {
            let row = waiting.get(seq).unwrap().row;
            assert_eq!(waiting.runs().next().unwrap().0.row, row);
            assert!(waiting.change(&WaitingChange::Delivered(row), 1, |_| false));
        }
        assert_eq!(waiting.rows.len(), 0);
        assert!(waiting.lines.is_empty() && waiting.heads.is_empty());
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
