//! What the endpoint took, and when each event that failed was tried before: what tells a poison
//! event from an outage.
//!
//! Invariant: bounded; what is forgotten is judged as if it were tried for the first time, which
//! counts less, never more.

use std::collections::{BTreeMap, HashMap};

use postrider_core::EventId;

/// How many failed events are remembered. An endpoint that fails more of them at a time fails
/// altogether, and then none of them counts. About 1 MiB.
const EVENTS_MAX: usize = 10_000;

/// A count of the events that the endpoint took, as a clock.
pub(crate) type Taken = u64;

/// One event's failures so far.
#[derive(Clone, Copy, Debug)]
struct Before {
    sent: Taken,
    failures: u32,
    age: u64,
}

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    taken: Taken,
    before: HashMap<EventId, Before>,
    /// By age, oldest first.
    order: BTreeMap<u64, EventId>,
    ages: u64,
}

impl Tries {
    /// How many the endpoint took until now: to be kept when an event is sent.
    pub(crate) fn taken(&self) -> Taken {
        self.taken
    }

    /// Whether another event was taken since this one was tried before, or, at its first try, since
    /// it was sent.
    pub(crate) fn took_another(&self, id: EventId, sent: Taken) -> bool {
        let since = self.before.get(&id).map_or(sent, |before| before.sent);
        self.taken > since
    }

    /// Whether it failed before, without a success since.
    pub(crate) fn failed_before(&self, id: EventId) -> bool {
        self.before.contains_key(&id)
    }

    /// The endpoint took it.
    pub(crate) fn took(&mut self, id: EventId) {
        self.taken += 1;
        self.forget(id);
    }

    /// It failed, and will be tried again. Returns how often in a row.
    pub(crate) fn failed(&mut self, id: EventId, sent: Taken) -> u32 {
        let failures = self.before.get(&id).map_or(0, |before| before.failures).saturating_add(1);
        self.forget(id);
        if self.before.len() >= EVENTS_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.before.remove(&oldest);
        }
        self.ages += 1;
        self.before.insert(id, Before { sent, failures, age: self.ages });
        self.order.insert(self.ages, id);
        failures
    }

    /// It will not be tried again here.
    pub(crate) fn forget(&mut self, id: EventId) {
        if let Some(before) = self.before.remove(&id) {
            self.order.remove(&before.age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POISON: EventId = EventId::from_u128(1);
    const GOOD: EventId = EventId::from_u128(2);

    #[test]
    fn a_failure_is_the_events_own_once_another_was_taken_since_the_try_before() {
        let mut tries = Tries::default();
        let first = tries.taken();
        assert!(!tries.took_another(POISON, first), "nothing else was taken");
        tries.failed(POISON, first);
        tries.took(GOOD);
        let second = tries.taken();
        assert!(tries.took_another(POISON, second), "since the try before");
        tries.failed(POISON, second);
        assert!(!tries.took_another(POISON, tries.taken()), "none since the second try");
    }

    #[test]
    fn at_a_first_try_what_is_taken_meanwhile_counts() {
        let mut tries = Tries::default();
        let sent = tries.taken();
        tries.took(GOOD);
        assert!(tries.took_another(POISON, sent));
        assert!(!tries.took_another(POISON, tries.taken()), "taken before it was sent");
    }

    #[test]
    fn the_memory_is_bounded_and_loses_the_oldest() {
        let mut tries = Tries::default();
        for id in 0..=EVENTS_MAX as u128 {
            tries.failed(EventId::from_u128(id), 0);
        }
        assert_eq!((tries.before.len(), tries.order.len()), (EVENTS_MAX, EVENTS_MAX));
        assert!(!tries.before.contains_key(&EventId::from_u128(0)));
        assert_eq!(tries.failed(POISON, 0), 2, "in a row");
        tries.took(POISON);
        assert_eq!(tries.failed(POISON, 0), 1, "from the beginning");
    }
}
