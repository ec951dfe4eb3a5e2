//! Turns: who commits, and who gives partitions up, one after the other.
//!
//! Invariant: nobody waits for a commit without an end. The library tries a request again for as long as its server does not
//! let it in, and a call that waits for that returns when it does; the thread that reads would hear of nothing meanwhile,
//! not even of why.
//!
//! What is given up beside a commit that hangs is safe: the request names the member and its generation, which its
//! coordinator refuses once the partition is somebody else's.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A round is under way.
    working: bool,
    /// Rounds that have ended.
    ended: u64,
    /// Somebody waits for one.
    wanted: bool,
}

impl Turn {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the condition holds, and returns whether it still does.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        patience: Duration,
        holds: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        let until = Instant::now() + patience;
        while holds(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (state, true);
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        (state, false)
    }

    /// Waits for so long, or until somebody waits for a round.
    pub(crate) fn rest(&self, span: Duration) {
        drop(self.wait(self.lock(), span, |state| !state.wanted));
    }

    /// A round: nothing is given up meanwhile, unless it takes too long.
    pub(crate) fn round<T>(&self, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.lock();
            (state.working, state.wanted) = (true, false);
        }
        let done = work();
        let mut state = self.lock();
        state.working = false;
        state.ended += 1;
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Waits for a round that begins from now on, so long at most, and then gives up, while no other begins. Whether there
    /// was one.
    pub(crate) fn after_a_round(&self, patience: Duration, give_up: impl FnOnce()) -> bool {
        let mut state = self.lock();
        // The one that is under way may not know of everything.
        let wanted = state.ended + 1 + u64::from(state.working);
        state.wanted = true;
        self.changed.notify_all();
        let (state, late) = self.wait(state, patience, |state| state.ended < wanted);
        give_up();
        drop(state);
        !late
    }

    /// Waits for the round that is under way, so long at most, and then gives up, while no other begins.
    pub(crate) fn alone(&self, patience: Duration, give_up: impl FnOnce()) {
        let (state, _) = self.wait(self.lock(), patience, |state| state.working);
        give_up();
        drop(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// What is given up waits for the round that is under way; and for another one, where that may not know of everything.
    #[test]
    fn what_is_given_up_waits_for_rounds() {
        let turn = Turn::default();
        let (begun, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let rounds = &Mutex::new(0);
        thread::scope(|scope| {
            let turn = &turn;
            scope.spawn(move || {
                for round in 0..3 {
                    if round > 0 {
                        turn.rest(PATIENCE);
                    }
                    turn.round(|| {
                        begun.send(()).unwrap();
                        goes_on.recv().unwrap();
                        *rounds.lock().unwrap() += 1;
                    });
                }
            });
            begins.recv().unwrap();
            let given_up = scope.spawn(|| {
                let mut seen = 0;
                assert!(turn.after_a_round(PATIENCE, || seen = *rounds.lock().unwrap()));
                seen
            });
            go_on.send(()).unwrap();
            begins.recv().unwrap();
            go_on.send(()).unwrap();
            let seen = given_up.join().unwrap();
            assert!((2..=3).contains(&seen), "the first one was under way already: {seen}");
            // The last one begins when somebody waits for it, and rests before.
            let last = scope.spawn(|| turn.after_a_round(PATIENCE, || {}));
            begins.recv().unwrap();
            go_on.send(()).unwrap();
            assert!(last.join().unwrap());
        });
    }

    /// A round that does not end holds up nobody for long.
    #[test]
    fn a_round_that_hangs_is_not_waited_for() {
        let turn = Turn::default();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        thread::scope(|scope| {
            let turn = &turn;
            scope.spawn(move || {
                turn.round(|| {
                    begun.send(()).unwrap();
                    goes_on.recv().unwrap();
                });
            });
            begins.recv().unwrap();
            let (mut alone, mut after) = (false, false);
            turn.alone(Duration::from_millis(20), || alone = true);
            assert!(!turn.after_a_round(Duration::from_millis(20), || after = true));
            assert!(alone && after);
            go_on.send(()).unwrap();
        });
    }
}
