//! The shell's loop: give the machine what happened, perform what it commands.
//!
//! No decision is made here. Commands run in tasks of their own, so a slow broker keeps nothing else
//! waiting; a panic in one is an answer like any other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider_core::{Lease, OutboxSource, RelayId};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::{Answer, Command, Input};
use crate::health::Health;
use crate::log;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::perform::Performer;
use crate::presence::{self, Alive};
use crate::relay::{Report, Stop};

/// How often health is worked out while the relay is busy.
const HEALTH_EVERY: Duration = Duration::from_millis(50);

/// The store's hints are coalesced: at most one in this time reaches the machine. With one a millisecond each
/// look found an event or two, and cost more than it gained: to Kafka p99 was 46 ms, and is 34.
const WAKE_EVERY: Duration = Duration::from_millis(4);

/// How many answers are heard before anything follows from them: what came together, such as those of one
/// statement for many partitions. The bound keeps leases and deadlines in sight, and what is noted of them,
/// at most a thousand events each, below what is kept of notices.
const HEARD_MAX: usize = 16;

/// The shortest sleep, so that a rounded timer does not spin.
const SLEEP_MIN: Duration = Duration::from_micros(500);

pub(crate) struct Shell {
    pub(crate) machine: Machine,
    pub(crate) performer: Arc<Performer>,
    pub(crate) owner: RelayId,
    pub(crate) stopping: watch::Receiver<Stop>,
    pub(crate) nudged: Arc<Notify>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) alive: Option<Alive>,
}

impl Shell {
    /// Runs until the machine has ended, or is aborted.
    pub(crate) async fn run(mut self) -> Report {
        let mut tasks = JoinSet::new();
        // As long as the machine lets commands be under way: each gives two inputs at most.
        let (give, mut given) = mpsc::unbounded_channel();
        let clock = Arc::clone(&self.performer.clock);
        let source = Arc::clone(&self.performer.source);
        let mut proved: Option<Lease> = None;
        let mut health_at = Instant::now();
        // Kept from one input to the next: a store may have to be told of each one that waits anew.
        let mut hint = std::pin::pin!(next_hint(Arc::clone(&source), Instant::now()));
        let (mut orphaned, mut changed) = (false, false);
        let mut input = Input::Passed;
        let ending = loop {
            changed |= !matches!(input, Input::Passed);
            let mut acquired = is_acquisition(&input);
            self.machine.hear(clock.tick(), input);
            for _ in 1..HEARD_MAX {
                let Ok(more) = given.try_recv() else { break };
                (acquired, changed) = (acquired | is_acquisition(&more), true);
                self.machine.hear(clock.tick(), more);
            }
            self.machine.follow();
            if acquired && let Some(lease) = self.find_dead(&mut proved) {
                self.machine.step(clock.tick(), Input::ProvedDead(lease));
            }
            self.note();
            self.perform(&mut tasks, &give);
            while tasks.try_join_next().is_some() {}
            if let Some(ending) = self.machine.ending() {
                break Some(ending.clone());
            }
            let now = Instant::now();
            let mut sleep = self.machine.wake_at().since(clock.tick()).max(SLEEP_MIN);
            if now >= health_at {
                self.publish_health();
                health_at = now + HEALTH_EVERY;
                changed = false;
            } else if changed {
                // What has changed since is published soon, also if nothing else happens.
                sleep = sleep.min(health_at - now);
            }
            input = tokio::select! {
                biased;
                stop = next_stop(&mut self.stopping, &mut orphaned) => match stop {
                    Stop::Abort => break None,
                    Stop::Drain | Stop::No => Input::Drain,
                },
                Some(input) = given.recv() => input,
                () = self.nudged.notified() => Input::Nudged,
                () = &mut hint => {
                    hint.set(next_hint(Arc::clone(&source), Instant::now() + WAKE_EVERY));
                    Input::Woken
                }
                () = tokio::time::sleep(sleep) => Input::Passed, // waits: until the machine asks
            };
        };
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        self.report(ending).await
    }

    /// Performs what the machine commands, at the same time. Each publish is a task of its own, since to write its
    /// events takes a processor. What the store is asked is one task: a store that answers many questions by one
    /// statement then hears all of them before it begins, and thirty-two questions do not cost as many tasks. At
    /// 1,000 events a second, with a hint for nearly each, the relay takes two thirds of the processor time that it
    /// took with tasks of their own.
    fn perform(&mut self, tasks: &mut JoinSet<()>, give: &UnboundedSender<Input>) {
        // Without a receiver the relay has stopped.
        let giving = || {
            let give = give.clone();
            move |input| _ = give.send(input)
        };
        let mut questions = Vec::new();
        for (ticket, command) in self.machine.take_commands() {
            if !matches!(command, Command::Publish { .. }) {
                questions.push((ticket, command));
                continue;
            }
            let (performer, give) = (Arc::clone(&self.performer), giving());
            tasks.spawn(async move { performer.perform(ticket, command, give).await });
        }
        if questions.is_empty() {
            return;
        }
        let (performer, give) = (Arc::clone(&self.performer), giving());
        tasks.spawn(async move {
            let ask = |(ticket, command)| performer.perform(ticket, command, &give);
            let mut asked: FuturesUnordered<_> = questions.into_iter().map(ask).collect();
            while asked.next().await.is_some() {}
        });
    }

    /// Hands on what happened: to the observer, and to the log.
    fn note(&mut self) {
        let observer = self.performer.observer.as_deref();
        let listened = observer.is_some();
        let now = self.performer.clock.now();
        for mut notice in self.machine.take_notices() {
            if let Notice::Delivered { created_at, lag, .. } = &mut notice {
                *lag = Some(now.since(*created_at));
            }
            if let Some(observer) = observer {
                observer.noted(&notice);
            }
            log::write(&notice, &self.owner);
        }
        // A notice of each delivery is not free: without anybody to read it there is none.
        self.machine.note_deliveries(listened || tracing::enabled!(tracing::Level::DEBUG));
    }

    /// A lease whose holder is proved dead, each proof used once.
    fn find_dead(&self, proved: &mut Option<Lease>) -> Option<Lease> {
        let dead = self.machine.held_by_others().iter().find(|held| presence::is_dead(held))?;
        if proved.as_ref() == Some(&dead.lease) {
            return None;
        }
        *proved = Some(dead.lease.clone());
        Some(dead.lease.clone())
    }

    fn publish_health(&self) {
        let health = self.machine.health();
        self.health.send_if_modified(|last| {
            let changed = *last != health;
            *last = health;
            changed
        });
    }

    async fn report(self, ending: Option<crate::Ending>) -> Report {
        let mut waiting = BTreeMap::new();
        if ending.is_some() {
            for row in &self.machine.definitions.rows {
                let id = &row.definition.id;
                if let Ok(counts) = self.performer.source.counts(id).await {
                    waiting.insert(id.clone(), counts);
                }
            }
        }
        self.publish_health();
        let health = self.machine.health();
        drop(self.alive);
        Report { ending, health, waiting }
    }
}

/// Whether it says which leases were taken, and who holds the others.
fn is_acquisition(input: &Input) -> bool {
    matches!(input, Input::Answered(_, Answer::Acquired(Ok(_))))
}

/// Waits for the store's next hint, and not before a time.
async fn next_hint(source: Arc<dyn OutboxSource>, after: Instant) {
    tokio::time::sleep_until(after).await; // waits: to coalesce hints
    source.wake().await;
}

/// Waits until the relay is told to stop further than it was. A handle that was dropped says so
/// once: nobody could stop the relay later.
async fn next_stop(stopping: &mut watch::Receiver<Stop>, orphaned: &mut bool) -> Stop {
    if *orphaned {
        return std::future::pending().await;
    }
    match stopping.changed().await {
        Ok(()) => *stopping.borrow_and_update(),
        Err(_) => {
            *orphaned = true;
            Stop::Drain
        }
    }
}
