//! What was read of one partition and is not settled yet: a pure state machine.
//!
//! Invariant: no event of a key is handed out while one before it of its key is not settled, and what is said to
//! be settled has nothing unsettled before it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use postrider_core::KeyHash;
use tokio::time::Instant;

use crate::aside::Aside;
use crate::record::Record;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Handed out under a token, and ours until then.
    Away {
        token: u64,
        until: Instant,
    },
    /// Not before then.
    Later {
        until: Instant,
    },
    Settled,
}

struct Entry {
    record: Record,
    bytes: usize,
    state: State,
    /// How often it was tried before, by this process.
    tries: u32,
    begun_before: bool,
    /// It was settled as a dead letter.
    aside: bool,
}

/// See the module.
pub(crate) struct Window {
    entries: VecDeque<Entry>,
    /// The offset behind everything that is settled.
    settled: Option<i64>,
    /// The last offset that was read.
    last: Option<i64>,
    /// What the records keep of the memory.
    bytes: usize,
    /// How many records more may have been at work when a process ended that had the partition before.
    at_the_head: usize,
    /// What a member before had put aside.
    known: Aside,
    /// Where reading stood when the partition became ours: left over from when it was so before, while it stays the same.
    stale: Option<i64>,
}

/// What is handed out.
#[derive(Debug)]
pub(crate) struct HandedOut {
    pub(crate) record: Record,
    pub(crate) count: u32,
    pub(crate) begun_before: bool,
}

/// Records behind the committed offset that a process which ended may have had at work: twice what a consumer has at work by
/// default, since some that are done lie between. What a key that failed was waited for may lie further back, and is not
/// found out.
const HEAD: usize = 128;

impl Window {
    /// Of a partition in which a member before has put these aside.
    pub(crate) fn behind(known: Aside) -> Window {
        let entries = VecDeque::new();
        let (settled, last, stale) = (None, None, None);
        Window { entries, settled, last, bytes: 0, at_the_head: HEAD, known, stale }
    }

    /// Reading stands there, as it did in another time: that says nothing of this one.
    pub(crate) fn stand_at(&mut self, stale: Option<i64>) {
        self.stale = stale;
    }

    /// Reading stands there. Between the last record and that is none: the ends of transactions, and what they took back. Where
    /// every record is settled, so is that.
    pub(crate) fn pass(&mut self, position: Option<i64>) {
        if self.stale.is_some() && position == self.stale && self.last.is_none() {
            return;
        }
        self.stale = None;
        let Some(position) = position else { return };
        let behind = self.settled.max(self.last.map(|last| last + 1));
        if self.entries.is_empty() && behind.is_none_or(|behind| behind < position) {
            self.settled = Some(position);
            // A record that stands before it is read again: see `push`.
            self.last = Some(position - 1);
        }
    }

    /// A record was read. One that was read before means that the partition was made anew, was cut off there (a
    /// replica took over that did not have the rest), or is read again from further back: what was read from
    /// there on is not ours any more; what lies before stays so. Whether that is so.
    pub(crate) fn push(&mut self, record: Record) -> bool {
        let again = self.last.is_some_and(|last| record.offset <= last);
        if again {
            let before = self.entries.partition_point(|it| it.record.offset < record.offset);
            let left = self.entries.drain(before..);
            self.bytes -= left.map(|entry| entry.bytes).sum::<usize>();
            self.settled = self.settled.filter(|settled| *settled <= record.offset);
        }
        self.last = Some(record.offset);
        let bytes = record.bytes();
        self.bytes += bytes;
        let begun_before = self.at_the_head > 0;
        self.at_the_head = self.at_the_head.saturating_sub(1);
        let aside = self.known.has(&record);
        let state = if aside { State::Settled } else { State::Ready };
        self.entries.push_back(Entry { record, bytes, state, tries: 0, begun_before, aside });
        self.let_go();
        again
    }

    /// How many records wait for their settlement.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What those keep of the memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The offset to commit, with what stands beside it: where nothing is settled from the beginning on, and something was put
    /// aside, the beginning.
    pub(crate) fn mark(&self) -> Option<(i64, String)> {
        let mut aside = Aside::default();
        self.entries.iter().filter(|it| it.aside).for_each(|it| aside.add(&it.record));
        let aside = aside.written();
        let begin = self.entries.front().filter(|_| !aside.is_empty());
        let offset = self.settled.or_else(|| begin.map(|it| it.record.offset))?;
        Some((offset, aside))
    }

    /// Hands out what may be, up to `max`. `token` is drawn for each.
    pub(crate) fn hand_out(
        &mut self,
        now: Instant,
        visibility: Duration,
        max: usize,
        mut token: impl FnMut() -> u64,
        out: &mut Vec<(u64, HandedOut)>,
    ) {
        let mut held: HashSet<KeyHash> = HashSet::new();
        for entry in &mut self.entries {
            if out.len() >= max {
                return;
            }
            entry.expire(now);
            let key = entry.record.key_hash();
            let free = match entry.state {
                State::Settled => continue,
                State::Ready => !held.contains(&key),
                State::Away { .. } | State::Later { .. } => false,
            };
            held.insert(key);
            if free {
                let token = token();
                entry.state = State::Away { token, until: now + visibility };
                let record = entry.record.clone();
                let (count, begun_before) = (entry.tries + 1, entry.begun_before);
                out.push((token, HandedOut { record, count, begun_before }));
            }
        }
    }

    /// When something may be handed out that may not be now, at the earliest.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let due = |entry: &Entry| match entry.state {
            State::Away { until, .. } | State::Later { until } => Some(until),
            State::Ready | State::Settled => None,
        };
        self.entries.iter().filter_map(due).min()
    }

    /// Whether something is handed out at this moment.
    pub(crate) fn is_away(&self, now: Instant) -> bool {
        let away = |entry: &Entry| matches!(entry.state, State::Away { until, .. } if until > now);
        self.entries.iter().any(away)
    }

    /// The record that was handed out under the token, while it is ours.
    pub(crate) fn find(&self, offset: i64, token: u64, now: Instant) -> Option<&Record> {
        let at = self.position(offset)?;
        let entry = &self.entries[at];
        entry.is_under(token, now).then_some(&entry.record)
    }

    /// It is done. Whether it was ours.
    pub(crate) fn settle(&mut self, offset: i64, token: u64, now: Instant) -> bool {
        let Some(entry) = self.under(offset, token, now) else { return false };
        entry.state = State::Settled;
        self.let_go();
        true
    }

    /// It was put aside as a dead letter. Whether it was ours.
    pub(crate) fn put_aside(&mut self, offset: i64, token: u64, now: Instant) -> bool {
        let Some(entry) = self.under(offset, token, now) else { return false };
        entry.aside = true;
        self.settle(offset, token, now)
    }

    /// What is settled and has nothing before it need not be kept.
    fn let_go(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.state == State::Settled) {
            let entry = self.entries.pop_front().expect("invariant: it was just looked at");
            self.settled = Some(entry.record.offset + 1);
            self.bytes -= entry.bytes;
        }
    }

    /// It comes again after the delay. Whether it was ours.
    pub(crate) fn give_back(
        &mut self,
        offset: i64,
        token: u64,
        now: Instant,
        delay: Duration,
        counted: bool,
    ) -> bool {
        let Some(entry) = self.under(offset, token, now) else { return false };
        entry.state = State::Later { until: now + delay };
        entry.tries += u32::from(counted);
        true
    }

    /// It stays ours. Whether it was.
    pub(crate) fn extend(&mut self, offset: i64, token: u64, now: Instant, by: Duration) -> bool {
        let Some(entry) = self.under(offset, token, now) else { return false };
        entry.state = State::Away { token, until: now + by };
        true
    }

    fn position(&self, offset: i64) -> Option<usize> {
        self.entries.binary_search_by_key(&offset, |entry| entry.record.offset).ok()
    }

    fn under(&mut self, offset: i64, token: u64, now: Instant) -> Option<&mut Entry> {
        let at = self.position(offset)?;
        self.entries.get_mut(at).filter(|entry| entry.is_under(token, now))
    }
}

impl Entry {
    fn is_under(&self, token: u64, now: Instant) -> bool {
        matches!(self.state, State::Away { token: own, until } if own == token && until > now)
    }

    fn expire(&mut self, now: Instant) {
        match self.state {
            State::Away { until, .. } if until <= now => {
                self.state = State::Ready;
                self.tries += 1;
            }
            State::Later { until } if until <= now => self.state = State::Ready,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
