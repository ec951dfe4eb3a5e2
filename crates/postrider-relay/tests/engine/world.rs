//! A small world around the real machine: memory store and brokers, virtual time, one thread.
//!
//! Commands are performed at once unless a scripted fault holds them; time passes only when nothing
//! else can happen, and then to the next moment that some machine asked for. The same calls give the
//! same run.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use postrider_core::operate::{Note, RequestId, RowKey, Submission, Verb};
use postrider_core::{
    Archive, BoxFuture, Broker, BrokerCapabilities, Clock, Destination, DestinationId, Event,
    NewEvent, OutboxSource, RelayId, RetryPolicy, Route, Tick,
};
use postrider_relay::{
    Command, Ending, Input, Machine, Notice, Performer, Settings, Target, Ticket,
};
use postrider_testkit::fault::{FaultyBroker, FaultySource};
use postrider_testkit::memory::{Kind, MemoryArchive, MemoryBroker, MemoryClock, MemoryStore};

/// One relay: the machine, and what it has under way.
pub(crate) struct Relay {
    pub(crate) machine: Machine,
    performer: Arc<Performer>,
    under_way: Vec<Call>,
    /// A paused process: nothing of it moves, while time passes.
    pub(crate) paused: bool,
    /// What it had to say.
    pub(crate) notices: Vec<Notice>,
}

/// A command under way.
struct Call {
    performed: BoxFuture<'static, ()>,
    /// What it has to say to the machine.
    given: Arc<Mutex<Vec<Input>>>,
    /// When its outcome counts as unknown and when it is dropped, if it is a publish.
    times: Vec<Tick>,
}

impl Call {
    fn new(performer: Arc<Performer>, tick: Tick, ticket: Ticket, command: Command) -> Call {
        let times = match &command {
            Command::Publish { deadline, drop_by, .. } => vec![tick + *deadline, *drop_by],
            _ => Vec::new(),
        };
        let given = Arc::new(Mutex::new(Vec::new()));
        let giving = Arc::clone(&given);
        let performed = Box::pin(async move {
            performer.perform(ticket, command, |input| giving.lock().unwrap().push(input)).await;
        });
        Call { performed, given, times }
    }
}

impl Relay {
    /// Gives the machine every answer that is there, and lets it follow them once, as the shell does.
    fn answer(&mut self, tick: Tick) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut moved = false;
        for mut call in std::mem::take(&mut self.under_way) {
            let is_over = call.performed.as_mut().poll(&mut context).is_ready();
            for input in std::mem::take(&mut *call.given.lock().unwrap()) {
                moved = true;
                self.machine.hear(tick, input);
            }
            call.times.retain(|at| *at > tick);
            if !is_over {
                self.under_way.push(call);
            }
        }
        moved.then(|| self.machine.follow()).is_some()
    }

    /// When the next time of a publish is over.
    fn deadline(&self) -> Option<Tick> {
        self.under_way.iter().flat_map(|call| &call.times).min().copied()
    }
}

/// A destination of the world.
pub(crate) struct Place {
    pub(crate) definition: Destination,
    pub(crate) memory: MemoryBroker,
    pub(crate) broker: Arc<FaultyBroker>,
}

/// Store, brokers, relays, and time.
pub(crate) struct World {
    pub(crate) clock: MemoryClock,
    pub(crate) store: MemoryStore,
    pub(crate) source: Arc<FaultySource>,
    pub(crate) places: Vec<Place>,
    pub(crate) relays: Vec<Relay>,
    pub(crate) settings: Settings,
    /// Where events go before they are deleted.
    pub(crate) archive: Option<MemoryArchive>,
    /// The last commands, for whoever looks why it spins.
    last: VecDeque<String>,
    /// How often time had to pass.
    pub(crate) wakes: u64,
}

/// A destination's id.
pub(crate) fn id(name: &str) -> DestinationId {
    DestinationId::new(name).unwrap()
}

/// A catch-all destination whose topics are the events' types.
pub(crate) fn everything(name: &str) -> Destination {
    let retry = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
    let route = Route::all("{event_type}".parse().unwrap()).retry(retry);
    Destination::new(id(name), "memory", vec![route])
}

/// The nth event of a key.
pub(crate) fn event(key: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{key}"), "order.changed").json(&n).unwrap()
}

/// What the payload of [`event`] says.
pub(crate) fn number(event: &Event) -> u64 {
    std::str::from_utf8(event.payload.as_bytes()).unwrap().parse().unwrap()
}

impl World {
    pub(crate) fn new(partitions: u16, definitions: Vec<Destination>) -> World {
        World::of(Kind::ChangeLog, partitions, definitions)
    }

    /// The same of another kind of store.
    pub(crate) fn of(kind: Kind, partitions: u16, definitions: Vec<Destination>) -> World {
        let clock = MemoryClock::new();
        let store = MemoryStore::of(kind, partitions, clock.clone());
        let source = Arc::new(FaultySource::new(Arc::new(store.clone())));
        let mut world = World {
            clock,
            store,
            source,
            places: Vec::new(),
            relays: Vec::new(),
            settings: Settings::default(),
            archive: None,
            last: VecDeque::new(),
            wakes: 0,
        };
        definitions.into_iter().for_each(|definition| world.add_place(definition));
        let definitions: Vec<_> =
            world.places.iter().map(|place| place.definition.clone()).collect();
        now(world.store.register(&definitions)).unwrap();
        world
    }

    /// A world with one partition and one catch-all destination, `all`.
    pub(crate) fn simple() -> World {
        World::new(1, vec![everything("all")])
    }

    pub(crate) fn add_place(&mut self, definition: Destination) {
        let mut capabilities = BrokerCapabilities::least();
        capabilities.durable = true;
        self.add_place_with(definition, capabilities);
    }

    pub(crate) fn add_place_with(
        &mut self,
        definition: Destination,
        capabilities: BrokerCapabilities,
    ) {
        let memory = MemoryBroker::with(self.clock.clone(), capabilities, 1 << 20);
        let broker = Arc::new(FaultyBroker::new(Arc::new(memory.clone())));
        self.places.push(Place { definition, memory, broker });
    }

    /// Starts a relay that serves all places, and returns its index.
    pub(crate) fn start(&mut self, target: Target) -> usize {
        let definitions: Vec<_> =
            self.places.iter().map(|place| place.definition.clone()).collect();
        self.start_with(definitions, target)
    }

    /// Starts a relay with definitions of its own.
    pub(crate) fn start_with(&mut self, definitions: Vec<Destination>, target: Target) -> usize {
        let mut brokers = BTreeMap::<_, Arc<dyn Broker>>::new();
        let mut local = Vec::new();
        for definition in definitions {
            let place = self.place(definition.id.as_str());
            brokers.insert(definition.id.clone(), Arc::<FaultyBroker>::clone(&place.broker) as _);
            local.push((definition, place.broker.capabilities()));
        }
        let partitions = now(self.store.open()).unwrap().partitions;
        let machine = Machine::new(RelayId::mint(), partitions, None, local, self.settings, target);
        let archive = self.archive.clone().map(|archive| Arc::new(archive) as Arc<dyn Archive>);
        let performer = Arc::new(Performer {
            clock: Arc::new(self.clock.clone()),
            source: Arc::<FaultySource>::clone(&self.source),
            archive,
            brokers,
            observer: None,
            store_deadline: self.settings.store_deadline,
            lease: self.settings.lease,
        });
        self.relays.push(Relay {
            machine,
            performer,
            under_way: Vec::new(),
            paused: false,
            notices: Vec::new(),
        });
        self.relays.len() - 1
    }

    /// Kills a relay: what it had under way is dropped, what it knew is gone.
    pub(crate) fn kill(&mut self, index: usize) {
        drop(self.relays.remove(index));
    }

    pub(crate) fn place(&self, name: &str) -> &Place {
        self.places.iter().find(|place| place.definition.id.as_str() == name).unwrap()
    }

    /// Asks for something as an operator does.
    pub(crate) fn ask(&self, verb: Verb) -> RequestId {
        let note = Note::new("operator", "a test").unwrap();
        self.store.submit(&Submission { verb, note }).unwrap()
    }

    /// How an event of a place is named in a request.
    pub(crate) fn row(&self, name: &str, seq: u64) -> RowKey {
        RowKey { destination: id(name), seq }
    }

    pub(crate) fn commit(&self, events: Vec<NewEvent>) {
        self.store.commit(events).unwrap();
    }

    /// Performs whatever can be performed now, until nothing moves.
    pub(crate) fn settle_down(&mut self) {
        /// More than anything takes that ends.
        const ROUNDS_MAX: u32 = 50_000;
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "INV-8: it spins: {:?}", self.last);
        }
    }

    /// One round: every relay steps, and every answer that is there goes in.
    pub(crate) fn round(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.relays.len() {
            if !self.relays[index].paused {
                moved |= self.step(index);
            }
        }
        moved
    }

    fn step(&mut self, index: usize) -> bool {
        let tick = self.clock.tick();
        let relay = &mut self.relays[index];
        if relay.machine.ending().is_some() {
            return false;
        }
        relay.machine.step(tick, Input::Passed);
        let commands: Vec<_> = relay.machine.take_commands().collect();
        let moved = !commands.is_empty();
        for (ticket, command) in commands {
            self.last.push_back(format!("{index} {command:?}"));
            if self.last.len() > 6 {
                self.last.pop_front();
            }
            let performer = Arc::clone(&relay.performer);
            relay.under_way.push(Call::new(performer, tick, ticket, command));
        }
        let moved = moved | relay.answer(tick);
        relay.notices.extend(relay.machine.take_notices());
        moved
    }

    /// Runs until the first relay has sent a batch, and not a step further.
    pub(crate) fn settle_first_batch(&mut self) {
        let before = self.places[0].broker.batches().len();
        while self.places[0].broker.batches().len() == before {
            if !self.round() {
                self.pass(Duration::from_secs(1));
            }
        }
    }

    /// Lets time pass to the next moment some relay asks for, at most `most` from now.
    pub(crate) fn pass(&mut self, most: Duration) {
        let tick = self.clock.tick();
        let wakes = self.relays.iter().filter(|relay| !relay.paused);
        let at =
            |relay: &Relay| relay.deadline().unwrap_or(Tick(u64::MAX)).min(relay.machine.wake_at());
        let soonest = wakes.map(|relay| at(relay).since(tick)).min();
        let span = soonest.unwrap_or(most).min(most).max(Duration::from_millis(1));
        self.wakes += 1;
        self.clock.advance(span);
    }

    /// Runs for a time.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.clock.elapsed() + span;
        self.settle_down();
        while self.clock.elapsed() < end {
            self.pass(end - self.clock.elapsed());
            self.settle_down();
        }
    }

    /// Runs until something holds, or fails after so much virtual time.
    pub(crate) fn run_until(
        &mut self,
        most: Duration,
        mut holds: impl FnMut(&World) -> bool,
    ) -> Duration {
        let start = self.clock.elapsed();
        self.settle_down();
        while !holds(self) {
            let spent = self.clock.elapsed() - start;
            assert!(spent < most, "did not happen within {most:?}: {:#?}", self.healths());
            self.pass(most - spent);
            self.settle_down();
        }
        self.clock.elapsed() - start
    }

    pub(crate) fn healths(&self) -> Vec<postrider_relay::Health> {
        self.relays.iter().map(|relay| relay.machine.health()).collect()
    }

    pub(crate) fn ending(&self, index: usize) -> Option<&Ending> {
        self.relays[index].machine.ending()
    }

    /// The distinct ids a place holds.
    pub(crate) fn delivered(&self, name: &str) -> usize {
        let ids: std::collections::BTreeSet<_> = self
            .place(name)
            .memory
            .published()
            .iter()
            .filter(|published| published.is_acked())
            .map(|published| published.event.id)
            .collect();
        ids.len()
    }

    /// How often the broker stored an event a second time.
    pub(crate) fn duplicates(&self, name: &str) -> usize {
        let stored = self.place(name).memory.published().iter().filter(|p| p.is_acked()).count();
        stored - self.delivered(name)
    }
}

/// The result of a future that is ready at once, as the memory store's are.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}
