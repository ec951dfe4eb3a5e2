//! The leases that this process has seen, and since when on its own monotonic clock.
//!
//! Invariant: a lease counts as run out only if the same sign of life was seen for its whole duration. The
//! time is counted from when it was seen, which is after it was written, so nobody is early.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::{InboxKey, Tick};

/// What was seen, bounded.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Mutex<HashMap<InboxKey, Seen>>,
    max: usize,
}

#[derive(Debug)]
struct Seen {
    beat: String,
    since: Tick,
    duration: Duration,
}

impl Watch {
    pub(crate) fn new(max: usize) -> Watch {
        Watch { seen: Mutex::default(), max }
    }

    /// The sign of life of a lease that has run out under our eyes.
    pub(crate) fn is_out(&self, key: &InboxKey, now: Tick) -> Option<String> {
        let seen = self.lock();
        let seen = seen.get(key).filter(|seen| now.since(seen.since) >= seen.duration)?;
        Some(seen.beat.clone())
    }

    /// Notes a sign of life; how long the lease still stands at most.
    pub(crate) fn saw(
        &self,
        key: &InboxKey,
        beat: &str,
        duration: Duration,
        now: Tick,
    ) -> Duration {
        let mut seen = self.lock();
        if let Some(known) = seen.get_mut(key) {
            if known.beat != beat {
                *known = Seen { beat: beat.to_owned(), since: now, duration };
            }
            return known.duration.saturating_sub(now.since(known.since));
        }
        if seen.len() >= self.max {
            // What ran out and was not asked for again is somebody else's by now.
            seen.retain(|_, seen| now.since(seen.since) < seen.duration);
        }
        if seen.len() < self.max {
            seen.insert(key.clone(), Seen { beat: beat.to_owned(), since: now, duration });
        }
        duration
    }

    /// There is no lease any more.
    pub(crate) fn forget(&self, key: &InboxKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InboxKey, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Event, EventId, HandlerName};

    const LEASE: Duration = Duration::from_secs(10);

    fn key(n: u128) -> InboxKey {
        let mut event = Event::new(EventId::from_u128(n), "order", "42", "order.placed");
        event.source = "/shop".into();
        InboxKey::of(&event, &HandlerName::new("billing").unwrap()).unwrap()
    }

    fn at(seconds: u64) -> Tick {
        Tick::default() + Duration::from_secs(seconds)
    }

    /// R115: a lease is over when the same sign of life stood for its whole duration, and a new one begins
    /// anew.
    #[test]
    fn a_lease_runs_out_only_under_our_eyes() {
        let watch = Watch::new(10);
        assert_eq!(watch.is_out(&key(1), at(1_000)), None, "never seen");
        assert_eq!(watch.saw(&key(1), "a", LEASE, at(0)), LEASE);
        assert_eq!(watch.saw(&key(1), "a", LEASE, at(4)), Duration::from_secs(6));
        assert_eq!(watch.is_out(&key(1), at(9)), None);
        assert_eq!(watch.saw(&key(1), "b", LEASE, at(9)), LEASE, "a heartbeat");
        assert_eq!(watch.is_out(&key(1), at(18)), None);
        assert_eq!(watch.is_out(&key(1), at(19)).as_deref(), Some("b"));
        watch.forget(&key(1));
        assert_eq!(watch.is_out(&key(1), at(19)), None);
    }

    /// INV-6: what is beyond the bound is watched later, and what ran out makes room.
    #[test]
    fn the_memory_is_bounded() {
        let watch = Watch::new(2);
        for n in 1..=3 {
            watch.saw(&key(n), "a", LEASE, at(0));
        }
        assert_eq!(watch.lock().len(), 2);
        assert_eq!(watch.is_out(&key(3), at(100)), None, "there was no room");
        watch.saw(&key(3), "a", LEASE, at(100));
        assert_eq!(watch.is_out(&key(3), at(110)).as_deref(), Some("a"));
        assert!(watch.lock().len() <= 2);
    }
}
