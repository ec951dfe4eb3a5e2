//! The system's clocks, for the shell. The machine takes ticks as input and has no clock.

use std::time::Duration;

use postrider_core::{BoxFuture, Clock, Tick, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The machine's own clocks: `CLOCK_BOOTTIME` where there is one, so that a suspended machine ages
/// and its leases with it; the monotonic clock elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

impl Clock for SystemClock {
    fn tick(&self) -> Tick {
        let time = clock_gettime(MONOTONIC);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
        Tick(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        // waits: for whoever asked this clock to
        Box::pin(tokio::time::sleep(span))
    }
}
