//! A relay process: the real machine and the real performer, on simulated time.
//!
//! What the asynchronous shell does with tasks, this does with tasks of the executor; no decision is
//! made here that the shell does not make.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use postrider_core::waiting::{Passed, Placement, Reason, Settlement, WaitingChange};
use postrider_core::{Broker, Clock, Destination, DestinationId, Invariant, OutboxSource, RelayId};
use postrider_relay::{Command, Health, Input, Machine, Notice, Performer, Settings, Target};

use crate::app::short;
use crate::clock::ProcessClock;
use crate::connection::Connection;
use crate::exec::ProcessNo;
use crate::judge;
use crate::mailbox::Mailbox;
use crate::shared::Shared;
use crate::telling;

/// How long a lost call hangs: beyond every deadline.
const SILENCE: Duration = Duration::from_secs(70);
/// The store's hints are coalesced, as in the shell.
const WAKE_EVERY: Duration = Duration::from_millis(1);
/// The shortest sleep, as in the shell.
const SLEEP_MIN: Duration = Duration::from_micros(500);

/// A relay that runs, or ran.
#[derive(Clone, Debug)]
pub struct RelayProcess {
    /// Its process.
    pub process: ProcessNo,
    /// Its clocks.
    pub clock: ProcessClock,
    /// Its network to the store is cut until then.
    pub cut_until: Arc<AtomicU64>,
    /// The name under which it takes leases.
    pub owner: RelayId,
    /// Its machine, once it has started.
    pub machine: Arc<Mutex<Option<Machine>>>,
    /// Which version of the destinations it was started with.
    pub version: u32,
    /// What it is told from outside.
    pub orders: Mailbox<Input>,
}

impl RelayProcess {
    /// Whether it was told to stop, and did.
    pub fn has_ended(&self) -> bool {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.as_ref().is_some_and(|machine| machine.ending().is_some())
    }

    /// Its health, if it has started.
    pub fn health(&self) -> Option<Health> {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.as_ref().map(Machine::health)
    }
}

/// The settings of a world's relays.
pub fn settings(shared: &Shared, seed: u64) -> Settings {
    let scenario = &shared.scenario;
    // Every other world has relays whose partitions look at moments of their own.
    let in_step = shared.scenario.seed % 2 == 1;
    let mut settings = Settings { seed, in_step, ..Settings::default() };
    settings.window.rows_max = scenario.window_rows;
    // So few events as there are here show it as well.
    (settings.held_keys, settings.held_rows) = (1, 2);
    settings.range_after = 3;
    settings.waiting_max = shared.waiting_max().unwrap_or(settings.waiting_max);
    settings.window.page_rows_max = (scenario.window_rows / 4).max(2);
    // The slowest poll is what an idle world costs most.
    settings.poll_max = Duration::from_millis([500, 2_000, 2_000, 5_000][(seed % 4) as usize]);
    if scenario.span_ms > 3_600_000 {
        settings.poll_max = Duration::from_secs(5);
    }
    if scenario.retention {
        let retention = postrider_relay::Retention::of(Duration::from_secs(30));
        settings.retention = Some(postrider_relay::Retention {
            every: Duration::from_secs(5),
            rows_max: 7,
            ..retention
        });
    }
    settings
}

/// Starts a relay in a slot: the first, or one that takes the place of another.
pub fn start(shared: &Arc<Shared>, slot: u8, life: u32, local: Vec<Destination>) -> RelayProcess {
    let name = format!("relay-{slot}.{life}");
    let mut dice = shared.dice(&name);
    // Of two relays one is of the version before, which does not know the newer rows.
    let knows_all = slot.is_multiple_of(2);
    let origin = Duration::from_secs(dice.below(1_000_000));
    let drift = i64::try_from(dice.below(401)).unwrap_or_default() - 200;
    let clock = ProcessClock::new(Arc::clone(&shared.kernel), origin, drift);
    let relay = RelayProcess {
        process: shared.process(),
        clock,
        cut_until: Arc::default(),
        owner: RelayId::new(&name).expect("invariant: a valid name"),
        machine: Arc::default(),
        version: 0,
        orders: Mailbox::default(),
    };
    let body = Body { shared: Arc::clone(shared), name, relay: relay.clone(), local, knows_all };
    shared.kernel.spawn(relay.process, body.run(dice.bits()));
    relay
}

struct Body {
    shared: Arc<Shared>,
    name: String,
    relay: RelayProcess,
    local: Vec<Destination>,
    /// Whether it reads rows of format 2.
    knows_all: bool,
}

impl Body {
    async fn run(self, seed: u64) {
        let line = self.shared.line(&self.name, Arc::clone(&self.relay.cut_until), SILENCE);
        let store = self.shared.store.on(Arc::new(line));
        let store = if self.knows_all { store } else { store.knows_format(1) };
        let source: Arc<dyn OutboxSource> = Arc::new(store);
        let settings = settings(&self.shared, seed);
        let Some(partitions) = self.open(&*source).await else { return };
        let mut brokers: BTreeMap<DestinationId, Arc<dyn Broker>> = BTreeMap::new();
        let mut local = Vec::new();
        for definition in &self.local {
            if let Some(place) = self.shared.place(definition.id.as_str()) {
                local.push((definition.clone(), place.memory.capabilities()));
                brokers.insert(
                    definition.id.clone(),
                    Arc::new(Connection::new(
                        place,
                        Arc::clone(&self.shared),
                        self.relay.owner.clone(),
                    )),
                );
            }
        }
        let owner = self.relay.owner.clone();
        let machine = Machine::new(owner, partitions, None, local, settings, Target::Forever);
        self.with(|slot| *slot = Some(machine));
        let performer = Performer {
            clock: Arc::new(self.relay.clock.clone()),
            source: Arc::clone(&source),
            archive: None,
            brokers,
            observer: None,
            store_deadline: settings.store_deadline,
            lease: settings.lease,
        };
        self.tell(|| "starts".to_owned());
        self.turn(Arc::new(performer), &*source).await;
        self.tell(|| "has ended".to_owned());
    }

    /// What starting does before the loop: tried until the store answers.
    async fn open(&self, source: &dyn OutboxSource) -> Option<u16> {
        loop {
            if let Ok(facts) = source.open().await
                && source.register(&self.local).await.is_ok()
            {
                return Some(facts.partitions);
            }
            self.relay.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn turn(&self, performer: Arc<Performer>, source: &dyn OutboxSource) {
        let answers: Mailbox<Input> = Mailbox::default();
        let mut hint = source.wake();
        let mut deaf_until = self.relay.clock.tick();
        let mut input = Input::Passed;
        loop {
            let now = self.relay.clock.tick();
            let (commands, wake_at, ended) = self.with(|slot| {
                let machine = slot.as_mut().expect("invariant: it has started");
                machine.hear(now, input);
                while let Some(more) = answers.take() {
                    machine.hear(now, more);
                }
                machine.follow();
                let commands: Vec<_> = machine.take_commands().collect();
                let ended = machine.ending().is_some();
                self.look_at(machine);
                (commands, machine.wake_at(), ended)
            });
            for (ticket, command) in commands {
                self.look_at_command(&command);
                let (performer, answers) = (Arc::clone(&performer), answers.clone());
                self.shared.kernel.spawn(self.relay.process, async move {
                    performer.perform(ticket, command, |input| answers.put(input)).await;
                });
            }
            if ended {
                return;
            }
            let now = self.relay.clock.tick();
            let mut sleep = self.relay.clock.sleep(wake_at.since(now).max(SLEEP_MIN));
            let deaf = now < deaf_until;
            input = poll_fn(|context| {
                if let Poll::Ready(input) = self.relay.orders.poll(context) {
                    return Poll::Ready(input);
                }
                if let Poll::Ready(input) = answers.poll(context) {
                    return Poll::Ready(input);
                }
                if !deaf && hint.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Input::Woken);
                }
                sleep.as_mut().poll(context).map(|()| Input::Passed)
            })
            .await;
            if matches!(input, Input::Woken) {
                hint = source.wake();
                deaf_until = self.relay.clock.tick() + WAKE_EVERY;
            }
        }
    }

    /// What the machine said, and whether it keeps its bounds.
    fn look_at(&self, machine: &mut Machine) {
        for notice in machine.take_notices() {
            self.tell(|| telling::notice(&notice));
            self.look_at_death(&notice);
            if let Notice::Violated { invariant, what } = notice {
                self.shared.broke(invariant, format!("{} saw: {what}", self.name));
            }
        }
    }

    /// INV-5: what is dead failed itself, and not only its endpoint; it holds its key where the route
    /// says so; and what is out of service has said that it is gone.
    fn look_at_death(&self, notice: &Notice) {
        if let Notice::EndpointDisabled { destination, topic, .. } = notice
            && let Some(place) = self.shared.place(destination.as_str())
            && !place.was_gone(topic)
        {
            let what =
                format!("{topic} of {destination} is disabled, and never said that it is gone");
            self.shared.broke(Invariant::Isolation, what);
        }
        let Notice::DeadLetter { subject, reason, holds_key, .. } = notice else { return };
        if !matches!(reason, Reason::GaveUp | Reason::Rejected) {
            return;
        }
        let (name, topic) = (subject.destination.as_str(), subject.topic.as_deref());
        let Some((place, topic)) = self.shared.place(name).zip(topic) else { return };
        let late = self.shared.may_be_late(name, subject.row.id);
        if !late && *holds_key != place.parks() {
            let event = short(subject.row.id);
            let what = format!("{event} is dead at {name}, and holds its key: {holds_key}");
            self.shared.broke(Invariant::KeyOrder, what);
        }
        let may_die = match reason {
            Reason::Rejected => place.refuses(subject.row.id),
            _ => place.may_give_up(subject.row.id, topic),
        };
        if !may_die {
            let event = short(subject.row.id);
            let what = format!("{event} is dead at {name}, and only its endpoint ever failed");
            self.shared.broke(Invariant::Isolation, what);
        }
    }

    /// INV-7, at the moment at which it would be broken: what is about to be recorded as published
    /// was acknowledged.
    fn look_at_command(&self, command: &Command) {
        match command {
            Command::Settle(settlement) => self.look_at_settlement(settlement),
            _ if !self.shared.story.is_wanted() => {}
            command => {
                if let Some(line) = telling::command(command) {
                    self.tell(|| line);
                }
            }
        }
    }

    fn look_at_settlement(&self, settlement: &Settlement) {
        for part in &settlement.parts {
            let name = part.destination.as_str();
            let acked = part.passed.iter().filter(|(_, passed)| *passed == Passed::Acked);
            let delivered = part.changes.iter().filter_map(|change| match change {
                WaitingChange::Delivered(row) => Some(*row),
                _ => None,
            });
            let Some(place) = self.shared.place(name) else { continue };
            for row in acked.map(|(row, _)| *row).chain(delivered) {
                if !place.has_told(&self.relay.owner, row.id) {
                    let what = format!(
                        "{} records {} as published to {name}, which never told it so",
                        self.name,
                        short(row.id)
                    );
                    self.shared.broke(Invariant::Truth, what);
                }
            }
            for new in &part.waiting {
                if let Placement::Dead { holds_key: false, .. } = new.placement {
                    self.shared.note_moved_on(name, new.row.id);
                }
            }
            for change in &part.changes {
                if let WaitingChange::Dead { row, holds_key, attempted } = change {
                    if attempted.reason != Reason::NoRoute {
                        judge::look_at_undoing(&self.shared, name, row.id);
                    }
                    if !holds_key {
                        self.shared.note_moved_on(name, row.id);
                    }
                }
            }
            self.tell(|| telling::part(part, settlement.lease.partition));
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<Machine>) -> T) -> T {
        act(&mut self.relay.machine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.shared.story.tell(&self.name, what);
    }
}

/// Cuts a relay's network to the store until a time, in nanoseconds of the world's.
pub fn cut(relay: &RelayProcess, until: u64) {
    relay.cut_until.store(until, Ordering::Relaxed);
}
