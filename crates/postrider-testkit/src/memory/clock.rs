//! The clock of the memory store and broker: it stands still until the test advances it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{BoxFuture, Clock, Tick, Timestamp};
use tokio::sync::watch;

/// 2026-01-01T00:00:00Z: every run of a test reads the same time.
const ORIGIN_MICROS: i64 = 1_767_225_600_000_000;

/// A virtual clock. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct MemoryClock {
    advanced: Arc<watch::Sender<Duration>>,
    real: Option<Instant>,
}

impl Default for MemoryClock {
    fn default() -> MemoryClock {
        MemoryClock::new()
    }
}

impl MemoryClock {
    /// A clock that stands at 2026-01-01T00:00:00Z.
    pub fn new() -> MemoryClock {
        MemoryClock { advanced: Arc::new(watch::Sender::new(Duration::ZERO)), real: None }
    }

    /// A clock that runs with the machine's, and can be advanced beyond it: for tests of a shell
    /// that waits in real time.
    pub fn running() -> MemoryClock {
        MemoryClock { real: Some(Instant::now()), ..MemoryClock::new() }
    }

    /// Lets time pass. Whoever waits for the clock looks again.
    pub fn advance(&self, span: Duration) {
        // Nobody is told where nobody waits: a simulation advances its clock millions of times.
        let heard = self.advanced.receiver_count() > 0;
        self.advanced.send_if_modified(|elapsed| {
            *elapsed += span;
            heard
        });
    }

    /// Steps the clock of a database back, as a time server may; not beyond where it began. A
    /// relay's own ticks never go back, so this is no clock for a relay afterwards.
    pub fn step_back(&self, span: Duration) {
        self.advanced.send_modify(|elapsed| *elapsed = elapsed.saturating_sub(span));
    }

    /// The time since the clock was made.
    pub fn elapsed(&self) -> Duration {
        let real = self.real.map(|start| start.elapsed()).unwrap_or_default();
        *self.advanced.borrow() + real
    }

    /// Notices every advance after this call.
    pub(crate) fn watch(&self) -> watch::Receiver<Duration> {
        self.advanced.subscribe()
    }

    /// Whether time passes by itself.
    pub(crate) fn runs(&self) -> bool {
        self.real.is_some()
    }
}

impl Clock for MemoryClock {
    fn tick(&self) -> Tick {
        Tick::default() + self.elapsed()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(ORIGIN_MICROS).plus(self.elapsed())
    }

    /// Resolves when the test has advanced the clock far enough.
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        let (clock, until) = (self.clone(), self.elapsed() + span);
        Box::pin(async move {
            let mut advanced = clock.watch();
            while clock.elapsed() < until {
                let left = until.saturating_sub(clock.elapsed());
                if clock.runs() {
                    tokio::select! {
                        _ = advanced.changed() => {}
                        // waits: for time that passes by itself
                        () = tokio::time::sleep(left) => {}
                    }
                } else if advanced.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}
