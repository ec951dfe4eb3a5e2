//! A small world of consumers alone: published messages, two consumers of each kind, faults, kills.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::{
    Broker, Event, EventId, Format, HandlerName, Invariant, Marks, Outgoing, Payload, Tick,
};
use postrider_testkit::memory::{Kind as StoreKind, MemoryBroker, MemoryClock, MemoryStore};

use super::verdict::Group;
use super::wire::{Echo, Wire};
use super::*;
use crate::exec::{Executor, Stop};
use crate::line::{Server, SimLine};
use crate::outcome::Failure;
use crate::scenario::Rates;
use crate::story::Story;

const TOPIC: &str = "orders";
const SPAN: Duration = Duration::from_secs(90);
const REST_WITHIN: Duration = Duration::from_secs(1_800);

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    failure: Option<Failure>,
    fingerprint: u64,
    struck: BTreeMap<&'static str, u64>,
    story: Vec<String>,
    steps: u64,
}

/// A consumer, its machine's clocks, and what cuts it off.
type Running = (Consumer, ProcessClock, Arc<AtomicU64>);

struct World {
    kernel: Arc<Kernel>,
    weather: Arc<Weather>,
    story: Arc<Story>,
    server: Arc<Server>,
    network: ProcessNo,
    store: MemoryStore,
    broker: MemoryBroker,
    shop: Arc<Shop>,
    groups: Vec<(HandlerName, Kind)>,
    echoes: BTreeMap<HandlerName, Echo>,
    consumers: Mutex<BTreeMap<String, Running>>,
    lives: AtomicU64,
    published: AtomicBool,
    seed: u64,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn rates(dice: &mut Dice) -> Rates {
    let mut rates = Rates::default();
    for (_, rate) in rates.each() {
        if dice.chance(4_500) {
            *rate = u32::try_from(dice.between(20, 800)).unwrap();
        }
    }
    rates
}

impl World {
    fn new(seed: u64, executor: &Executor, told: bool) -> Arc<World> {
        let kernel = Arc::clone(executor.kernel());
        let clock = MemoryClock::new();
        kernel.follow(clock.clone());
        let story = Arc::new(Story::new(Arc::clone(&kernel), told));
        let mut dice = Dice::new(seed, "world");
        let kind = *dice.pick(&StoreKind::ALL);
        let groups = [("billing", Kind::Transactional), ("mailer", Kind::Leased)];
        let groups = groups.map(|(name, kind)| (HandlerName::new(name).unwrap(), kind));
        Arc::new(World {
            weather: Arc::new(Weather::new(rates(&mut dice))),
            server: Arc::default(),
            network: kernel.process(),
            store: MemoryStore::of(kind, 1, clock.clone()),
            broker: MemoryBroker::new(clock),
            shop: Arc::new(Shop::new(Arc::clone(&kernel), Arc::clone(&story))),
            echoes: groups.iter().map(|(name, _)| (name.clone(), Echo::default())).collect(),
            groups: groups.to_vec(),
            consumers: Mutex::default(),
            lives: AtomicU64::new(0),
            published: AtomicBool::new(false),
            kernel,
            story,
            seed,
        })
    }

    fn start(&self, slot: &str, handler: &HandlerName, kind: Kind) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let name = format!("{slot}.{life}");
        let mut dice = Dice::new(self.seed, &name);
        let origin = seconds(dice.below(1_000_000));
        let drift = i64::try_from(dice.below(1_000)).unwrap() - 500;
        let clock = ProcessClock::new(Arc::clone(&self.kernel), origin, drift);
        let cut = Arc::new(AtomicU64::new(0));
        let subscription = Wire::new(
            self.broker.subscribe(TOPIC, handler.as_str(), VISIBILITY),
            Arc::clone(&self.kernel),
            Arc::clone(&self.weather),
            self.network,
            Arc::clone(&cut),
            self.echoes[handler].clone(),
            dice.fork("wire"),
        );
        let line = SimLine::new(
            Arc::clone(&self.kernel),
            Arc::clone(&self.weather),
            Arc::clone(&self.server),
            Arc::clone(&cut),
            seconds(120),
            dice.fork("line"),
        );
        self.story.tell(&name, || "starts".to_owned());
        let setup = Setup {
            kernel: Arc::clone(&self.kernel),
            process: self.kernel.process(),
            network: self.network,
            clock: clock.clone(),
            dice,
            name,
            handler: handler.clone(),
            kind,
            subscription: Arc::new(subscription),
            store: self.store.on(Arc::new(line)),
            weather: Arc::clone(&self.weather),
            shop: Arc::clone(&self.shop),
        };
        let consumer = Consumer::start(setup).unwrap();
        self.consumers.lock().unwrap().insert(slot.to_owned(), (consumer, clock, cut));
    }

    fn running(&self, slot: &str) -> Running {
        self.consumers.lock().unwrap()[slot].clone()
    }

    /// Whoever runs one consumer: kills it, pauses it, sets its clock, cuts it off, and starts it again.
    async fn keep(self: Arc<World>, slot: String, handler: HandlerName, kind: Kind) {
        let mut dice = Dice::new(self.seed, &format!("keeper of {slot}"));
        self.start(&slot, &handler, kind);
        while !self.weather.is_calm() {
            self.kernel.sleep(Duration::from_millis(dice.between(500, 20_000))).await;
            let (consumer, clock, cut) = self.running(&slot);
            let process = consumer.process();
            match dice.below(6) {
                0 => {
                    self.story.tell(&slot, || "is killed soon".to_owned());
                    self.kernel.kill_after(process, u32::try_from(dice.between(1, 60)).unwrap());
                    self.kernel.sleep(seconds(dice.below(4))).await;
                    self.kernel.kill(process);
                    self.kernel.sleep(seconds(dice.below(4))).await;
                    self.start(&slot, &handler, kind);
                }
                1 | 2 => {
                    self.story.tell(&slot, || "stands still".to_owned());
                    self.kernel.pause(process);
                    let span = Duration::from_millis(dice.between(1_000, 25_000));
                    self.kernel.sleep(span / 2).await;
                    clock.jump(jump(&mut dice));
                    self.kernel.sleep(span / 2).await;
                    self.kernel.resume(process);
                }
                3 => clock.jump(jump(&mut dice)),
                4 => {
                    consumer.drain(seconds(dice.below(5)));
                    self.kernel.sleep(seconds(20)).await;
                    self.kernel.kill(process);
                    self.start(&slot, &handler, kind);
                }
                _ => {
                    let until = self.kernel.now() + seconds(dice.between(1, 30));
                    cut.store(until.0, Ordering::Relaxed);
                }
            }
        }
    }

    /// The store's server goes away and comes back.
    async fn shake(self: Arc<World>) {
        let mut dice = Dice::new(self.seed, "server");
        while !self.weather.is_calm() {
            self.kernel.sleep(seconds(dice.between(5, 60))).await;
            self.server.stop();
            self.kernel.sleep(seconds(dice.between(1, 25))).await;
            self.server.start();
        }
    }

    /// Publishes messages, some of them twice, and now and then one that lies about its content.
    async fn publish(self: Arc<World>) {
        let mut dice = Dice::new(self.seed, "publisher");
        let (count, keys) = (dice.between(5, 40), dice.between(1, 6));
        let pause = 2 * u64::try_from(SPAN.as_millis()).unwrap() / (count + 2);
        let mut before = Vec::new();
        for number in 1..=count {
            self.kernel.sleep(Duration::from_millis(dice.below(pause))).await;
            let event = event(number, dice.below(keys), "true");
            self.send(&event).await;
            before.push((number, event));
            if dice.chance(800) {
                let (_, again) = dice.pick(&before).clone();
                self.send(&again).await;
            }
            if dice.chance(300) {
                let (number, original) = dice.pick(&before).clone();
                let key = original.aggregate_id.parse().unwrap();
                self.send(&self::event(number, key, "false")).await;
            }
        }
        self.published.store(true, Ordering::Relaxed);
    }

    async fn send(&self, event: &Arc<Event>) {
        let outgoing = Outgoing {
            event: Arc::clone(event),
            topic: Arc::from(TOPIC),
            format: Format::default(),
            layout: None,
            marks: Marks::default(),
            attempt: 1,
        };
        self.broker.publish(&[outgoing]).await.unwrap();
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.groups.iter().map(|(handler, kind)| Group {
            shop: &self.shop,
            broker: &self.broker,
            topic: TOPIC,
            handler,
            kind: *kind,
            store: &self.store,
        })
    }
}

/// By how much a wall clock is wrong from now on, in microseconds.
fn jump(dice: &mut Dice) -> i64 {
    i64::try_from(dice.below(240_000_000)).unwrap() - 120_000_000
}

fn event(number: u64, key: u64, says: &str) -> Arc<Event> {
    let id = EventId::from_u128(u128::from(number));
    let mut event = Event::new(id, "order", &key.to_string(), "order.placed");
    event.source = Arc::from("/shop");
    event.payload = Payload::json(says).unwrap();
    Arc::new(event)
}

fn run(seed: u64, told: bool) -> Run {
    let mut executor = Executor::new(Dice::new(seed, "scheduler"));
    let world = World::new(seed, &executor, told);
    let kernel = Arc::clone(&world.kernel);
    let outside = kernel.process();
    for (handler, kind) in &world.groups {
        for slot in 1..=2 {
            let slot = format!("{handler}-{slot}");
            kernel.spawn(outside, Arc::clone(&world).keep(slot, handler.clone(), *kind));
        }
    }
    kernel.spawn(outside, Arc::clone(&world).shake());
    kernel.spawn(outside, Arc::clone(&world).publish());
    let mut now = Tick(0) + SPAN;
    let spins = |stop| stop == Stop::Spins;
    let mut spun = spins(executor.run_until(now));
    world.weather.calm();
    let deadline = now + REST_WITHIN;
    while !spun && now < deadline && world.shop.failure().is_none() {
        now = now + seconds(10);
        spun = spins(executor.run_until(now));
        let published = world.published.load(Ordering::Relaxed);
        if published && world.groups().all(|group| group.at_rest().is_ok()) {
            break;
        }
    }
    world.consumers.lock().unwrap().values().for_each(|(consumer, ..)| consumer.drain(seconds(1)));
    spun |= spins(executor.run_until(now + seconds(60)));
    world.groups().for_each(|group| group.judge());
    if spun {
        world.shop.broke(Invariant::Progress, "something spins".to_owned());
    }
    Run {
        failure: world.shop.failure(),
        fingerprint: executor.fingerprint(),
        struck: world.weather.struck(),
        story: world.story.take(),
        steps: executor.steps(),
    }
}

/// R078, R080, R114, F14, F15, F19: under faults and kills at any await point, every effect happens
/// as promised and every message ends done or dead for a reason.
#[test]
fn whatever_happens_every_effect_is_made_as_promised() {
    let mut struck: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..50 {
        let run = run(seed, false);
        assert_eq!(run.failure, None, "seed {seed}");
        for (name, count) in run.struck {
            *struck.entry(name).or_default() += count;
        }
    }
    for name in ["wire_lost_there", "wire_lost_back", "wire_twice", "wire_cut_felt"] {
        assert!(struck.contains_key(name), "{name} never struck: {struck:?}");
    }
    for name in ["handler_fails", "service_lost_back", "line_lost_back", "network_cut_felt"] {
        assert!(struck.contains_key(name), "{name} never struck: {struck:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        assert_eq!(run(seed, true), run(seed, true), "seed {seed}");
    }
}

#[cfg(postrider_sim)]
mod planted {
    use postrider_core::probe::{Mutant, Spot, plant, take_reached};

    use super::run;

    /// The seed that finds a planted bug, and what it saw.
    fn found(mutant: Mutant, seeds: u64) -> Option<(u64, String)> {
        plant(Some(mutant));
        let found = (0..seeds).find_map(|seed| Some((seed, run(seed, false).failure?.what)));
        plant(None);
        found
    }

    #[test]
    fn each_planted_bug_is_found() {
        let bugs = [
            Mutant::AckBeforeDone,
            Mutant::StepKeyPerAttempt,
            Mutant::StepRecordedFirst,
            Mutant::StepNotResumed,
            Mutant::DuplicateRunsHandler,
            Mutant::KeyConcurrently,
            Mutant::StoreFailureCountsAgainstMessage,
            Mutant::HeartbeatByWallClock,
            Mutant::ClaimThenCheck,
        ];
        let found = bugs.map(|bug| (bug, found(bug, 300)));
        let missed = found.iter().filter(|(_, found)| found.is_none());
        assert_eq!(missed.count(), 0, "{found:#?}");
    }

    #[test]
    fn every_spot_of_a_consumer_is_reached() {
        take_reached();
        for seed in 0..300 {
            run(seed, false);
        }
        let reached = take_reached();
        let missed: Vec<&Spot> = Spot::ALL
            .iter()
            .filter(|spot| ["consumer", "claim", "step"].contains(&spot.area()))
            .filter(|spot| reached[**spot as usize] == 0)
            .collect();
        assert!(missed.is_empty(), "{missed:?}");
    }
}
