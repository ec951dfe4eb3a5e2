//! A process's clocks: its own monotonic one, which may run a little fast or slow, and a wall clock
//! that jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use postrider_core::{BoxFuture, Clock, Tick, Timestamp};

use crate::exec::Kernel;

/// 2026-01-01T00:00:00Z: where the wall clocks of every world begin.
const ORIGIN_MICROS: i64 = 1_767_225_600_000_000;

/// The clocks of one machine.
#[derive(Clone, Debug)]
pub struct ProcessClock {
    kernel: Arc<Kernel>,
    /// Where its monotonic clock stood when the world began.
    origin: u64,
    /// By how many millionths of its time it runs fast.
    drift_ppm: i64,
    /// By how much its wall clock is wrong, in microseconds.
    wrong_by: Arc<AtomicI64>,
}

impl ProcessClock {
    /// Clocks whose origin and speed are their own.
    pub fn new(kernel: Arc<Kernel>, origin: Duration, drift_ppm: i64) -> ProcessClock {
        let origin = u64::try_from(origin.as_nanos()).unwrap_or_default();
        ProcessClock { kernel, origin, drift_ppm, wrong_by: Arc::default() }
    }

    /// Sets the wall clock so much fast (or, below zero, slow).
    pub fn jump(&self, micros: i64) {
        self.wrong_by.store(micros, Ordering::Relaxed);
    }

    /// What this clock shows after so much of the world's time.
    fn stretched(&self, nanos: u64, ppm: i64) -> u64 {
        let more = i128::from(nanos) * i128::from(ppm) / 1_000_000;
        u64::try_from(i128::from(nanos) + more).unwrap_or(nanos)
    }
}

impl Clock for ProcessClock {
    fn tick(&self) -> Tick {
        Tick(self.origin + self.stretched(self.kernel.now().0, self.drift_ppm))
    }

    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.kernel.now().0 / 1_000).unwrap_or(i64::MAX);
        Timestamp::from_micros(ORIGIN_MICROS + micros + self.wrong_by.load(Ordering::Relaxed))
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        // Rounded up, so that by its own clock nobody wakes too early.
        let nanos = self.stretched(nanos, -self.drift_ppm).saturating_add(2);
        self.kernel.sleep(Duration::from_nanos(nanos))
    }
}
