//! Between those who wait for a commit and the thread that watches for one: nobody holds a lock while
//! the other waits.
//!
//! Invariants: who waits is counted before the bell rings, so that the thread sleeps for good only
//! while nobody waits; an end is said before it rings, so that the thread hears it; and what was told
//! to one who waited is never more than had been seen, so that no edge is lost.

#[cfg(not(test))]
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

// The model below tries every order in which threads may meet here.
#[cfg(test)]
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What the thread sleeps on. A ring ends its sleep, or its next one.
pub(crate) trait Bell {
    fn ring(&self);
    fn sleep_until_rung(&self);
}

/// Who waits, up to what they were told, and whether it is over.
pub(crate) struct Turnstile<B> {
    pub(crate) bell: B,
    /// Up to which growth somebody was woken.
    told: AtomicU64,
    waiters: AtomicUsize,
    closed: AtomicBool,
}

/// One who waits, for as long as this lives, however it ends.
pub(crate) struct Entered<'a, B> {
    turnstile: &'a Turnstile<B>,
    told: u64,
}

/// What the thread finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Somebody waits, and the thread need not have slept for that.
    Waiting,
    /// Somebody waits, after nobody did for a while.
    AfterSleep,
    /// It is over.
    Closed,
}

impl<B: Bell> Turnstile<B> {
    pub(crate) fn new(bell: B) -> Turnstile<B> {
        Turnstile {
            bell,
            told: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Begins to wait.
    pub(crate) fn enter(&self) -> Entered<'_, B> {
        // Before anything can be seen for this one: what is seen from here on is news.
        let told = self.told.load(Ordering::Acquire);
        self.waiters.fetch_add(1, Ordering::AcqRel);
        self.bell.ring();
        Entered { turnstile: self, told }
    }

    /// Returns when somebody waits, or it is over. Called by the thread alone.
    pub(crate) fn somebody(&self) -> Found {
        let mut found = Found::Waiting;
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Found::Closed;
            }
            if self.waiters.load(Ordering::Acquire) > 0 {
                return found;
            }
            self.bell.sleep_until_rung();
            found = Found::AfterSleep;
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.bell.ring();
    }
}

impl<B> Entered<'_, B> {
    /// Whether so much growth is news.
    pub(crate) fn is_news(&self, seen: u64) -> bool {
        seen > self.told
    }

    /// What was seen is told, to this one and to whoever comes later.
    pub(crate) fn tell(&self, seen: u64) {
        self.turnstile.told.fetch_max(seen, Ordering::AcqRel);
    }
}

impl<B> Drop for Entered<'_, B> {
    fn drop(&mut self) {
        self.turnstile.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// A bell as the kernel has it: a ring is kept until it is heard.
    #[derive(Default)]
    struct TestBell(Mutex<bool>, Condvar);

    impl Bell for TestBell {
        fn ring(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn sleep_until_rung(&self) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    /// What one of them gets wrong.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Flaw {
        Nothing,
        RingsBeforeItCounts,
        EndsWithoutARing,
        TellsMoreThanWasSeen,
    }

    struct World {
        turnstile: Turnstile<TestBell>,
        /// Commits that are visible.
        commits: AtomicU64,
        /// How often growth was seen: in the store, a channel of tokio.
        seen: (Mutex<u64>, Condvar),
        flaw: Flaw,
    }

    impl World {
        /// One `wake` of a relay.
        fn wait(&self) {
            let turnstile = &self.turnstile;
            let entered = match self.flaw {
                Flaw::RingsBeforeItCounts => {
                    let told = turnstile.told.load(Ordering::Acquire);
                    turnstile.bell.ring();
                    turnstile.waiters.fetch_add(1, Ordering::AcqRel);
                    Entered { turnstile, told }
                }
                _ => turnstile.enter(),
            };
            let mut seen = self.seen.0.lock().unwrap();
            while !entered.is_news(*seen) {
                seen = self.seen.1.wait(seen).unwrap();
            }
            let ahead = u64::from(self.flaw == Flaw::TellsMoreThanWasSeen);
            entered.tell(*seen + ahead);
        }

        /// The thread: looks whenever it is stirred, as long as somebody waits.
        fn watch(&self) {
            let mut known = None;
            while self.turnstile.somebody() != Found::Closed {
                let found = Some(self.commits.load(Ordering::Acquire));
                if known != found {
                    known = found;
                    *self.seen.0.lock().unwrap() += 1;
                    self.seen.1.notify_all();
                }
                self.turnstile.bell.sleep_until_rung();
            }
        }

        /// A producer commits, and the kernel says that something was written.
        fn commit(&self) {
            self.commits.fetch_add(1, Ordering::AcqRel);
            self.turnstile.bell.ring();
        }

        fn close(&self) {
            match self.flaw {
                Flaw::EndsWithoutARing => self.turnstile.closed.store(true, Ordering::Release),
                _ => self.turnstile.close(),
            }
        }
    }

    /// A relay that waits until it has read the commit of a producer, and stops. Nobody is left
    /// waiting, in any order: loom reports a thread that can never go on.
    fn explore(flaw: Flaw) {
        let mut model = loom::model::Builder::new();
        // Enough for every flaw below, in a moment; LOOM_MAX_PREEMPTIONS=2 takes seconds, 3 a minute.
        model.preemption_bound = model.preemption_bound.or(Some(1));
        model.check(move || {
            let world = Arc::new(World {
                turnstile: Turnstile::new(TestBell::default()),
                commits: AtomicU64::new(0),
                seen: (Mutex::new(0), Condvar::new()),
                flaw,
            });
            let (watching, committing) = (Arc::clone(&world), Arc::clone(&world));
            let watch = thread::spawn(move || watching.watch());
            let producer = thread::spawn(move || committing.commit());
            while world.commits.load(Ordering::Acquire) == 0 {
                world.wait();
            }
            world.close();
            producer.join().unwrap();
            watch.join().unwrap();
        });
    }

    /// No order of a waiter, the thread, and a producer leaves anybody waiting for what has happened.
    #[test]
    fn no_edge_is_lost() {
        explore(Flaw::Nothing);
    }

    /// Set for the child processes of the test below: which flaw to explore.
    const FLAW: &str = "POSTRIDER_TURNSTILE_FLAW";

    #[test]
    fn the_flaw_that_is_asked_for() {
        match std::env::var(FLAW).as_deref() {
            Ok("rings before it counts") => explore(Flaw::RingsBeforeItCounts),
            Ok("ends without a ring") => explore(Flaw::EndsWithoutARing),
            Ok("tells more than was seen") => explore(Flaw::TellsMoreThanWasSeen),
            _ => {}
        }
    }

    /// Each in a process of its own: loom cannot unwind from threads that wait for ever.
    #[test]
    fn turnstiles_with_a_flaw_are_caught() {
        for flaw in ["rings before it counts", "ends without a ring", "tells more than was seen"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "turnstile::tests::the_flaw_that_is_asked_for", "--nocapture"])
                .env(FLAW, flaw)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stderr);
            assert!(!child.status.success() && said.contains("deadlock"), "{flaw}: {said}");
        }
    }
}
