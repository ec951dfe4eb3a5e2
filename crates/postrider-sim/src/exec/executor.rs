//! The loop: one ready task, chosen by the seed, takes one step; when none is ready, time passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use postrider_core::{BoxFuture, Tick};

use super::kernel::{Birth, Kernel, Order, ProcessNo, TaskNo};
use super::waker::Bell;
use crate::dice::Dice;

/// How many steps may be taken without time passing: far more than any real work takes.
const STEPS_AT_ONCE_MAX: u32 = 200_000;

/// Why [`Executor::run_until`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The time has come.
    Time,
    /// Nobody can move, and nobody waits for a time before the end.
    Still,
    /// Something moves and moves while no time passes.
    Spins,
}

/// Runs the tasks of a world.
pub struct Executor {
    kernel: Arc<Kernel>,
    dice: Dice,
    tasks: BTreeMap<TaskNo, Task>,
    processes: BTreeMap<ProcessNo, Process>,
    ready: Vec<TaskNo>,
    fingerprint: u64,
    steps: u64,
}

struct Task {
    process: ProcessNo,
    future: BoxFuture<'static, ()>,
    bell: Arc<Bell>,
    waker: Waker,
}

#[derive(Default)]
struct Process {
    tasks: BTreeSet<TaskNo>,
    /// Ready tasks of a paused process.
    held: Option<Vec<TaskNo>>,
    /// After how many more of its steps it ends.
    steps_left: Option<u32>,
    /// After how many more of its steps it stands still.
    steps_to_pause: Option<u32>,
    dead: bool,
}

impl Executor {
    /// An executor whose choices come from a stream of numbers.
    pub fn new(dice: Dice) -> Executor {
        Executor {
            kernel: Arc::new(Kernel::default()),
            dice,
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
            ready: Vec::new(),
            fingerprint: 0xcbf2_9ce4_8422_2325,
            steps: 0,
        }
    }

    /// What the actors share.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// A number that two runs have in common if every step of both was the same.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether a process was started and not killed.
    pub fn is_alive(&self, process: ProcessNo) -> bool {
        self.processes.get(&process).is_some_and(|process| !process.dead)
    }

    /// Runs until a time.
    pub fn run_until(&mut self, end: Tick) -> Stop {
        let mut at_once = 0;
        loop {
            self.obey();
            for birth in self.kernel.take_births() {
                self.bear(birth);
            }
            self.kernel.take_ready(&mut self.ready);
            if self.ready.is_empty() {
                at_once = 0;
                if self.kernel.pass(end) {
                    continue;
                }
                return if self.kernel.now() >= end { Stop::Time } else { Stop::Still };
            }
            at_once += 1;
            if at_once > STEPS_AT_ONCE_MAX {
                return Stop::Spins;
            }
            // Who became ready first is not known to the scheduler: libraries ring bells in an order
            // of their own, which may be a matter of chance.
            self.ready.sort_unstable();
            let pick = self.dice.below(self.ready.len() as u64);
            let task = self.ready.remove(usize::try_from(pick).unwrap_or_default());
            self.step(task);
        }
    }

    fn step(&mut self, number: TaskNo) {
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let Some(process) = self.processes.get_mut(&task.process) else { return };
        if let Some(held) = &mut process.held {
            held.push(number);
            return;
        }
        self.steps += 1;
        let moment = self.kernel.now().0 ^ (u64::from(number.0) << 40);
        self.fingerprint = (self.fingerprint ^ moment).wrapping_mul(0x0000_0100_0000_01b3);
        task.bell.hear();
        let mut context = Context::from_waker(&task.waker);
        let ended = task.future.as_mut().poll(&mut context) == Poll::Ready(());
        let owner = task.process;
        if ended {
            process.tasks.remove(&number);
            self.tasks.remove(&number);
        }
        if let Some(left) = &mut process.steps_to_pause {
            *left = left.saturating_sub(1);
            if *left == 0 {
                process.steps_to_pause = None;
                process.held.get_or_insert_default();
            }
        }
        if let Some(left) = &mut process.steps_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.kill(owner);
            }
        }
    }

    fn bear(&mut self, birth: Birth) {
        let process = self.processes.entry(birth.process).or_default();
        if process.dead {
            return;
        }
        process.tasks.insert(birth.task);
        let bell = Arc::new(Bell::new(Arc::downgrade(&self.kernel), birth.task));
        let waker = Waker::from(Arc::clone(&bell));
        waker.wake_by_ref();
        let task = Task { process: birth.process, future: birth.future, bell, waker };
        self.tasks.insert(birth.task, task);
    }

    fn obey(&mut self) {
        for order in self.kernel.take_orders() {
            match order {
                Order::Kill(process) => self.kill(process),
                Order::KillAfter(process, steps) => {
                    let process = self.processes.entry(process).or_default();
                    process.steps_left = Some(steps.max(1));
                }
                Order::Spare(process) => {
                    let process = self.processes.entry(process).or_default();
                    (process.steps_left, process.steps_to_pause) = (None, None);
                }
                Order::PauseAfter(process, steps) => {
                    let process = self.processes.entry(process).or_default();
                    process.steps_to_pause = Some(steps.max(1));
                }
                Order::Pause(process) => {
                    self.processes.entry(process).or_default().held.get_or_insert_default();
                }
                Order::Resume(process) => {
                    let process = self.processes.entry(process).or_default();
                    process.steps_to_pause = None;
                    self.ready.extend(process.held.take().unwrap_or_default());
                }
            }
        }
    }

    fn kill(&mut self, process: ProcessNo) {
        let entry = self.processes.entry(process).or_default();
        entry.dead = true;
        entry.held = None;
        entry.steps_left = None;
        for task in std::mem::take(&mut entry.tasks) {
            drop(self.tasks.remove(&task));
        }
    }
}

impl Drop for Executor {
    /// What a task drops may be what another one waits for: in the order of their births.
    fn drop(&mut self) {
        drop(self.kernel.take_births());
        while let Some((_, task)) = self.tasks.pop_first() {
            drop(task);
        }
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    fn run(seed: u64, kill: bool) -> (Vec<(u64, u32)>, u64) {
        let mut executor = Executor::new(Dice::new(seed, "scheduler"));
        let kernel = Arc::clone(executor.kernel());
        let log = Arc::new(Mutex::new(Vec::new()));
        let victim = kernel.process();
        for name in 0..3 {
            let process = if name == 0 { victim } else { kernel.process() };
            let (log, inner) = (Arc::clone(&log), Arc::clone(&kernel));
            kernel.spawn(process, async move {
                for _ in 0..4 {
                    inner.sleep(Duration::from_secs(1)).await;
                    log.lock().unwrap().push((inner.now().0 / 1_000_000_000, name));
                }
            });
        }
        if kill {
            kernel.kill_after(victim, 2);
        }
        assert_eq!(executor.run_until(Tick(100_000_000_000)), Stop::Still);
        let log = log.lock().unwrap().clone();
        (log, executor.fingerprint())
    }

    #[test]
    fn the_same_seed_gives_the_same_steps_and_another_one_another_order() {
        assert_eq!(run(1, false), run(1, false));
        let orders: BTreeSet<_> = (0..20).map(|seed| run(seed, false).0).collect();
        assert!(orders.len() > 5, "{}", orders.len());
    }

    #[test]
    fn a_process_dies_at_an_await_point_and_the_others_go_on() {
        let (log, _) = run(3, true);
        assert_eq!(log.iter().filter(|(_, name)| *name == 0).count(), 1);
        assert_eq!(log.len(), 9);
    }
}
