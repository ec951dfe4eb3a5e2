//! Time as the engines see it: who owns is decided by the database's clock, when to stop by the
//! owner's monotonic clock, and the wall clock decides nothing.

use std::ops::{Add, Sub};
use std::time::Duration;

use crate::Timestamp;

/// A point on the owner's monotonic clock, in nanoseconds since an arbitrary origin.
///
/// On Linux the origin is boot and the clock is `CLOCK_BOOTTIME`, so that a suspended machine ages
/// as well: a lease does not outlive the sleep of its owner. Ticks of two processes must never be
/// compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;
    fn add(self, span: Duration) -> Tick {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Tick(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Tick {
    type Output = Tick;
    fn sub(self, span: Duration) -> Tick {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Tick(self.0.saturating_sub(nanos))
    }
}

/// Where an engine's shell gets its time from. Engines themselves take ticks as input.
pub trait Clock: Send + Sync {
    /// The monotonic clock. Never goes back; includes the time a machine was suspended.
    fn tick(&self) -> Tick;
    /// The wall clock, for what people read. May jump either way, so nothing is decided by it.
    fn now(&self) -> Timestamp;
}
