//! The machine's clock, as the engine's shell reads it.
//!
//! Invariant: time passes while the machine is suspended, so a lease does not outlive its owner's
//! sleep.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use postrider_core::{BoxFuture, Clock, Tick, Timestamp};

/// `CLOCK_BOOTTIME` on Linux; elsewhere the standard library's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn tick(&self) -> Tick {
        Tick::default() + since_boot()
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        // waits: for whoever asked this clock to
        Box::pin(tokio::time::sleep(span))
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_else(|_| since_start())
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    since_start()
}

/// Time since the first look at the clock.
#[allow(dead_code, reason = "the fallback of one platform is the clock of the others")]
fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let first = BootClock.tick();
        assert!(first > Tick(0) && BootClock.tick() >= first);
    }
}
