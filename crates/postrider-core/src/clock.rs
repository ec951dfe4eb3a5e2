//! Time as the engines see it: who owns is decided by the database's clock, when to stop by the
//! owner's monotonic clock, and the wall clock decides nothing.

use std::future::poll_fn;
use std::ops::{Add, Sub};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::{BoxFuture, Timestamp};

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
    /// Resolves when so much of this clock's time has passed. Waiting goes through the clock, so that
    /// a simulator's time can stand where the machine's does.
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()>;
}

/// What a future yields within a span of a clock's time; `None` if that is over first. A future that
/// is to go on then is passed by reference.
pub async fn within<F: Future>(clock: &dyn Clock, span: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut sleep) = (pin!(future), clock.sleep(span));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}
