//! Steps of the wall clock back.
//!
//! The library's threads wait for moments of the wall clock (confluentinc/librdkafka issue 2145). Where that steps back,
//! those that wait at that moment go on waiting until it has caught up, an hour for a step of an hour, and the client
//! answers nobody. So whoever has a client looks here, and makes another one: its threads wait for moments of the clock as it
//! is now.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::notice::{Notice, Notices};

/// The smallest step that counts: a client that is late by less is late as behind a busy network.
const STEP_MIN: Duration = Duration::from_secs(5);

/// How often somebody who waits for long looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct WallClock {
    begun: Instant,
    /// How far the wall clock was ahead of the monotonic one, at most, in milliseconds; since the last step.
    furthest: AtomicI64,
    /// The step, in milliseconds, after which nobody has made another client yet; 0 if there was none.
    to_follow: AtomicU64,
}

impl WallClock {
    /// Watches from now on.
    pub(crate) fn new() -> WallClock {
        let (begun, to_follow) = (Instant::now(), AtomicU64::new(0));
        let clock = WallClock { begun, furthest: AtomicI64::new(i64::MIN), to_follow };
        clock.furthest.store(clock.ahead(), Ordering::Release);
        clock
    }

    fn ahead(&self) -> i64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        millis(wall).saturating_sub(millis(self.begun.elapsed()))
    }

    /// By how much it has stepped back, until that is [followed](Self::followed). What is suspended meanwhile sees a step
    /// forward, which does no harm.
    pub(crate) fn to_follow(&self) -> Option<Duration> {
        self.saw(self.ahead())
    }

    fn saw(&self, ahead: i64) -> Option<Duration> {
        let furthest = self.furthest.fetch_max(ahead, Ordering::AcqRel);
        let back = u64::try_from(furthest.saturating_sub(ahead)).unwrap_or_default();
        if Duration::from_millis(back) >= STEP_MIN {
            self.to_follow.fetch_max(back, Ordering::AcqRel);
            // Where somebody else is first, that one has said so.
            let _ = self.furthest.compare_exchange(
                furthest,
                ahead,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        let back = self.to_follow.load(Ordering::Acquire);
        (back > 0).then(|| Duration::from_millis(back))
    }

    /// There is another client, made after that step, which is told once.
    pub(crate) fn followed(&self, by: Duration, notices: &Notices) {
        let back = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        if self.to_follow.compare_exchange(back, 0, success, failure).is_ok() {
            notices.tell(&Notice::ClockSteppedBack { by });
        }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// F12: a step back is told until it is followed, and what passes, drifts, or steps forward is none.
    #[test]
    fn a_step_back_is_told_until_it_is_followed() {
        let clock = WallClock::new();
        assert_eq!(clock.to_follow(), None);
        let now = clock.ahead();
        assert_eq!(clock.saw(now - 4_000), None, "that is not worth another client");
        assert_eq!(clock.saw(now + 600_000), None, "forward");
        let hour = Duration::from_secs(3_600);
        let back = now + 600_000 - millis(hour);
        assert_eq!(clock.saw(back), Some(hour));
        assert_eq!(clock.saw(back), Some(hour), "nobody has followed");
        assert_eq!(clock.saw(back - 2 * millis(hour)), Some(2 * hour), "a second one meanwhile");
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let notices = Notices::to(move |notice| heard.lock().unwrap().push(notice.clone()));
        clock.followed(hour, &notices);
        assert_eq!(clock.saw(back - 2 * millis(hour)), Some(2 * hour), "that was the first");
        clock.followed(2 * hour, &notices);
        clock.followed(2 * hour, &notices);
        assert_eq!(*told.lock().unwrap(), [Notice::ClockSteppedBack { by: 2 * hour }]);
        assert_eq!(clock.saw(back - 2 * millis(hour)), None);
        assert_eq!(clock.saw(now), None, "forward again");
        assert_eq!(clock.saw(now - millis(hour)), Some(hour));
    }
}
