//! The consumers of a world: a group with transactional and one with leased handlers, on one topic of
//! the first destination.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::{HandlerName, InboxKey};

use crate::app::TYPES;
use crate::broker::Place;
use crate::clock::ProcessClock;
use crate::consumer::verdict::Group;
use crate::consumer::wire::{Echo, Wire};
use crate::consumer::{Consumer, Kind, Setup, Shop, VISIBILITY};
use crate::dice::Dice;
use crate::exec::ProcessNo;
use crate::now;
use crate::shared::Shared;

/// What consumers listen to.
const TOPIC: &str = TYPES[0];
/// How long a consumer waits for the store's answer.
const SILENCE: Duration = Duration::from_secs(30);

/// The consumers, and what they did.
#[derive(Debug)]
pub struct Customers {
    shared: Arc<Shared>,
    place: Arc<Place>,
    network: ProcessNo,
    shop: Arc<Shop>,
    groups: Vec<(HandlerName, Kind, Echo)>,
    running: BTreeMap<u8, Customer>,
    lives: u64,
}

#[derive(Debug)]
struct Customer {
    consumer: Consumer,
    clock: ProcessClock,
    cut_until: Arc<AtomicU64>,
}

impl Customers {
    /// The consumers of a scenario, so many of each kind.
    pub fn start(shared: &Arc<Shared>, place: &Arc<Place>) -> Customers {
        let (kernel, story) = (Arc::clone(&shared.kernel), Arc::clone(&shared.story));
        let groups = [("billing", Kind::Transactional), ("mailer", Kind::Leased)];
        let group = |(name, kind): (&str, Kind)| {
            let name = HandlerName::new(name).expect("invariant: a valid name");
            (name, kind, Echo::default())
        };
        let mut customers = Customers {
            shared: Arc::clone(shared),
            place: Arc::clone(place),
            network: shared.process(),
            shop: Arc::new(Shop::new(kernel, story)),
            groups: groups.map(group).to_vec(),
            running: BTreeMap::new(),
            lives: 0,
        };
        for slot in 0..2 * shared.scenario.consumers {
            customers.replace(slot);
        }
        if shared.scenario.operator > 0 {
            let forgetful = Forgetful {
                shared: Arc::clone(shared),
                place: Arc::clone(place),
                shop: Arc::clone(&customers.shop),
                handlers: customers.groups.iter().map(|(name, ..)| name.clone()).collect(),
                dice: shared.dice("forgetful operator"),
            };
            shared.kernel.spawn(shared.process(), forgetful.work());
        }
        customers
    }

    /// How many run.
    pub fn count(&self) -> u8 {
        u8::try_from(self.running.len()).unwrap_or(u8::MAX)
    }

    /// Kills a consumer after so many more of its steps.
    pub fn kill(&self, slot: u8, steps: u32) {
        if let Some(customer) = self.running.get(&slot) {
            self.shared.kernel.kill_after(customer.consumer.process(), steps);
        }
    }

    /// Pauses a consumer, or lets it go on.
    pub fn pause(&self, slot: u8, paused: bool) {
        let Some(customer) = self.running.get(&slot) else { return };
        match paused {
            true => self.shared.kernel.pause(customer.consumer.process()),
            false => self.shared.kernel.resume(customer.consumer.process()),
        }
    }

    /// Lets a consumer's wall clock jump.
    pub fn jump(&self, slot: u8, micros: i64) {
        if let Some(customer) = self.running.get(&slot) {
            customer.clock.jump(micros);
        }
    }

    /// Starts a consumer in a slot, whoever was there before.
    pub fn replace(&mut self, slot: u8) {
        if let Some(customer) = self.running.remove(&slot) {
            self.shared.kernel.kill(customer.consumer.process());
        }
        self.lives += 1;
        let (handler, kind, echo) = &self.groups[usize::from(slot) % self.groups.len()];
        let shared = &self.shared;
        let name = format!("{handler}-{slot}.{}", self.lives);
        let mut dice = shared.dice(&name);
        let origin = Duration::from_secs(dice.below(1_000_000));
        let drift = i64::try_from(dice.below(1_000)).unwrap_or_default() - 500;
        let clock = ProcessClock::new(Arc::clone(&shared.kernel), origin, drift);
        let cut_until: Arc<AtomicU64> = Arc::default();
        let subscription = Wire::new(
            self.place.memory.subscribe(TOPIC, handler.as_str(), VISIBILITY),
            Arc::clone(&shared.kernel),
            Arc::clone(&shared.weather),
            self.network,
            Arc::clone(&cut_until),
            echo.clone(),
            dice.fork("wire"),
        );
        let line = shared.line(&name, Arc::clone(&cut_until), SILENCE);
        let setup = Setup {
            kernel: Arc::clone(&shared.kernel),
            process: shared.process(),
            network: self.network,
            clock: clock.clone(),
            dice,
            name,
            handler: handler.clone(),
            kind: *kind,
            subscription: Arc::new(subscription),
            store: shared.store.on(Arc::new(line)),
            weather: Arc::clone(&shared.weather),
            shop: Arc::clone(&self.shop),
        };
        let consumer = Consumer::start(setup).expect("invariant: the options are good");
        self.running.insert(slot, Customer { consumer, clock, cut_until });
    }

    /// The faults are over: whoever died is there again, and nobody stands still.
    pub fn recover(&mut self, is_alive: impl Fn(ProcessNo) -> bool) {
        let slots: Vec<u8> = self.running.keys().copied().collect();
        for slot in slots {
            let Some(customer) = self.running.get(&slot) else { continue };
            let process = customer.consumer.process();
            customer.cut_until.store(0, Ordering::Relaxed);
            self.shared.kernel.spare(process);
            self.shared.kernel.resume(process);
            if !is_alive(process) {
                self.replace(slot);
            }
        }
    }

    fn judged(&self) -> impl Iterator<Item = Group<'_>> {
        self.groups.iter().filter(|_| !self.running.is_empty()).map(|(handler, kind, _)| Group {
            shop: &self.shop,
            broker: &self.place.memory,
            topic: TOPIC,
            handler,
            kind: *kind,
            store: &self.shared.store,
        })
    }

    /// Whether every message is done, or dead for a reason.
    ///
    /// # Errors
    /// What is not.
    pub fn at_rest(&self) -> Result<(), String> {
        self.judged().try_for_each(|group| group.at_rest())
    }

    /// Judges what was done.
    pub fn judge(&self) {
        self.judged().for_each(|group| group.judge());
        self.pass_on();
    }

    /// Hands on what was seen broken.
    pub fn pass_on(&self) {
        if let Some(failure) = self.shop.failure() {
            self.shared.broke(failure.invariant, failure.what);
        }
    }

    /// Effects that were made.
    pub fn effects(&self) -> u64 {
        self.shop.effects() + self.shared.store.effects().len() as u64
    }
}

/// An operator who makes the inbox forget that something was done: mostly what came of late, so that it
/// may come again.
struct Forgetful {
    shared: Arc<Shared>,
    place: Arc<Place>,
    shop: Arc<Shop>,
    handlers: Vec<HandlerName>,
    dice: Dice,
}

impl Forgetful {
    /// How often it is looked whether there is something to forget.
    const EVERY: Duration = Duration::from_secs(2);
    /// Among so many of the last messages.
    const LAST: usize = 12;

    async fn work(mut self) {
        loop {
            self.shared.kernel.sleep(Forgetful::EVERY).await;
            if self.shared.weather.is_calm() {
                return;
            }
            if self.dice.chance(self.shared.scenario.operator) && !self.shared.server.is_down() {
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        let published = self.place.memory.published();
        let last: Vec<_> = published
            .iter()
            .rev()
            .filter(|published| *published.topic == *TOPIC && published.is_acked())
            .take(Forgetful::LAST)
            .collect();
        if last.is_empty() {
            return;
        }
        let event = &self.dice.pick(&last).event;
        let Ok(key) = InboxKey::of(event, self.dice.pick(&self.handlers)) else { return };
        // Refused while somebody is at it, and where there is nothing to forget.
        if let Some(Ok(void_through)) = now(self.shared.store.forget_on(&key)) {
            self.shared.weather.count("inbox_forgotten");
            self.shop.operator_forgot(&key, void_through);
        }
    }
}
