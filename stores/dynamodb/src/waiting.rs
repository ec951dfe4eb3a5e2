//! Waiting events of one partition and destination, as its owner keeps them in memory.
//!
//! Only the owner writes them, under its lease, so what it loaded stays true while it writes through this.
//! A row refers to the event's item, which stays where it is until the event is published.
//!
//! Invariants: a key's rows are in the order of its numbers; at most the head of a key is due, and what
//! follows is parked behind it. Which row is the head is derived, not stored: so a transaction that was
//! followed by a crash before the next leaves nothing to repair.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::waiting::{
    Attempted, Counts, DETAIL_BYTES_MAX, NewWaiting, Placement, Reason, RowRef, WaitingChange,
    WaitingState,
};
use postrider_core::{DestinationId, KeyHash, PartitionId};

use crate::control::{PK, SK};
use crate::item::{Item, n, number, s, text, truth};
use crate::record::Place;

/// The most events that wait of a partition and destination: what its owner remembers of each takes
/// about 300 bytes.
pub(crate) const ROWS_MAX: usize = 100_000;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) row: RowRef,
    pub(crate) place: Place,
    pub(crate) key_hash: KeyHash,
    pub(crate) state: WaitingState,
    /// In milliseconds, by the clock of the owner that wrote it. It delays, and decides nothing else.
    pub(crate) due: i64,
    pub(crate) attempts: u32,
    pub(crate) reason: Reason,
    pub(crate) detail: String,
    /// Of a dead letter: whether its successors wait behind it.
    pub(crate) holds_key: bool,
    /// Of a disabled event: what it waits for.
    pub(crate) endpoint: Option<String>,
    /// Whether the cursor has not passed it: its item is pending as well.
    pub(crate) ahead: bool,
}

/// The partition key of the rows.
pub(crate) fn rows_pk(destination: &DestinationId, partition: PartitionId) -> String {
    format!("W#{destination}#{:05}", partition.0)
}

impl Stored {
    /// Whether events of its key wait because of it.
    pub(crate) fn holds(&self) -> bool {
        match self.state {
            WaitingState::Retrying
            | WaitingState::Parked
            | WaitingState::Held
            | WaitingState::Disabled => true,
            WaitingState::Dead => self.holds_key,
            WaitingState::Discarded => false,
        }
    }

    fn order(&self) -> (u64, u64) {
        (self.place.n().unwrap_or_default(), self.row.seq)
    }

    fn record(&mut self, attempted: &Attempted) {
        self.attempts = attempted.attempts;
        self.reason = attempted.reason;
        let end = attempted.detail.floor_char_boundary(DETAIL_BYTES_MAX);
        attempted.detail[..end].clone_into(&mut self.detail);
    }

    pub(crate) fn sk(&self) -> String {
        format!("{:020}", self.row.seq)
    }

    /// The row as an item.
    pub(crate) fn item(&self, pk: &str) -> Item {
        let mut item = Item::from([
            (PK.to_owned(), s(pk)),
            (SK.to_owned(), s(self.sk())),
            ("event_pk".to_owned(), s(&*self.place.pk)),
            ("event_sk".to_owned(), s(&*self.place.sk)),
            ("event".to_owned(), s(self.row.id.to_string())),
            ("key_hash".to_owned(), n(self.key_hash.0)),
            ("state".to_owned(), s(self.state.as_str())),
            ("due".to_owned(), n(self.due)),
            ("attempts".to_owned(), n(self.attempts)),
            ("reason".to_owned(), s(self.reason.as_str())),
            ("detail".to_owned(), s(&self.detail)),
            ("holds_key".to_owned(), AttributeValue::Bool(self.holds_key)),
            ("ahead".to_owned(), AttributeValue::Bool(self.ahead)),
        ]);
        if let Some(endpoint) = &self.endpoint {
            item.insert("endpoint".to_owned(), s(endpoint));
        }
        item
    }

    /// What the item of a row says; nothing if it is none.
    pub(crate) fn of(item: &Item) -> Option<Stored> {
        Some(Stored {
            row: RowRef {
                seq: text(item, SK)?.parse().ok()?,
                id: text(item, "event")?.parse().ok()?,
            },
            place: Place::new(text(item, "event_pk")?, text(item, "event_sk")?),
            key_hash: KeyHash(number(item, "key_hash")?),
            state: text(item, "state")?.parse().ok()?,
            due: number(item, "due")?,
            attempts: number(item, "attempts")?,
            reason: text(item, "reason")?.parse().ok()?,
            detail: text(item, "detail")?.to_owned(),
            holds_key: truth(item, "holds_key"),
            endpoint: text(item, "endpoint").map(str::to_owned),
            ahead: truth(item, "ahead"),
        })
    }
}

/// The rows of a partition and destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    rows: HashMap<u64, Stored>,
    keys: BTreeMap<Arc<str>, BTreeSet<(u64, u64)>>,
}

impl Waiting {
    pub(crate) fn new(rows: impl Iterator<Item = Stored>, now: i64) -> Waiting {
        let mut waiting = Waiting::default();
        for row in rows {
            waiting.put(row);
        }
        let keys: Vec<Arc<str>> = waiting.keys.keys().cloned().collect();
        for key in keys {
            waiting.line_up(&key, now);
        }
        waiting
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
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

    fn put(&mut self, row: Stored) {
        self.keys.entry(Arc::clone(&row.place.pk)).or_default().insert(row.order());
        self.rows.insert(row.row.seq, row);
    }

    fn remove(&mut self, seq: u64) {
        let Some(row) = self.rows.remove(&seq) else { return };
        if let Some(key) = self.keys.get_mut(&row.place.pk) {
            key.remove(&row.order());
            if key.is_empty() {
                self.keys.remove(&row.place.pk);
            }
        }
    }

    /// A key's rows, in its order.
    fn line(&self, key: &str) -> impl Iterator<Item = &Stored> {
        let line = self.keys.get(key).into_iter().flatten();
        line.filter_map(|(_, seq)| self.rows.get(seq))
    }

    /// All rows, key by key.
    pub(crate) fn lines(&self) -> impl Iterator<Item = impl Iterator<Item = &Stored>> {
        self.keys.keys().map(|key| self.line(key))
    }

    /// Gives a key's rows their states by their places: the first that holds the key may be due, and
    /// what follows is parked.
    fn line_up(&mut self, key: &str, now: i64) {
        let line: Vec<u64> = self.line(key).map(|row| row.row.seq).collect();
        let mut held = false;
        for seq in line {
            let Some(row) = self.rows.get_mut(&seq) else { continue };
            match (row.state, held) {
                (WaitingState::Parked, false) => {
                    row.state = WaitingState::Retrying;
                    row.due = row.due.min(now);
                }
                (WaitingState::Retrying, true) => row.state = WaitingState::Parked,
                _ => {}
            }
            held |= row.holds();
        }
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
        };
        match &new.placement {
            Placement::Behind(reason) => row.reason = *reason,
            Placement::Retry { delay, attempted } => {
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
        let key = Arc::clone(&row.place.pk);
        self.put(row);
        self.line_up(&key, now);
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
        let Some(row) = self.rows.get_mut(&seq) else { return false };
        if matches!(row.state, WaitingState::Dead | WaitingState::Discarded) {
            return false;
        }
        let key = Arc::clone(&row.place.pk);
        match change {
            WaitingChange::Delivered(_) | WaitingChange::Erased(_) => self.remove(seq),
            WaitingChange::Retry { delay, attempted, .. } => {
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
                row.holds_key = *holds_key;
            }
            WaitingChange::Postpone { delay, .. } => row.due = later(now, *delay),
        }
        self.line_up(&key, now);
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

fn later(now: i64, delay: std::time::Duration) -> i64 {
    now.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::EventId;

    use super::*;
    use crate::record::numbered_sk;

    fn new(seq: u64) -> (NewWaiting, Place) {
        let row = RowRef { seq, id: EventId::from_u128(u128::from(seq)) };
        let placement = Placement::Behind(Reason::Behind);
        let new = NewWaiting { row, key_hash: KeyHash(1), event: None, placement };
        (new, Place::new("k", &numbered_sk(100 - seq)))
    }

    /// INV-3: a key's rows are in the order of the key's numbers, in whatever order they were numbered
    /// and entered, and stay so when they are read again.
    #[test]
    fn rows_line_up_by_the_keys_own_numbers() {
        let mut waiting = Waiting::default();
        for seq in [1, 3, 2] {
            let (new, place) = new(seq);
            assert!(waiting.enter(&new, &place, false, 0, |_| false));
            assert!(!waiting.enter(&new, &place, false, 0, |_| false), "it is there");
        }
        let line = |waiting: &Waiting| {
            waiting.line("k").map(|row| (row.row.seq, row.state)).collect::<Vec<_>>()
        };
        let (due, parked) = (WaitingState::Retrying, WaitingState::Parked);
        assert_eq!(line(&waiting), [(3, due), (2, parked), (1, parked)]);
        let items: Vec<Item> = waiting.rows.values().map(|row| row.item("W")).collect();
        let again = Waiting::new(items.iter().filter_map(Stored::of), 9);
        assert_eq!(line(&again), line(&waiting));
        let third = waiting.get(3).unwrap().row;
        let delay = Duration::from_secs(1);
        assert!(waiting.change(&WaitingChange::Postpone { row: third, delay }, 5, |_| false));
        assert_eq!(waiting.get(3).unwrap().due, 1_005);
        assert!(waiting.change(&WaitingChange::Delivered(third), 7, |_| false));
        assert_eq!(line(&waiting), [(2, due), (1, parked)]);
    }
}
