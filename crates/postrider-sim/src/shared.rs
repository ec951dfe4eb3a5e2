//! What every actor of a world has in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::operate::RequestId;
use postrider_core::{EventId, Invariant, Tick};
use postrider_testkit::memory::MemoryStore;

use crate::broker::Place;
use crate::dice::Dice;
use crate::exec::{Kernel, ProcessNo};
use crate::line::{Server, SimLine};
use crate::outcome::Failure;
use crate::scenario::Scenario;
use crate::story::Story;
use crate::weather::Weather;

/// The world, as its actors see it.
#[derive(Debug)]
pub struct Shared {
    /// What it is made of.
    pub scenario: Scenario,
    /// Time and tasks.
    pub kernel: Arc<Kernel>,
    /// What goes wrong.
    pub weather: Arc<Weather>,
    /// What is told.
    pub story: Arc<Story>,
    /// The store, without a line: how the checkers see it.
    pub store: MemoryStore,
    /// The store's server.
    pub server: Arc<Server>,
    /// The brokers, by their destination's first name.
    places: Mutex<BTreeMap<String, Arc<Place>>>,
    /// The first names of destinations by their others, of now and of before.
    names: Mutex<BTreeMap<String, String>>,
    notes: Mutex<Notes>,
    /// The first promise that was seen broken.
    failure: Mutex<Option<Failure>>,
    broken: AtomicBool,
    /// An operator has raised the bound of what waits.
    raised: AtomicBool,
}

/// What the actors remember for the checkers.
#[derive(Debug, Default)]
struct Notes {
    /// Events whose writer did not own their key when it enqueued them.
    unserialised: BTreeSet<EventId>,
    /// Events of transactions that were rolled back for certain.
    rolled_back: BTreeSet<EventId>,
    /// Rows that other transactions wait for: the business rows of the keys.
    locked: BTreeSet<u64>,
    /// Applications that are not done yet.
    writing: BTreeSet<u8>,
    /// Committed events that went with a server.
    lost: BTreeSet<EventId>,
    /// By destination's first name: events whose key moved on past them, because they gave up or were let go.
    moved_on: BTreeMap<(String, EventId), Tick>,
    /// By destination's first name: events that an operator asked to be let go.
    discarded: BTreeSet<(String, EventId)>,
    /// By destination: events that an operator had sent again, out of their order.
    asked_again: BTreeSet<(String, EventId)>,
    /// What an operator asked to be sent again out of the dead letters: by which request, and when.
    redriven: Vec<(RequestId, String, EventId, Tick)>,
    /// Destinations that an operator rewound.
    rewound: BTreeSet<String>,
    /// Leases were taken from their owners without their knowledge.
    leases_void: bool,
    /// From when to when what the server was told is lost, for each one that another took over from.
    forgotten: Vec<(Tick, Tick)>,
}

impl Shared {
    /// A world in which nothing has happened.
    pub fn new(
        scenario: Scenario,
        kernel: Arc<Kernel>,
        story: Arc<Story>,
        store: MemoryStore,
    ) -> Shared {
        let weather = Arc::new(Weather::new(scenario.rates));
        Shared {
            scenario,
            kernel,
            weather,
            story,
            store,
            server: Arc::default(),
            places: Mutex::default(),
            names: Mutex::default(),
            notes: Mutex::default(),
            failure: Mutex::default(),
            broken: AtomicBool::new(false),
            raised: AtomicBool::new(false),
        }
    }

    /// So many events of a destination may wait, where that is less than usual.
    pub fn waiting_max(&self) -> Option<u64> {
        let small = self.scenario.waiting_max > 0 && !self.raised.load(Ordering::Relaxed);
        small.then(|| u64::from(self.scenario.waiting_max))
    }

    /// From now on as many may wait as usual.
    pub fn raise_waiting_max(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// A stream of chance of an actor's own.
    pub fn dice(&self, name: &str) -> Dice {
        Dice::new(self.scenario.seed, name)
    }

    /// A connection of a process to the store. One that nobody closes hangs for a while.
    pub fn line(&self, name: &str, cut_until: Arc<AtomicU64>, silence: Duration) -> SimLine {
        let (kernel, weather) = (Arc::clone(&self.kernel), Arc::clone(&self.weather));
        let dice = self.dice(&format!("line of {name}"));
        SimLine::new(kernel, weather, Arc::clone(&self.server), cut_until, silence, dice)
    }

    /// A new process.
    pub fn process(&self) -> ProcessNo {
        self.kernel.process()
    }

    /// The broker of a destination, by any name that it ever had.
    pub fn place(&self, name: &str) -> Option<Arc<Place>> {
        let born = self.born(name);
        self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&born).cloned()
    }

    /// A destination has another name. Who knows the old one still finds the same broker.
    pub fn rename_place(&self, from: &str, to: &str) {
        let born = self.born(from);
        if let Some(place) = self.place(from) {
            place.rename(to);
        }
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(to.to_owned(), born);
    }

    /// The first name of a destination: what is noted of it is noted under that.
    fn born(&self, name: &str) -> String {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(name).map_or(name, String::as_str).to_owned()
    }

    /// A broker is there.
    pub fn add_place(&self, name: String, place: Arc<Place>) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(name, place);
    }

    /// A destination is no more: nobody owes it anything.
    pub fn remove_place(&self, name: &str) {
        if let Some(place) = self.place(name) {
            place.remove();
        }
    }

    /// All brokers, by name.
    pub fn all_places(&self) -> Vec<Arc<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A promise was seen broken. The first counts.
    pub fn broke(&self, invariant: Invariant, what: impl Into<String>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            let found = Failure::new(invariant, what);
            self.story.tell("CHECKER", || format!("{invariant}: {}", found.what));
            *failure = Some(found);
            self.broken.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a promise was seen broken.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// What was seen broken first.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The order of an event within its key is not promised.
    pub fn note_unserialised(&self, id: EventId) {
        self.notes().unserialised.insert(id);
    }

    /// Whether the order of an event within its key is not promised.
    pub fn is_unserialised(&self, id: EventId) -> bool {
        self.notes().unserialised.contains(&id)
    }

    /// An event was rolled back for certain.
    pub fn note_rolled_back(&self, id: EventId) {
        self.notes().rolled_back.insert(id);
    }

    /// Events that were rolled back for certain.
    pub fn rolled_back(&self) -> Vec<EventId> {
        self.notes().rolled_back.iter().copied().collect()
    }

    /// Takes the business row of a key, if nobody has it.
    pub fn try_lock(&self, key: u64) -> bool {
        self.notes().locked.insert(key)
    }

    /// Lets the business row of a key go.
    pub fn unlock(&self, key: u64) {
        self.notes().locked.remove(&key);
    }

    /// An operator asked to send an event again: it may be marked as late.
    pub fn note_asked_again(&self, place: &str, id: EventId) {
        let at = (self.born(place), id);
        self.notes().asked_again.insert(at);
    }

    /// A request asks for a dead letter to be sent again.
    pub fn note_redriven(&self, request: RequestId, place: &str, id: EventId) {
        let (born, now) = (self.born(place), self.kernel.now());
        self.notes().redriven.push((request, born, id, now));
    }

    /// Dead letters that a request asked to be sent again: by which, where, which, and when.
    pub fn redriven(&self) -> Vec<(RequestId, String, EventId, Tick)> {
        self.notes().redriven.clone()
    }

    /// Whether an event has a reason to be marked as late.
    pub fn may_be_late(&self, place: &str, id: EventId) -> bool {
        let at = (self.born(place), id);
        self.notes().asked_again.contains(&at)
    }

    /// An operator asked to send a destination's history again.
    pub fn note_rewound(&self, place: &str) {
        let born = self.born(place);
        self.notes().rewound.insert(born);
    }

    /// Whether a destination's events have a reason to be marked as a replay.
    pub fn is_rewound(&self, place: &str) -> bool {
        let born = self.born(place);
        self.notes().rewound.contains(&born)
    }

    /// Leases are taken from their owners, who hear of it later: by a rewind, or by another server.
    pub fn note_leases_void(&self) {
        self.notes().leases_void = true;
    }

    /// Whether no lease was ever taken from its owner without its knowledge.
    pub fn leases_stand(&self) -> bool {
        !self.notes().leases_void
    }

    /// An event gave up without holding its key: those behind it flow. What was sent of it before and
    /// never answered may still arrive, after them.
    pub fn note_moved_on(&self, place: &str, id: EventId) {
        let (now, at) = (self.kernel.now(), (self.born(place), id));
        self.notes().moved_on.entry(at).or_insert(now);
    }

    /// Another server takes over: what this one was told since a time is lost.
    pub fn note_forgotten(&self, since: Tick) {
        let now = self.kernel.now();
        self.notes().forgotten.push((since, now));
    }

    /// Whether another server took over that had not been told everything.
    pub fn has_forgotten(&self) -> bool {
        !self.notes().forgotten.is_empty()
    }

    /// Whether what the server was told at a time is lost.
    pub fn went_with_server(&self, told: Tick) -> bool {
        let between = |(since, until): &(Tick, Tick)| (*since..=*until).contains(&told);
        self.notes().forgotten.iter().any(between)
    }

    /// Whether those behind an event flow without it, and this delivery of it was sent before; or after
    /// another server took over that knows nothing of it.
    pub fn had_moved_on(&self, place: &str, id: EventId, sent: Tick) -> bool {
        let at = (self.born(place), id);
        let (let_go, moved_on) = {
            let notes = self.notes();
            (notes.discarded.contains(&at), notes.moved_on.get(&at).copied())
        };
        let before = |when: Tick| sent <= when || self.went_with_server(when);
        let_go || moved_on.is_some_and(before)
    }

    /// An operator asked to let an event go: nobody owes its delivery any more.
    pub fn note_discarded(&self, place: &str, id: EventId) {
        let at = (self.born(place), id);
        self.notes().discarded.insert(at);
    }

    /// Whether an operator asked to let an event go.
    pub fn is_discarded(&self, place: &str, id: EventId) -> bool {
        let at = (self.born(place), id);
        self.notes().discarded.contains(&at)
    }

    /// An application is not done yet, or is.
    pub fn note_writing(&self, app: u8, writes: bool) {
        let mut notes = self.notes();
        match writes {
            true => _ = notes.writing.insert(app),
            false => _ = notes.writing.remove(&app),
        }
    }

    /// Whether any application is not done yet.
    pub fn is_writing(&self) -> bool {
        !self.notes().writing.is_empty()
    }

    /// Committed events went with a server: nobody owes their delivery, and nobody may be blamed for it.
    pub fn note_lost(&self, events: Vec<EventId>) {
        self.notes().lost.extend(events);
    }

    /// Committed events that went with a server.
    pub fn lost(&self) -> Vec<EventId> {
        self.notes().lost.iter().copied().collect()
    }
}
