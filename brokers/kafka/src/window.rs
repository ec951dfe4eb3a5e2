//! What was read of one partition and is not settled yet: a pure state machine.
//!
//! Invariant: no event of a key is handed out while one before it of its key is not settled, and what is said to
//! be settled has nothing unsettled before it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use postrider_core::KeyHash;
use tokio::time::Instant;

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
    pub(crate) fn new() -> Window {
        Window { entries: VecDeque::new(), settled: None, last: None, bytes: 0, at_the_head: HEAD }
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
        let state = State::Ready;
        self.entries.push_back(Entry { record, bytes, state, tries: 0, begun_before });
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

    /// The offset behind everything that is settled, if anything was.
    pub(crate) fn settled(&self) -> Option<i64> {
        self.settled
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

    /// It is done, or put aside. Whether it was ours.
    pub(crate) fn settle(&mut self, offset: i64, token: u64, now: Instant) -> bool {
        let Some(entry) = self.under(offset, token, now) else { return false };
        entry.state = State::Settled;
        while self.entries.front().is_some_and(|entry| entry.state == State::Settled) {
            let entry = self.entries.pop_front().expect("invariant: it was just looked at");
            self.settled = Some(entry.record.offset + 1);
            self.bytes -= entry.bytes;
        }
        true
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
mod tests {
    use std::sync::Arc;

    use super::*;
    use postrider_core::{Event, EventId, Marks};
    use std::collections::BTreeMap;

    const VISIBILITY: Duration = Duration::from_secs(30);

    fn record(offset: i64, key: u64) -> Record {
        let id = EventId::from_u128(u128::try_from(offset).unwrap());
        let event = Event::new(id, "order", &key.to_string(), "changed");
        let marks = Marks::default();
        Record {
            offset,
            event: Ok(Arc::new(event)),
            marks,
            key: None,
            value: None,
            is_cut: false,
            headers: None,
        }
    }

    /// F19: what a process that ended may have had at work is known as that, also when it comes again.
    #[test]
    fn the_head_of_a_partition_may_have_been_begun_before() {
        let (now, mut next) = (Instant::now(), 0);
        let mut window = Window::new();
        let last = i64::try_from(HEAD).unwrap() + 1;
        for offset in 0..=last {
            window.push(record(offset, 1 + offset.unsigned_abs()));
        }
        let mut begun_before = |now| {
            let mut out = Vec::new();
            let token = || {
                next += 1;
                next
            };
            window.hand_out(now, VISIBILITY, usize::MAX, token, &mut out);
            assert_eq!(out.len(), HEAD + 2);
            out.iter().filter(|(_, it)| it.begun_before).map(|(_, it)| it.record.offset).max()
        };
        assert_eq!(begun_before(now), Some(last - 2));
        assert_eq!(begun_before(now + VISIBILITY), Some(last - 2));
    }

    fn take(window: &mut Window, now: Instant, max: usize, next: &mut u64) -> Vec<(u64, i64, u32)> {
        let mut out = Vec::new();
        let token = || {
            *next += 1;
            *next
        };
        window.hand_out(now, VISIBILITY, max, token, &mut out);
        out.into_iter().map(|(token, it)| (token, it.record.offset, it.count)).collect()
    }

    /// INV-1: a log that was cut off behind what is not settled yet takes nothing of that away.
    #[test]
    fn what_lies_before_a_cut_stays() {
        let (mut window, now, mut next) = (Window::new(), Instant::now(), 0);
        (10..20).for_each(|offset| _ = window.push(record(offset, offset.unsigned_abs())));
        let out = take(&mut window, now, 20, &mut next);
        assert!(window.settle(10, out[0].0, now));
        assert!(window.push(record(15, 1)), "read again");
        assert_eq!((window.len(), window.settled()), (5, Some(11)));
        assert!(!window.settle(16, out[6].0, now), "it is gone");
        let again = take(&mut window, now, 20, &mut next);
        assert_eq!(again.iter().map(|it| it.1).collect::<Vec<_>>(), [15]);
        assert!(window.settle(15, again[0].0, now));
        assert_eq!(window.settled(), Some(11), "11 to 14 are not settled");
        (1..5).for_each(|at| assert!(window.settle(10 + at as i64, out[at].0, now)));
        assert_eq!(window.settled(), Some(16));
    }

    #[test]
    fn only_a_settled_beginning_is_settled() {
        let (mut window, now, mut next) = (Window::new(), Instant::now(), 0);
        for offset in 0..3 {
            window.push(record(offset, offset.unsigned_abs()));
        }
        let out = take(&mut window, now, 10, &mut next);
        assert_eq!(out.len(), 3);
        assert!(window.settle(1, out[1].0, now));
        assert_eq!(window.settled(), None);
        assert!(window.settle(0, out[0].0, now));
        assert_eq!(window.settled(), Some(2));
        assert!(!window.settle(0, out[0].0, now), "it is gone");
        assert!(window.give_back(2, out[2].0, now, VISIBILITY, true));
        assert_eq!(take(&mut window, now, 10, &mut next), []);
        assert_eq!(window.next_due(), Some(now + VISIBILITY));
        let later = now + VISIBILITY;
        assert_eq!(take(&mut window, later, 10, &mut next), [(next, 2, 2)]);
        assert!(!window.settle(2, out[2].0, later), "the first token is stale");
    }

    /// A partition that was made anew begins again, and old receipts settle nothing in it.
    #[test]
    fn offsets_that_go_back_begin_anew() {
        let (mut window, now, mut next) = (Window::new(), Instant::now(), 0);
        window.push(record(7, 1));
        let out = take(&mut window, now, 1, &mut next);
        assert!(window.push(record(0, 1)));
        assert!(!window.settle(7, out[0].0, now));
        assert_eq!(take(&mut window, now, 1, &mut next)[0].1, 0);
        assert_eq!(window.settled(), None);
    }

    /// R070: whatever happens, a key's events come one after the other, and the settled offset passes nothing.
    #[test]
    fn a_key_is_in_order_whatever_happens() {
        for seed in 1..200u64 {
            let mut state = seed;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let (mut window, mut now, mut next) = (Window::new(), Instant::now(), 0);
            let (mut read, mut away, mut done) = (0i64, Vec::new(), BTreeMap::new());
            for _ in 0..300 {
                now += Duration::from_secs(random(5));
                match random(5) {
                    0 => {
                        window.push(record(read, random(4)));
                        read += 1;
                    }
                    1 => {
                        let limit = usize::try_from(random(4)).unwrap();
                        for (token, offset, _) in take(&mut window, now, limit, &mut next) {
                            let event = window.find(offset, token, now).unwrap().event.clone();
                            let key = event.unwrap().key();
                            let last = done.get(&key).copied().unwrap_or(-1);
                            assert!(offset > last, "seed {seed}: {offset} after {last}");
                            away.push((token, offset, key));
                        }
                    }
                    choice if !away.is_empty() => {
                        let at = usize::try_from(random(away.len() as u64)).unwrap();
                        let (token, offset, key) = away.swap_remove(at);
                        if choice == 2 {
                            window.give_back(offset, token, now, Duration::from_secs(3), true);
                        } else if window.settle(offset, token, now) {
                            let last = done.insert(key, offset).unwrap_or(-1);
                            assert!(last < offset, "seed {seed}: settled in order");
                        }
                    }
                    _ => {}
                }
                let first = window.entries.front().map_or(read, |entry| entry.record.offset);
                assert!(window.settled().is_none_or(|settled| settled <= first));
            }
        }
    }
}
