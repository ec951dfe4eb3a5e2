//! A world: what a scenario says, made and run, and judged at its end.
//!
//! Three times follow each other. While there are faults, safety is looked at as things happen. Then
//! the weather is calm, whoever died or stands still comes back, and an operator puts right what only
//! an operator can; a trickle of events goes on, because without any a poison cannot be told from an
//! outage. In the end everything committed must be delivered or visibly dead: liveness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::{
    BrokerCapabilities, DeadKeyPolicy, Destination, DestinationId, DestinationState, EventId,
    Invariant, NewEvent, OutboxSource, PartitionId, RetryPolicy, Route, Tick,
};
use postrider_testkit::memory::{Lag, MemoryBroker, MemoryClock, MemoryStore, Standby};

use crate::agenda::Agenda;
use crate::app::{App, AppProcess, Life, TYPES};
use crate::broker::Place;
use crate::customers::Customers;
use crate::exec::{Executor, Stop};
use crate::judge;
use crate::operator::{self, Asked, Operator};
use crate::outcome::{Outcome, Tally};
use crate::relay::{self, RelayProcess};
use crate::scenario::Scenario;
use crate::shared::Shared;
use crate::story::Story;

/// The longest a world may need to come to rest when the faults are over: lease, longest pause of an
/// endpoint, and backlog together are far below.
const REST_WITHIN: Duration = Duration::from_secs(900);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// An operator looks again every so many looks.
const OPERATE_LOOKS: u32 = 30;
/// The trickle comes every so many looks.
const TRICKLE_LOOKS: u32 = 4;
/// Keys of the trickle: so many that every partition has some.
const TRICKLE_KEYS: u64 = 12;

/// How to run a scenario.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether the story is told.
    pub trace: bool,
    /// Which bug is planted; none without the probes.
    pub mutant: Option<&'static str>,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, options: &Options) -> Outcome {
    plant(options.mutant);
    let mut world = World::new(scenario, options.trace);
    world.play();
    let outcome = world.end();
    plant(None);
    outcome
}

#[cfg(postrider_sim)]
fn plant(name: Option<&'static str>) {
    use postrider_core::probe::{Mutant, plant, take_reached};
    let mutant = name.and_then(|name| Mutant::ALL.iter().find(|mutant| mutant.name() == name));
    plant(mutant.copied());
    if name.is_some() {
        _ = take_reached();
    }
}

#[cfg(not(postrider_sim))]
fn plant(_: Option<&'static str>) {}

#[cfg(postrider_sim)]
fn reached() -> Vec<u64> {
    postrider_core::probe::take_reached().to_vec()
}

#[cfg(not(postrider_sim))]
fn reached() -> Vec<u64> {
    Vec::new()
}

/// What runs, and what it runs on.
pub(crate) struct World {
    executor: Executor,
    pub(crate) shared: Arc<Shared>,
    clock: MemoryClock,
    /// What relays are started with now, and how often it has changed.
    pub(crate) definitions: Vec<Destination>,
    pub(crate) version: u32,
    pub(crate) relays: BTreeMap<u8, (RelayProcess, u32)>,
    pub(crate) apps: BTreeMap<u8, AppProcess>,
    pub(crate) customers: Option<Customers>,
    /// What an operator asked for.
    pub(crate) asked: Asked,
    /// Incidents that have struck.
    pub(crate) struck: BTreeSet<usize>,
    /// Destinations that there ever were.
    pub(crate) places_made: u8,
    tally: Tally,
    trickled: u64,
    /// What the server's standby had at a moment, by incident.
    pub(crate) standbys: BTreeMap<usize, (Tick, Standby)>,
}

impl World {
    fn new(scenario: &Scenario, trace: bool) -> World {
        let executor = Executor::new(crate::dice::Dice::new(scenario.seed, "scheduler"));
        let kernel = Arc::clone(executor.kernel());
        let clock = MemoryClock::new();
        let store = MemoryStore::of(scenario.store, scenario.partitions, clock.clone());
        store.ask_saves_apart(Duration::from_millis(scenario.saves_apart_ms));
        let story = Arc::new(Story::new(Arc::clone(&kernel), trace));
        let shared = Arc::new(Shared::new(scenario.clone(), kernel, story, store));
        shared.kernel.follow(clock.clone());
        let mut world = World {
            executor,
            shared,
            clock,
            definitions: Vec::new(),
            version: 0,
            relays: BTreeMap::new(),
            apps: BTreeMap::new(),
            customers: None,
            asked: Asked::default(),
            struck: BTreeSet::new(),
            places_made: 0,
            tally: Tally::default(),
            trickled: 0,
            standbys: BTreeMap::new(),
        };
        world.shared.story.tell("world", || format!("{scenario:?}"));
        world.build_places();
        _ = crate::now(world.shared.store.register(&world.definitions));
        let lag = Lag {
            seed: scenario.seed,
            index_max: Duration::from_millis(scenario.lag_ms),
            stream_max: Duration::from_millis(scenario.lag_ms / 3),
            trimmed: 500,
        };
        world.shared.store.set_lag(lag);
        let outbox_max = u64::from(scenario.outbox_max);
        world.shared.store.set_watermark((outbox_max > 0).then_some(outbox_max));
        for number in 0..scenario.apps {
            let app = App::start(&world.shared, number, Life::default());
            world.apps.insert(number, app);
        }
        if scenario.consumers > 0
            && let Some(place) = world.shared.all_places().first()
        {
            world.customers = Some(Customers::start(&world.shared, place));
        }
        if scenario.operator > 0 {
            Operator::start(&world.shared, &world.asked);
        }
        for slot in 0..scenario.relays {
            world.start_relay(slot);
        }
        world
    }

    fn build_places(&mut self) {
        for _ in 0..self.shared.scenario.destinations {
            let definition = self.build_place();
            self.definitions.push(definition);
        }
    }

    /// A broker that was not there before, and how to reach it.
    pub(crate) fn build_place(&mut self) -> Destination {
        let name = format!("dest-{}", self.places_made);
        self.places_made += 1;
        let mut dice = self.shared.dice(&name);
        let mut can = BrokerCapabilities::least();
        can.durable = true;
        can.prefix_order = dice.chance(5_000);
        can.keeps_key_order = true;
        can.batch_rows_max = u32::try_from(dice.between(1, 30)).unwrap_or(1);
        can.batches_in_flight_max = u32::try_from(dice.between(1, 6)).unwrap_or(1);
        can.deduplicates_for = dice.chance(3_000).then_some(Duration::from_secs(120));
        let memory = MemoryBroker::with(self.clock.clone(), can, 1 << 20);
        let definition = definition(&name, &mut dice);
        let place = Place::new(
            name.clone(),
            memory,
            Arc::clone(&self.shared.kernel),
            Arc::clone(&self.shared.weather),
            Arc::clone(&self.shared.story),
            dice,
        );
        let policy = definition.routes.first().map(|route| route.dead_key);
        place.set_policy(policy.unwrap_or_default());
        self.shared.add_place(name, Arc::new(place));
        definition
    }

    pub(crate) fn start_relay(&mut self, slot: u8) {
        let life = self.relays.get(&slot).map_or(0, |(_, life)| life + 1);
        let mut relay = relay::start(&self.shared, slot, life, self.definitions.clone());
        relay.version = self.version;
        self.relays.insert(slot, (relay, life));
    }

    /// Everything that happens, in three times.
    fn play(&mut self) {
        let end = Tick(0) + Duration::from_millis(self.shared.scenario.span_ms);
        let mut agenda = Agenda::of(&self.shared.scenario);
        while let Some((at, act)) = agenda.next(end) {
            if !self.run_until(at) {
                return;
            }
            self.strike(&act, at, &mut agenda);
        }
        if !self.run_until(end) {
            return;
        }
        self.make_peace();
        self.come_to_rest(end);
    }

    /// Runs, and says whether it may go on.
    fn run_until(&mut self, at: Tick) -> bool {
        if self.executor.run_until(at) == Stop::Spins {
            self.shared.broke(Invariant::Progress, "something moves and no time passes");
        }
        self.shared.kernel.reach(at);
        if let Some(customers) = &self.customers {
            customers.pass_on();
        }
        judge::look_for_misdeeds(&self.shared);
        judge::look_at_what_waits(&self.shared);
        !self.shared.is_broken()
    }

    /// The faults are over: who died starts again, who stands still goes on.
    fn make_peace(&mut self) {
        self.shared.story.tell("world", || "the faults are over".to_owned());
        self.shared.weather.calm();
        self.shared.server.start();
        self.shared.store.set_read_only(false);
        self.shared.store.set_full(false);
        self.shared.store.set_watermark(None);
        self.apply_again();
        for place in self.shared.all_places() {
            place.recover();
        }
        let slots: Vec<u8> = self.relays.keys().copied().collect();
        for slot in slots {
            let Some((relay, _)) = self.relays.get(&slot) else { continue };
            let (process, alive) = (relay.process, self.executor.is_alive(relay.process));
            relay::cut(relay, 0);
            self.shared.kernel.resume(process);
            self.shared.kernel.spare(process);
            if !alive || relay.has_ended() || relay.version != self.version {
                self.shared.kernel.kill(process);
                self.start_relay(slot);
            }
        }
        let apps: Vec<(u8, AppProcess)> = self.apps.iter().map(|(n, a)| (*n, a.clone())).collect();
        for (number, app) in apps {
            self.shared.kernel.spare(app.process);
            if !self.executor.is_alive(app.process) {
                self.apps.insert(number, App::start(&self.shared, number, app.next_life()));
            }
        }
        let executor = &self.executor;
        if let Some(customers) = &mut self.customers {
            customers.recover(|process| executor.is_alive(process));
        }
        self.operate();
    }

    /// What only an operator can put right.
    fn operate(&self) {
        let store = &self.shared.store;
        for partition in 0..self.shared.scenario.partitions {
            _ = store.set_partition(PartitionId(partition), false);
        }
        for definition in &self.definitions {
            let id = &definition.id;
            _ = store.set_state(id, DestinationState::Active);
            for topic in TYPES {
                let (destination, topic) = (id.clone(), topic.to_owned());
                operator::submit(&self.shared, &self.asked, Verb::Enable { destination, topic });
            }
        }
    }

    fn come_to_rest(&mut self, from: Tick) {
        let (mut now, mut look) = (from, 0);
        let mut why = String::new();
        while now < from + REST_WITHIN {
            // Only what a relay still has to tell from an outage needs company.
            if look % TRICKLE_LOOKS == 1 && judge::at_rest(&self.shared).is_err() {
                self.trickle();
            }
            look += 1;
            if look % OPERATE_LOOKS == 0 {
                // What was under way may disable an endpoint after the operator enabled it.
                self.operate();
            }
            if self.shared.waiting_max().is_some() {
                self.make_room(look);
            }
            now = now + LOOK_EVERY;
            if !self.run_until(now) {
                return;
            }
            self.revive();
            match self.is_at_rest() {
                Ok(()) => return,
                Err(reason) => why = reason,
            }
        }
        let healths: Vec<_> = self.relays.values().map(|(relay, _)| relay.health()).collect();
        let what = format!("not at rest {REST_WITHIN:?} after the last fault: {why} {healths:?}");
        self.shared.broke(Invariant::Progress, what);
    }

    /// A relay that was told to stop before the faults were over is followed by another.
    fn revive(&mut self) {
        let ended = self.relays.iter().filter(|(_, (relay, _))| relay.has_ended());
        let ended: Vec<u8> = ended.map(|(slot, _)| *slot).collect();
        ended.into_iter().for_each(|slot| self.start_relay(slot));
    }

    fn is_at_rest(&self) -> Result<(), String> {
        if self.shared.is_writing() {
            return Err("an application still writes".to_owned());
        }
        if let Some(request) = operator::open_request(&self.shared, &self.asked) {
            return Err(format!("request {request} is not carried out"));
        }
        judge::at_rest(&self.shared)?;
        self.customers.as_ref().map_or(Ok(()), Customers::at_rest)
    }

    fn trickle(&mut self) {
        for key in 0..TRICKLE_KEYS {
            self.trickled += 1;
            let id = EventId::from_u128(1 << 80 | u128::from(self.trickled));
            // Each key has each type in turn: every endpoint of every partition takes something.
            let round = self.trickled / TRICKLE_KEYS + self.trickled;
            let kind = TYPES[usize::try_from(round % 3).unwrap_or_default()];
            let event = NewEvent::new("order", (1_000 + key).to_string(), kind).id(id);
            if self.shared.store.commit(vec![event]).is_err() {
                // Somebody else writes: another time.
                self.trickled -= 1;
            }
        }
    }

    fn end(mut self) -> Outcome {
        if !self.shared.is_broken() {
            judge::judge(&self.shared);
            if let Some(customers) = &self.customers {
                customers.judge();
            }
        }
        self.tally.effects = self.customers.as_ref().map_or(0, Customers::effects);
        let shared = &self.shared;
        self.tally.committed = shared.store.committed_len() as u64;
        self.tally.delivered = shared.all_places().iter().map(|place| place.count()).sum();
        let planned = shared.scenario.incidents.iter().enumerate();
        let unfired = planned.filter(|(number, _)| !self.struck.contains(number));
        self.tally.unfired = unfired.map(|(_, incident)| incident.what.name().to_owned()).collect();
        self.tally.faults = shared.weather.struck();
        self.tally.virtual_ms = shared.kernel.now().0 / 1_000_000;
        self.tally.steps = self.executor.steps();
        Outcome {
            failure: shared.failure(),
            fingerprint: self.executor.fingerprint(),
            story: shared.story.take(),
            tally: self.tally,
            reached: reached(),
        }
    }
}

/// A destination's routes: every event, to a topic of its type.
fn definition(name: &str, dice: &mut crate::dice::Dice) -> Destination {
    let id = DestinationId::new(name).expect("invariant: a valid name");
    let attempts_max = u32::try_from(dice.between(1, 5)).unwrap_or(3);
    let delay_max = Duration::from_millis(dice.between(200, 8_000));
    let retry = RetryPolicy { attempts_max, delay_max, ..RetryPolicy::default() };
    let policies = [DeadKeyPolicy::Park, DeadKeyPolicy::Skip, DeadKeyPolicy::Halt];
    let topic = "{event_type}".parse().expect("invariant: a valid template");
    let route = Route::all(topic).retry(retry).dead_key(*dice.pick(&policies));
    Destination::new(id, "memory", vec![route])
}
