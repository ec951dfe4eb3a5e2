//! The lane: one key's deliveries, in the order in which this process first saw their messages.
//!
//! Invariants: at most one delivery is in work; nothing waits here behind a message that is away.
//! A returned or failed message keeps its place as an *away* entry, so that one that comes again
//! sooner cannot overtake it.

use std::collections::VecDeque;

use postrider_core::{Tick, planted};

use crate::command::DeliveryNo;

/// One key's deliveries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    entries: VecDeque<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    message: u64,
    /// Counted failures seen by this process, for brokers that do not count.
    failures: u32,
    /// Out of its key's order on purpose: never holds the others.
    late: bool,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Here, waiting for a handler.
    Waiting(DeliveryNo),
    /// With a handler.
    InWork(DeliveryNo),
    /// Given back: expected at `until`.
    Away { until: Tick },
}

/// What a delivery finds when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It may wait here.
    Stays,
    /// A message before it is away, until then.
    Behind { until: Tick },
    /// There are too many of its key here.
    Full,
}

/// How a delivery leaves before it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    pub(crate) until: Tick,
    pub(crate) failed: bool,
    /// Whether there is room to remember it.
    pub(crate) remembered: bool,
}

impl Lane {
    /// Takes a delivery in at its message's place.
    pub(crate) fn arrive(
        &mut self,
        message: u64,
        no: DeliveryNo,
        late: bool,
        waiting_max: usize,
    ) -> Arrival {
        let known = self.entries.iter().position(|entry| entry.is_away(message));
        let index = match known {
            Some(index) => {
                self.entries[index].place = Place::Waiting(no);
                index
            }
            None => {
                self.entries.push_back(Entry {
                    message,
                    failures: 0,
                    late,
                    place: Place::Waiting(no),
                });
                self.entries.len() - 1
            }
        };
        let ahead = self.entries.iter().take(index);
        if let Some(until) = ahead.filter_map(Entry::blocks_until).max() {
            return Arrival::Behind { until };
        }
        if self.waiting() > waiting_max {
            return Arrival::Full;
        }
        Arrival::Stays
    }

    /// How many wait here for a handler.
    fn waiting(&self) -> usize {
        let waits = |entry: &&Entry| matches!(entry.place, Place::Waiting(_));
        self.entries.iter().filter(waits).count()
    }

    /// The delivery that may start now.
    pub(crate) fn startable(&self) -> Option<DeliveryNo> {
        let in_work = |entry: &Entry| matches!(entry.place, Place::InWork(_));
        // The bug: what is in work does not hold what comes after it.
        let held = !planted!(KeyConcurrently);
        if held && self.entries.iter().any(in_work) {
            return None;
        }
        for entry in &self.entries {
            match entry.place {
                Place::Waiting(no) => return Some(no),
                Place::Away { .. } if entry.late => {}
                Place::InWork(_) if !held => {}
                Place::Away { .. } | Place::InWork(_) => return None,
            }
        }
        None
    }

    /// Marks a delivery as in work.
    pub(crate) fn start(&mut self, no: DeliveryNo) {
        if let Some(index) = self.position(no) {
            self.entries[index].place = Place::InWork(no);
        }
    }

    /// Has a delivery that was in work wait once more, at its place.
    pub(crate) fn wait_again(&mut self, no: DeliveryNo) {
        if let Some(index) = self.position(no) {
            self.entries[index].place = Place::Waiting(no);
        }
    }

    /// How often this process saw the message fail.
    pub(crate) fn failures(&self, no: DeliveryNo) -> u32 {
        self.position(no).map_or(0, |index| self.entries[index].failures)
    }

    /// Takes a delivery out for good: done, or dead. Another delivery of the same message that is
    /// away holds nobody any more.
    pub(crate) fn finish(&mut self, no: DeliveryNo) {
        if let Some(entry) = self.position(no).and_then(|index| self.entries.remove(index)) {
            let settled = entry.message;
            self.entries.retain(|entry| !entry.is_away(settled));
        }
    }

    /// Sends a delivery away, and returns those behind it, which must go as well so that they do
    /// not overtake it.
    pub(crate) fn leave(&mut self, no: DeliveryNo, leave: Leave) -> Vec<DeliveryNo> {
        let Some(index) = self.position(no) else {
            return Vec::new();
        };
        let entry = &mut self.entries[index];
        entry.failures += u32::from(leave.failed);
        entry.place = Place::Away { until: leave.until };
        let (message, late) = (entry.message, entry.late);
        // One away entry for each message, the first: what brings it back must leave none behind.
        let first = self.entries.iter().position(|entry| entry.is_away(message));
        let first = first.unwrap_or(index);
        let mut place = 0;
        self.entries.retain(|entry| {
            let kept = !entry.is_away(message) || (place == first && leave.remembered);
            place += 1;
            kept
        });
        if late {
            return Vec::new();
        }
        let behind = self.entries.iter().skip(first);
        behind
            .filter_map(|entry| match entry.place {
                Place::Waiting(no) => Some(no),
                Place::InWork(_) | Place::Away { .. } => None,
            })
            .collect()
    }

    /// Forgets a message that did not come again in time: its visibility was lost to another
    /// process, or the broker gave up.
    pub(crate) fn forget(&mut self, message: u64) {
        self.entries.retain(|entry| !entry.is_away(message));
    }

    /// How many are away.
    #[cfg(test)]
    fn away(&self) -> usize {
        let away = |entry: &&Entry| matches!(entry.place, Place::Away { .. });
        self.entries.iter().filter(away).count()
    }

    /// Whether nothing of its key is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn position(&self, no: DeliveryNo) -> Option<usize> {
        let holds = |entry: &Entry| match entry.place {
            Place::Waiting(held) | Place::InWork(held) => held == no,
            Place::Away { .. } => false,
        };
        self.entries.iter().position(holds)
    }
}

impl Entry {
    fn is_away(&self, message: u64) -> bool {
        self.message == message && matches!(self.place, Place::Away { .. })
    }

    fn blocks_until(&self) -> Option<Tick> {
        match self.place {
            Place::Away { until } if !self.late => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAVE: Leave = Leave { until: Tick(100), failed: true, remembered: true };

    fn lane(messages: u64) -> Lane {
        let mut lane = Lane::default();
        for message in 1..=messages {
            assert_eq!(lane.arrive(message, DeliveryNo(message), false, 16), Arrival::Stays);
        }
        lane
    }

    #[test]
    fn a_failed_message_takes_those_behind_it_along_and_comes_first_again() {
        let mut lane = lane(3);
        lane.start(DeliveryNo(1));
        assert_eq!(lane.startable(), None, "one in work");
        let behind = lane.leave(DeliveryNo(1), LEAVE);
        assert_eq!(behind, [DeliveryNo(2), DeliveryNo(3)]);
        for no in behind {
            lane.leave(no, Leave { failed: false, ..LEAVE });
        }
        let early = lane.arrive(3, DeliveryNo(13), false, 16);
        assert_eq!(early, Arrival::Behind { until: Tick(100) });
        lane.leave(DeliveryNo(13), LEAVE);
        assert_eq!(lane.arrive(1, DeliveryNo(11), false, 16), Arrival::Stays);
        assert_eq!(lane.failures(DeliveryNo(11)), 1);
        assert_eq!(lane.arrive(2, DeliveryNo(12), false, 16), Arrival::Stays);
        assert_eq!(lane.startable(), Some(DeliveryNo(11)));
        lane.finish(DeliveryNo(11));
        assert_eq!(lane.startable(), Some(DeliveryNo(12)));
    }

    #[test]
    fn a_late_message_holds_nobody() {
        let mut lane = Lane::default();
        lane.arrive(1, DeliveryNo(1), true, 16);
        lane.arrive(2, DeliveryNo(2), false, 16);
        lane.start(DeliveryNo(1));
        assert!(lane.leave(DeliveryNo(1), LEAVE).is_empty());
        assert_eq!(lane.startable(), Some(DeliveryNo(2)));
    }

    #[test]
    fn a_message_that_does_not_come_again_is_forgotten_and_its_key_flows() {
        let mut lane = lane(1);
        lane.leave(DeliveryNo(1), LEAVE);
        let behind = lane.arrive(2, DeliveryNo(2), false, 16);
        assert_eq!(behind, Arrival::Behind { until: Tick(100) }, "not yet");
        lane.leave(DeliveryNo(2), LEAVE);
        lane.forget(1);
        assert_eq!(lane.arrive(2, DeliveryNo(12), false, 16), Arrival::Stays);
    }

    #[test]
    fn a_second_delivery_of_a_message_in_work_waits_behind_it_and_leaves_one_entry() {
        let mut lane = lane(1);
        lane.start(DeliveryNo(1));
        lane.arrive(1, DeliveryNo(2), false, 16);
        let behind = lane.leave(DeliveryNo(1), LEAVE);
        assert_eq!(behind, [DeliveryNo(2)]);
        lane.leave(DeliveryNo(2), LEAVE);
        assert_eq!(lane.away(), 1);
    }

    #[test]
    fn a_hot_key_is_full_at_its_limit() {
        let mut lane = lane(16);
        assert_eq!(lane.arrive(17, DeliveryNo(17), false, 16), Arrival::Full);
    }
}
