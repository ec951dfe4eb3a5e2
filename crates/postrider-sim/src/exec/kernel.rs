//! What every actor shares: the time, the timers, and who can move.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use postrider_core::{BoxFuture, Tick};
use postrider_testkit::memory::MemoryClock;

/// A process: what dies and is paused together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessNo(pub u32);

/// A task of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskNo(pub(super) u32);

/// What is to happen to a process before anything else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Drop its tasks.
    Kill(ProcessNo),
    /// Drop its tasks when so many more of its steps were taken.
    KillAfter(ProcessNo, u32),
    /// Let none of its tasks move.
    Pause(ProcessNo),
    /// Let none of its tasks move when so many more of its steps were taken.
    PauseAfter(ProcessNo, u32),
    /// Let them move again.
    Resume(ProcessNo),
    /// Take back that something is to happen to it after some steps.
    Spare(ProcessNo),
}

/// A task that was born, or is being born.
pub(super) struct Birth {
    pub(super) task: TaskNo,
    pub(super) process: ProcessNo,
    pub(super) future: BoxFuture<'static, ()>,
}

/// Time, timers, and readiness of a world. Shared by its actors, on one thread.
#[derive(Default)]
pub struct Kernel {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Tick,
    /// By time, and by the order in which they were set. One that nobody waits for is not kept.
    timers: BTreeMap<(Tick, u64), Waker>,
    timer_last: u64,
    ready: Vec<TaskNo>,
    births: Vec<Birth>,
    task_last: u32,
    process_last: u32,
    orders: Vec<Order>,
    /// Clocks of others that show the world's time.
    followers: Vec<MemoryClock>,
}

/// Waits for a moment. Dropped before it has come, it is as if it never was.
struct Sleep {
    kernel: Arc<Kernel>,
    until: Tick,
    /// Its number, once somebody waits.
    set: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (until, set) = (self.until, self.set);
        let mut state = self.kernel.state();
        if state.now >= until {
            return Poll::Ready(());
        }
        if set.is_none() {
            state.timer_last += 1;
            let number = state.timer_last;
            state.timers.insert((until, number), context.waker().clone());
            drop(state);
            self.set = Some(number);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.set {
            drop(self.kernel.state().timers.remove(&(self.until, number)));
        }
    }
}

impl State {
    fn lead(&self) {
        for clock in &self.followers {
            let shown = Duration::from_nanos(self.now.0);
            clock.advance(shown.saturating_sub(clock.elapsed()));
        }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Kernel {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world's time. No actor sees it but through a clock of its own.
    pub fn now(&self) -> Tick {
        self.state().now
    }

    /// A new process, without tasks yet.
    pub fn process(&self) -> ProcessNo {
        let mut state = self.state();
        state.process_last += 1;
        ProcessNo(state.process_last)
    }

    /// Starts a task of a process. A process that was killed takes none any more.
    pub fn spawn(&self, process: ProcessNo, future: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        state.task_last += 1;
        let task = TaskNo(state.task_last);
        state.births.push(Birth { task, process, future: Box::pin(future) });
    }

    /// Resolves when the world's time has come. Waits for the task that polls it first.
    pub fn sleep_until(self: &Arc<Self>, until: Tick) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { kernel: Arc::clone(self), until, set: None })
    }

    /// Resolves when so much of the world's time has passed.
    pub fn sleep(self: &Arc<Self>, span: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(self.now() + span)
    }

    /// Kills a process, wherever its tasks stand.
    pub fn kill(&self, process: ProcessNo) {
        self.state().orders.push(Order::Kill(process));
    }

    /// Kills a process after so many more of its steps: anywhere within what it does next.
    pub fn kill_after(&self, process: ProcessNo, steps: u32) {
        self.state().orders.push(Order::KillAfter(process, steps));
    }

    /// Pauses a process: time goes on, and it does not notice.
    pub fn pause(&self, process: ProcessNo) {
        self.state().orders.push(Order::Pause(process));
    }

    /// Pauses a process after so many more of its steps: between any two things that it does.
    pub fn pause_after(&self, process: ProcessNo, steps: u32) {
        self.state().orders.push(Order::PauseAfter(process, steps));
    }

    /// Lets a paused process go on, and one that was to be paused.
    pub fn resume(&self, process: ProcessNo) {
        self.state().orders.push(Order::Resume(process));
    }

    /// Takes back that a process is to be killed or paused after some more steps.
    pub fn spare(&self, process: ProcessNo) {
        self.state().orders.push(Order::Spare(process));
    }

    /// Lets a clock show the world's time from now on.
    pub fn follow(&self, clock: MemoryClock) {
        self.state().followers.push(clock);
    }

    /// Lets time pass to a moment for which nobody waits.
    pub fn reach(&self, at: Tick) {
        let mut state = self.state();
        state.now = state.now.max(at);
        state.lead();
    }

    pub(super) fn ready(&self, task: TaskNo) {
        self.state().ready.push(task);
    }

    /// What became ready since it was last taken.
    pub(super) fn take_ready(&self, into: &mut Vec<TaskNo>) {
        into.append(&mut self.state().ready);
    }

    pub(super) fn take_births(&self) -> Vec<Birth> {
        std::mem::take(&mut self.state().births)
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.state().orders)
    }

    /// Lets time pass to the next timer, and rings it with all others of that moment. Says whether
    /// there was one, at or before the end.
    pub(super) fn pass(&self, end: Tick) -> bool {
        let mut due = Vec::new();
        {
            let mut state = self.state();
            let Some((&(at, _), _)) = state.timers.first_key_value() else { return false };
            if at > end {
                return false;
            }
            state.now = state.now.max(at);
            state.lead();
            while let Some(timer) = state.timers.first_entry()
                && timer.key().0 == at
            {
                due.push(timer.remove());
            }
        }
        due.into_iter().for_each(Waker::wake);
        true
    }
}
