//! The shell's loop: give the machine what happened, perform what it commands.
//!
//! No decision is made here. Commands run as tasks of their own, so a slow broker keeps nothing else
//! waiting; a panic in one is an answer like any other.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_core::{
    Archive, BoxFuture, Broker, Clock, DestinationId, Error, ErrorKind, Lease, OutboxSource,
    Outcome, Outgoing, RelayId, Result, Tick,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::{Answer, Command, Input, Ticket};
use crate::health::Health;
use crate::log;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::observe::{Observer, Point};
use crate::presence::{self, Alive};
use crate::relay::{Report, Stop};

/// How often health is worked out while the relay is busy.
const HEALTH_EVERY: Duration = Duration::from_millis(50);

/// The store's hints are coalesced: at most one in this time reaches the machine.
const WAKE_EVERY: Duration = Duration::from_millis(1);

/// The shortest sleep, so that a rounded timer does not spin.
const SLEEP_MIN: Duration = Duration::from_micros(500);

pub(crate) struct Shell {
    pub(crate) machine: Machine,
    pub(crate) source: Arc<dyn OutboxSource>,
    pub(crate) brokers: BTreeMap<DestinationId, Arc<dyn Broker>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) archive: Option<Arc<dyn Archive>>,
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
        let mut proved: Option<Lease> = None;
        let mut health_at = Instant::now();
        // Kept from one input to the next: a store may have to be told of each one that waits anew.
        let mut hint = std::pin::pin!(next_hint(Arc::clone(&self.source), Instant::now()));
        let (mut orphaned, mut changed) = (false, false);
        let mut input = Input::Passed;
        let ending = loop {
            let acquired = matches!(input, Input::Answered(_, Answer::Acquired(Ok(_))));
            changed |= !matches!(input, Input::Passed);
            self.machine.step(self.clock.tick(), input);
            if acquired && let Some(lease) = self.find_dead(&mut proved) {
                self.machine.step(self.clock.tick(), Input::ProvedDead(lease));
            }
            self.note();
            let commands: Vec<_> = self.machine.take_commands().collect();
            for (ticket, command) in commands {
                tasks.spawn(self.perform(ticket, command));
            }
            if let Some(ending) = self.machine.ending() {
                break Some(ending.clone());
            }
            let now = Instant::now();
            let mut sleep = self.machine.wake_at().since(self.clock.tick()).max(SLEEP_MIN);
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
                Some(done) = tasks.join_next() => match done {
                    Ok(Done::Answered(ticket, answer)) => Input::Answered(ticket, answer),
                    Ok(Done::TimedOut(ticket, error, call)) => {
                        let left = call.drop_by.since(self.clock.tick());
                        tasks.spawn(await_late(ticket, call.future, left));
                        Input::Answered(ticket, Answer::Published(Err(error)))
                    }
                    Ok(Done::Late(ticket, outcomes)) => Input::Late(ticket, outcomes),
                    // Only an aborted task ends so: panics are caught inside.
                    Err(_) => Input::Passed,
                },
                () = self.nudged.notified() => Input::Nudged,
                () = &mut hint => {
                    hint.set(next_hint(Arc::clone(&self.source), Instant::now() + WAKE_EVERY));
                    Input::Woken
                }
                () = tokio::time::sleep(sleep) => Input::Passed, // waits: until the machine asks
            };
        };
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        self.report(ending).await
    }

    /// Hands on what happened: to the observer, and to the log.
    fn note(&mut self) {
        let listened = self.observer.is_some();
        let now = self.clock.now();
        for mut notice in self.machine.take_notices() {
            if let Notice::Delivered { created_at, lag, .. } = &mut notice {
                *lag = Some(now.since(*created_at));
            }
            if let Some(observer) = &self.observer {
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
                if let Ok(counts) = self.source.counts(id).await {
                    waiting.insert(id.clone(), counts);
                }
            }
        }
        self.publish_health();
        let health = self.machine.health();
        drop(self.alive);
        Report { ending, health, waiting }
    }

    /// Performs one command, and answers for it whatever happens.
    fn perform(
        &self,
        ticket: Ticket,
        command: Command,
    ) -> impl Future<Output = Done> + Send + use<> {
        let performer = Performer {
            clock: Arc::clone(&self.clock),
            source: Arc::clone(&self.source),
            broker: match &command {
                Command::Publish { destination, .. } => self.brokers.get(destination).cloned(),
                _ => None,
            },
            observer: self.observer.clone(),
            archive: self.archive.clone(),
            store_deadline: self.machine.settings.store_deadline,
            lease: self.machine.settings.lease,
        };
        async move {
            match command {
                Command::Publish { batch, start_by, deadline, drop_by, .. } => {
                    performer.publish(ticket, batch, start_by, deadline, drop_by).await
                }
                command => Done::Answered(ticket, performer.perform(command).await),
            }
        }
    }
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

/// A publish on its way.
struct Call {
    future: BoxFuture<'static, Result<Vec<Outcome>>>,
    /// When it is dropped.
    drop_by: Tick,
}

/// How a task ended.
enum Done {
    /// With the answer to its command.
    Answered(Ticket, Answer),
    /// At the deadline of a publish, which goes on.
    TimedOut(Ticket, Error, Call),
    /// With the answer to a publish whose deadline had passed.
    Late(Ticket, Vec<Outcome>),
}

/// Waits for the answer to a publish after its deadline, for so long and no longer: then the call is
/// dropped, and what it sent may still arrive.
async fn await_late(
    ticket: Ticket,
    call: BoxFuture<'static, Result<Vec<Outcome>>>,
    left: Duration,
) -> Done {
    match tokio::time::timeout(left, call).await {
        Ok(Ok(outcomes)) => Done::Late(ticket, outcomes),
        Ok(Err(_)) | Err(_) => Done::Late(ticket, Vec::new()),
    }
}

/// Performs one command.
pub(crate) struct Performer {
    clock: Arc<dyn Clock>,
    pub(crate) source: Arc<dyn OutboxSource>,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    broker: Option<Arc<dyn Broker>>,
    observer: Option<Arc<dyn Observer>>,
    /// How long a call of the store may take.
    pub(crate) store_deadline: Duration,
    /// A lease that is granted or prolonged later than this is over.
    lease: Duration,
}

impl Performer {
    /// Asks the store. A call that takes too long is dropped, and its outcome unknown: a store that
    /// never answers would hold whatever waits for the answer, and nobody would know.
    pub(crate) async fn ask<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let deadline = deadline.min(self.store_deadline);
        tokio::time::timeout(deadline, caught(operation, call)).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, operation)
                .message(format!("the store did not answer within {deadline:?}")))
        })
    }

    async fn perform(&self, command: Command) -> Answer {
        let source = &self.source;
        match command {
            Command::Define => Answer::Defined(
                self.ask("define", self.store_deadline, source.destinations()).await,
            ),
            Command::Acquire(request) => {
                let result = self.ask("acquire", self.lease, source.acquire(&request)).await;
                self.reached(Point::AfterAcquire).await;
                Answer::Acquired(result)
            }
            Command::Renew(request) => {
                self.reached(Point::BeforeRenew).await;
                Answer::Renewed(self.ask("renew", self.lease, source.renew(&request)).await)
            }
            Command::Release(leases) => {
                self.reached(Point::BeforeRelease).await;
                Answer::Released(
                    self.ask("release", self.store_deadline, source.release(&leases)).await,
                )
            }
            Command::Load(lease, destination) => Answer::Loaded(
                self.ask("load", self.store_deadline, source.load(&lease, &destination)).await,
            ),
            Command::Head(lease) => {
                Answer::Head(self.ask("head", self.store_deadline, source.head(&lease)).await)
            }
            Command::Fetch(request) => {
                let result = self.ask("fetch", self.store_deadline, source.fetch(&request)).await;
                self.reached(Point::AfterFetch).await;
                Answer::Fetched(result)
            }
            // Performed by `publish`, which may end twice.
            Command::Publish { .. } => {
                Answer::Published(Err(Error::new(ErrorKind::Internal, "publish")))
            }
            Command::Settle(settlement) => {
                self.reached(Point::BeforeSettle).await;
                let result =
                    self.ask("settle", self.store_deadline, source.settle(&settlement)).await;
                self.reached(Point::AfterSettle).await;
                Answer::Settled(result)
            }
            Command::Due(request) => {
                Answer::Due(self.ask("due", self.store_deadline, source.due(&request)).await)
            }
            Command::Admit(lease, rows) => Answer::Admitted(
                self.ask("admit", self.store_deadline, source.admit(&lease, rows)).await,
            ),
            Command::CarryOut(request) => {
                let call = source.carry_out(&request);
                let result = self.ask("carry out", self.store_deadline, call).await;
                self.reached(Point::AfterCarryOut).await;
                Answer::CarriedOut(result)
            }
            Command::Retire(request) => Answer::Retired(self.retire(request).await),
        }
    }

    async fn publish(
        &self,
        ticket: Ticket,
        batch: Vec<Outgoing>,
        start_by: Tick,
        deadline: Duration,
        drop_by: Tick,
    ) -> Done {
        let failed = |kind, message: &str| {
            let error = Error::new(kind, "publish").message(message);
            Done::Answered(ticket, Answer::Published(Err(error)))
        };
        let Some(broker) = self.broker.clone() else {
            return failed(ErrorKind::Internal, "the destination has no broker in this relay");
        };
        self.reached(Point::BeforePublish).await;
        if self.clock.tick() > start_by {
            // The process was held up between the decision and here, and its lease may be gone.
            let untried = vec![Outcome::Skipped; batch.len()];
            return Done::Answered(ticket, Answer::Published(Ok(untried)));
        }
        let mut future: BoxFuture<'static, _> =
            Box::pin(async move { caught("publish", broker.publish(&batch)).await });
        let sent = tokio::time::timeout(deadline, &mut future).await;
        self.reached(Point::AfterPublish).await;
        match sent {
            Ok(result) => Done::Answered(ticket, Answer::Published(result)),
            Err(_) => {
                let error = Error::new(ErrorKind::Timeout, "publish")
                    .message(format!("no answer within {deadline:?}; it may have been stored"));
                Done::TimedOut(ticket, error, Call { future, drop_by })
            }
        }
    }

    pub(crate) async fn reached(&self, point: Point) {
        if let Some(observer) = &self.observer {
            observer.reached(point).await;
        }
    }
}

/// An adapter's answer; its panic is an error that names no event.
async fn caught<T>(operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Err(Error::new(ErrorKind::Unavailable, operation)
                .message(format!("the adapter panicked: {text}")))
        }
    }
}
