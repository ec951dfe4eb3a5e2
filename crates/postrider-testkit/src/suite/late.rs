//! Cases that look at something while it lasts, on a clock that does not wait for them.
//!
//! A store on a machine that is busy, or stands still for a moment, may take longer for its answers than a short lease
//! or delay lasts. Then what was seen says nothing of the store, and the case is played once more, with longer spans.
//!
//! Invariant: what is wrong within its span fails the case at once, whatever the machine.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// As long as a machine six times slower needs: the spans of the last one are so many times those of the first.
const TIMES_MAX: u32 = 6;

/// What was to be seen within a span was looked at when it was over.
#[derive(Debug)]
pub(super) struct Late;

/// Something that lasts so long from now on.
pub(super) struct Span {
    began: Instant,
    lasts: Duration,
}

impl Span {
    /// Begins before the store is asked for it: it ends no earlier at the store than here.
    pub(super) fn begin(lasts: Duration) -> Span {
        Span { began: Instant::now(), lasts }
    }

    /// Insists on what holds as long as the span lasts, of something that was seen by now.
    ///
    /// # Panics
    /// If it does not hold, and the span is not over.
    #[track_caller]
    pub(super) fn insist(&self, holds: bool, seen: &dyn Debug) -> Result<(), Late> {
        if holds {
            return Ok(());
        }
        let took = self.began.elapsed();
        assert!(took >= self.lasts, "after {took:?} of {:?}: {seen:?}", self.lasts);
        Err(Late)
    }
}

/// Plays a case until it was in time. It is told how many times longer than usual its spans are to be, and begins with a
/// harness of its own.
///
/// # Panics
/// If it was late each time.
pub(super) async fn in_time(case: impl AsyncFn(u32) -> Result<(), Late>) {
    for times in 1..=TIMES_MAX {
        if case(times).await.is_ok() {
            return;
        }
    }
    panic!("each of {TIMES_MAX} times the answers took longer than what was looked at lasted");
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::{Span, in_time};
    use crate::suite::run;

    /// Whether a case passes that sees something wrong within such a span, and how often it was played.
    fn played(lasts: Duration) -> (bool, u32) {
        let played = AtomicU32::new(0);
        let case = in_time(async |times| {
            played.fetch_add(1, Ordering::Relaxed);
            Span::begin(lasts).insist(times == 3 && lasts.is_zero(), &times)
        });
        let passed = catch_unwind(AssertUnwindSafe(|| run("a case", case))).is_ok();
        (passed, played.load(Ordering::Relaxed))
    }

    #[test]
    fn what_is_wrong_in_time_fails_at_once() {
        assert_eq!(played(Duration::from_secs(3_600)), (false, 1));
    }

    #[test]
    fn what_was_seen_too_late_is_looked_at_again() {
        assert_eq!(played(Duration::ZERO), (true, 3));
    }

    #[test]
    fn a_case_that_is_late_each_time_fails() {
        let case = in_time(async |_| Span::begin(Duration::ZERO).insist(false, &"late"));
        assert!(catch_unwind(AssertUnwindSafe(|| run("a case", case))).is_err());
    }
}
