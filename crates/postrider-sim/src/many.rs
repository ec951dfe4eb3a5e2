//! Many seeds on several threads: each world on one of them, what came of it in order of the seeds.
//!
//! What is reported does not depend on how many threads there are, nor on which of them is faster.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attempt::{Attempt, Options, Runner};
use crate::scenario::Scenario;

/// How long one run may take in real time. A thousand times what it takes: such a run never ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which seeds are run, and how.
#[derive(Clone)]
pub struct Plan {
    /// What runs them.
    pub runner: Runner,
    /// How each is run.
    pub options: Options,
    /// The first.
    pub from: u64,
    /// How many, one after the other.
    pub seeds: u64,
    /// On how many threads.
    pub jobs: usize,
    /// No further seed is begun after this moment.
    pub until: Option<Instant>,
    /// How long one run may take.
    pub patience: Duration,
}

/// What came of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The seed.
    pub seed: u64,
    /// What came of it.
    pub attempt: Attempt,
}

impl Plan {
    /// Seeds from one on, on all processors.
    pub fn new(runner: Runner, from: u64, seeds: u64) -> Plan {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let (options, until, patience) = (Options::default(), None, PATIENCE);
        Plan { runner, options, from, seeds, jobs, until, patience }
    }

    /// Runs them, and tells of each in order, until there are no more or somebody has heard enough.
    pub fn run(&self, mut hear: impl FnMut(Ended) -> ControlFlow<()>) {
        let desk = Arc::new(Desk::new(self));
        for _ in 0..self.jobs.max(1) {
            desk.hire(self);
        }
        for seed in self.from.. {
            let Some(attempt) = desk.wait_for(seed, self) else { return };
            if hear(Ended { seed, attempt }).is_break() {
                desk.close();
                return;
            }
        }
    }
}

/// Where the threads take their seeds from, and put down what came of them.
struct Desk {
    sheet: Mutex<Sheet>,
    /// Rings when something was put down.
    bell: Condvar,
    until: Option<Instant>,
}

struct Sheet {
    next: u64,
    end: u64,
    /// What is under way, since when.
    running: BTreeMap<u64, Instant>,
    done: BTreeMap<u64, Attempt>,
}

impl Desk {
    fn new(plan: &Plan) -> Desk {
        let end = plan.from.saturating_add(plan.seeds);
        let sheet = Sheet { next: plan.from, end, running: BTreeMap::new(), done: BTreeMap::new() };
        Desk { sheet: Mutex::new(sheet), bell: Condvar::new(), until: plan.until }
    }

    fn sheet(&self) -> MutexGuard<'_, Sheet> {
        self.sheet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self, sheet: &Sheet) -> bool {
        sheet.next >= sheet.end || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Takes a seed; all that are taken are an unbroken row.
    fn take(&self) -> Option<u64> {
        let mut sheet = self.sheet();
        if self.is_over(&sheet) {
            return None;
        }
        let seed = sheet.next;
        sheet.next += 1;
        sheet.running.insert(seed, Instant::now());
        Some(seed)
    }

    /// Puts down what came of a seed; false if it was given up in the meantime.
    fn put(&self, seed: u64, attempt: Attempt) -> bool {
        let mut sheet = self.sheet();
        let mine = sheet.running.remove(&seed).is_some();
        if mine {
            sheet.done.insert(seed, attempt);
            self.bell.notify_all();
        }
        mine
    }

    /// Gives out no more.
    fn close(&self) {
        self.sheet().end = 0;
    }

    /// What came of a seed, as soon as it is known; nothing if it is not run any more.
    fn wait_for(self: &Arc<Self>, seed: u64, plan: &Plan) -> Option<Attempt> {
        let mut sheet = self.sheet();
        loop {
            if let Some(attempt) = sheet.done.remove(&seed) {
                return Some(attempt);
            }
            let since = sheet.running.get(&seed).copied();
            if since.is_none() && seed >= sheet.next && self.is_over(&sheet) {
                return None;
            }
            if since.is_some_and(|since| since.elapsed() >= plan.patience) {
                sheet.running.remove(&seed);
                // The thread is lost; another one takes its place.
                self.hire(plan);
                return Some(Attempt::hung());
            }
            let pause = plan.patience.min(Duration::from_secs(1));
            sheet = self.bell.wait_timeout(sheet, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts a thread that runs one seed after the other.
    fn hire(self: &Arc<Self>, plan: &Plan) {
        let (desk, runner, options) = (Arc::clone(self), Arc::clone(&plan.runner), plan.options);
        std::thread::spawn(move || {
            while let Some(seed) = desk.take() {
                let attempt = Attempt::at(&runner, &Scenario::of(seed), &options);
                if !desk.put(seed, attempt) {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Invariant;

    use super::*;
    use crate::attempt::Defect;
    use crate::outcome::{Failure, Outcome, Tally};

    fn outcome(seed: u64, fails: bool) -> Outcome {
        Outcome {
            failure: fails.then(|| Failure::new(Invariant::NoLoss, seed.to_string())),
            fingerprint: seed,
            story: Vec::new(),
            tally: Tally::default(),
            reached: Vec::new(),
        }
    }

    /// A world that fails at every seventh seed, and panics at seed 30.
    fn plan(jobs: usize) -> Plan {
        let runner: Runner = Arc::new(|scenario, _| {
            assert!(scenario.seed != 30, "thirty");
            // Early seeds take longest, so that what comes later is done first.
            (0..200_000 / (scenario.seed + 1)).map(std::hint::black_box).for_each(|_| ());
            outcome(scenario.seed, scenario.seed.is_multiple_of(7))
        });
        Plan { jobs, ..Plan::new(runner, 5, 60) }
    }

    fn heard(plan: &Plan) -> Vec<Ended> {
        let mut heard = Vec::new();
        plan.run(|ended| {
            heard.push(ended);
            ControlFlow::Continue(())
        });
        heard
    }

    #[test]
    fn what_is_heard_does_not_depend_on_the_number_of_threads() {
        let (one, four) = (heard(&plan(1)), heard(&plan(4)));
        assert_eq!(one, four);
        let seeds: Vec<u64> = one.iter().map(|ended| ended.seed).collect();
        assert_eq!(seeds, (5..65).collect::<Vec<_>>());
        let bad: Vec<u64> =
            one.iter().filter(|e| e.attempt.defect.is_some()).map(|e| e.seed).collect();
        assert_eq!(bad, [7, 14, 21, 28, 30, 35, 42, 49, 56, 63]);
    }

    #[test]
    fn who_has_heard_enough_hears_no_more() {
        let mut last = 0;
        plan(3).run(|ended| {
            last = ended.seed;
            if ended.attempt.defect.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(last, 7);
    }

    #[test]
    fn nothing_is_begun_after_the_time() {
        let late = Plan { until: Some(Instant::now()), ..plan(2) };
        assert!(heard(&late).is_empty());
    }

    #[test]
    fn a_run_without_an_end_is_given_up_and_the_others_go_on() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        let runner: Runner = Arc::new(move |scenario, _| {
            if scenario.seed == 2 {
                // Comes back when the test ends.
                let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
            }
            outcome(scenario.seed, false)
        });
        let patience = Duration::from_millis(50);
        let found = heard(&Plan { jobs: 1, patience, ..Plan::new(runner, 0, 6) });
        drop(hold);
        let hung: Vec<bool> =
            found.iter().map(|ended| ended.attempt.defect == Some(Defect::Hung)).collect();
        assert_eq!(hung, [false, false, true, false, false, false]);
    }
}
