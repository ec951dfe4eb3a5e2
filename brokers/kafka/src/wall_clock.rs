//! Steps of the wall clock back.
//!
//! The library's threads wait for moments of the wall clock (confluentinc/librdkafka issue 2145). Where that steps back,
//! those that wait at that moment go on waiting until it has caught up, an hour for a step of an hour, and the client
//! answers nobody. So whoever has a client looks here, and makes another one: its threads wait for moments of the clock as it
//! is now.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The smallest step that counts: a client that is late by less is late as behind a busy network.
const STEP_MIN: Duration = Duration::from_secs(5);

/// How often somebody who waits for long looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct WallClock {
    begun: Instant,
    /// How far the wall clock was ahead of the monotonic one, at most, in milliseconds; since the last step that was told.
    furthest: AtomicI64,
}

impl WallClock {
    /// Watches from now on.
    pub(crate) fn new() -> WallClock {
        let clock = WallClock { begun: Instant::now(), furthest: AtomicI64::new(i64::MIN) };
        clock.furthest.store(clock.ahead(), Ordering::Release);
        clock
    }

    fn ahead(&self) -> i64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        millis(wall).saturating_sub(millis(self.begun.elapsed()))
    }

    /// By how much it has stepped back, which is told once. What is suspended meanwhile sees a step forward, which does no
    /// harm.
    pub(crate) fn stepped_back(&self) -> Option<Duration> {
        self.saw(self.ahead())
    }

    fn saw(&self, ahead: i64) -> Option<Duration> {
        let furthest = self.furthest.fetch_max(ahead, Ordering::AcqRel);
        let back = u64::try_from(furthest.saturating_sub(ahead)).unwrap_or_default();
        let back = Some(Duration::from_millis(back)).filter(|back| *back >= STEP_MIN)?;
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let first = self.furthest.compare_exchange(furthest, ahead, success, failure);
        first.is_ok().then_some(back)
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F12: a step back is told once, and what passes, drifts, or steps forward is none.
    #[test]
    fn a_step_back_is_told_once() {
        let clock = WallClock::new();
        assert_eq!(clock.stepped_back(), None);
        let now = clock.ahead();
        assert_eq!(clock.saw(now - 4_000), None, "that is not worth another client");
        assert_eq!(clock.saw(now + 600_000), None, "forward");
        let hour = Duration::from_secs(3_600);
        assert_eq!(clock.saw(now + 600_000 - millis(hour)), Some(hour));
        assert_eq!(clock.saw(now + 600_000 - millis(hour)), None, "it was told");
        assert_eq!(clock.saw(now), None, "forward again");
        assert_eq!(clock.saw(now - millis(hour)), Some(hour));
    }
}
