//! What a broker promises about a delivery for a time, judged by a clock of its own.
//!
//! Invariant: a broken promise is excused by nothing but real time that went past it, and never three times in a row.

use std::time::{Duration, Instant};

use super::BrokerHarness;

/// How often a case is played, where the machine stood still for longer than a delivery was its own.
const PLAYS_MAX: u32 = 3;

/// Real time went past what was promised, so that the case says nothing.
pub(super) struct TooLate(String);

impl TooLate {
    pub(super) fn by(words: String) -> TooLate {
        TooLate(words)
    }
}

/// That nobody else is given a delivery for a time.
pub(super) struct Promise {
    /// Before the broker was asked: the time that it means began later.
    asked: Instant,
    span: Duration,
    is_virtual: bool,
}

impl Promise {
    /// A promise that the broker is about to be asked for.
    pub(super) fn asked<H: BrokerHarness>(span: Duration) -> Promise {
        Promise { asked: Instant::now(), span, is_virtual: H::has_virtual_clock() }
    }

    /// Whether real time went past it. A virtual clock's never is: it stands still meanwhile.
    pub(super) fn is_over(&self) -> bool {
        !self.is_virtual && self.asked.elapsed() >= self.span
    }

    /// Insists on an outcome, or says that the machine was too slow for it.
    pub(super) fn insist<T, E: std::fmt::Debug>(
        &self,
        outcome: Result<T, E>,
        what: &str,
    ) -> Result<T, TooLate> {
        outcome.map_err(|error| {
            assert!(self.is_over(), "{what}: {error:?}");
            TooLate(format!("{what}: {error:?}"))
        })
    }
}

/// Plays a case, and again if the machine was too slow for it.
pub(super) async fn play(case: impl AsyncFn() -> Result<(), TooLate>) {
    for played in 1.. {
        match case().await {
            Ok(()) => return,
            Err(TooLate(words)) => assert!(played < PLAYS_MAX, "{played} times in a row: {words}"),
        }
    }
}
