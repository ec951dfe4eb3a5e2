//! A destination's broker behind a network that misbehaves.
//!
//! What is sent travels on its own: it arrives also when its sender has died or has given up waiting,
//! as a packet does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, DeadKeyPolicy, Error, ErrorKind, EventId, Fault,
    Invariant, KeyHash, Outcome, Outgoing, PartitionId, RelayId, Result, Tick,
};
use postrider_testkit::memory::MemoryBroker;

use crate::app::{TYPES, short};
use crate::consumer::DERIVED;
use crate::dice::Dice;
use crate::exec::{Kernel, ProcessNo};
use crate::shared::Shared;
use crate::story::Story;
use crate::weather::Weather;

/// Calls whose deadline has passed go on for as long as the lease lasts: so many times a deadline.
const OVERDUE: u32 = 4;

/// How an event fails that can never be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// It is refused for good.
    Refused,
    /// It is refused by name, each time.
    Fails,
}

/// A destination's broker, as the world sees it.
#[derive(Debug)]
pub struct Place {
    /// The destination's first name, which stands for it in the notes whatever it is called now.
    pub born: String,
    /// What it holds.
    pub memory: MemoryBroker,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) story: Arc<Story>,
    /// The process whose tasks carry what is on its way.
    pub(crate) network: ProcessNo,
    state: Mutex<State>,
}

/// Which events a destination is owed.
#[derive(Clone, Debug)]
pub struct Owed {
    /// Those committed after so many others.
    pub after: u64,
    /// Those of these types.
    pub types: Vec<&'static str>,
    /// None at all, because it was removed.
    pub removed: bool,
}

#[derive(Debug)]
struct State {
    /// The destination's name now, and how often it had another.
    name: Arc<str>,
    renames: u32,
    owed: Owed,
    dice: Dice,
    /// Not reachable at all until then.
    down_until: Tick,
    /// Topics that take nothing until then.
    dead_topics: BTreeMap<Box<str>, Tick>,
    gone_topics: BTreeSet<Box<str>>,
    poison: BTreeMap<EventId, Poison>,
    /// Events that it holds: what may be recorded as published.
    acked: BTreeSet<EventId>,
    /// When each delivery that it holds was sent, in the order in which they arrived.
    sent: Vec<Tick>,
    /// Topics that answer each event with a failure of its own until then.
    sick_topics: BTreeMap<Box<str>, Tick>,
    /// Who heard of which event that it was taken: what that relay may record as published.
    told: BTreeSet<(RelayId, EventId)>,
    /// Topics that ever said that they are gone.
    ever_gone: BTreeSet<Box<str>>,
    /// What a dead letter does to its key here.
    policy: DeadKeyPolicy,
    /// When each event was first sent.
    tried: BTreeMap<EventId, Tick>,
    /// When a sender last heard that a topic took something.
    heard: BTreeMap<Arc<str>, Tick>,
}

/// What becomes of a batch.
struct Fate {
    sent: Tick,
    there: Duration,
    back: Duration,
    lost_there: bool,
    lost_back: bool,
    twice: bool,
    refused: Option<usize>,
    throttled: bool,
}

impl Place {
    /// A broker with nothing in it.
    pub fn new(
        name: String,
        memory: MemoryBroker,
        kernel: Arc<Kernel>,
        weather: Arc<Weather>,
        story: Arc<Story>,
        dice: Dice,
    ) -> Place {
        let network = kernel.process();
        let state = Mutex::new(State {
            name: Arc::from(name.as_str()),
            renames: 0,
            owed: Owed { after: 0, types: [&TYPES[..], &[DERIVED]].concat(), removed: false },
            dice,
            down_until: Tick(0),
            dead_topics: BTreeMap::new(),
            gone_topics: BTreeSet::new(),
            poison: BTreeMap::new(),
            acked: BTreeSet::new(),
            sent: Vec::new(),
            sick_topics: BTreeMap::new(),
            told: BTreeSet::new(),
            ever_gone: BTreeSet::new(),
            policy: DeadKeyPolicy::default(),
            tried: BTreeMap::new(),
            heard: BTreeMap::new(),
        });
        Place { born: name, memory, kernel, weather, story, network, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the destination is called now.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.state().name)
    }

    /// A name that the destination never had.
    pub fn next_name(&self) -> String {
        format!("{}-as-{}", self.born, self.state().renames + 1)
    }

    /// The destination is called otherwise from now on. It is the same broker.
    pub fn rename(&self, name: &str) {
        let mut state = self.state();
        state.name = Arc::from(name);
        state.renames += 1;
    }

    /// Goes away until a time.
    pub fn down_until(&self, until: Tick) {
        self.state().down_until = until;
    }

    /// One topic takes nothing until a time.
    pub fn topic_down_until(&self, topic: &str, until: Tick) {
        self.state().dead_topics.insert(Box::from(topic), until);
    }

    /// One topic answers each event with a failure of its own until a time.
    pub fn topic_sick_until(&self, topic: &str, until: Tick) {
        self.state().sick_topics.insert(Box::from(topic), until);
    }

    /// When each delivery that it holds was sent, in the order of [`MemoryBroker::published`].
    pub fn sent(&self) -> Vec<Tick> {
        self.state().sent.clone()
    }

    /// Whether an event may be given up: since it was first sent, its topic took something. Otherwise
    /// its endpoint is to blame, and not the event.
    pub fn may_give_up(&self, id: EventId, topic: &str) -> bool {
        let state = self.state();
        let poison = state.poison.contains_key(&id);
        let heard = state.heard.get(topic).copied();
        poison || state.tried.get(&id).is_some_and(|sent| heard.is_some_and(|at| at >= *sent))
    }

    /// Each attempt may fail, also by never being answered.
    fn note_tries(&self, batch: &[Outgoing], sent: Tick) {
        let mut state = self.state();
        for out in batch {
            state.tried.entry(out.event.id).or_insert(sent);
        }
    }

    fn note_told(&self, owner: &RelayId, batch: &[Outgoing], result: &Result<Vec<Outcome>>) {
        let Ok(outcomes) = result else { return };
        let mut state = self.state();
        for (out, _) in batch.iter().zip(outcomes).filter(|(_, o)| **o == Outcome::Acked) {
            state.told.insert((owner.clone(), out.event.id));
        }
    }

    fn note_heard(&self, batch: &[Outgoing], result: &Result<Vec<Outcome>>) {
        let now = self.kernel.now();
        if let Ok(outcomes) = result
            && outcomes.contains(&Outcome::Acked)
            && let Some(out) = batch.first()
        {
            self.state().heard.insert(Arc::clone(&out.topic), now);
        }
    }

    /// One topic says that it is gone, for good until [`Place::recover`].
    pub fn topic_gone(&self, topic: &str) {
        let mut state = self.state();
        state.gone_topics.insert(Box::from(topic));
        state.ever_gone.insert(Box::from(topic));
    }

    /// From now on it takes everything but poison again.
    pub fn recover(&self) {
        let mut state = self.state();
        state.down_until = Tick(0);
        state.dead_topics.clear();
        state.sick_topics.clear();
        state.gone_topics.clear();
        if state.policy == DeadKeyPolicy::Halt {
            // What is tried for ever comes right some day.
            state.poison.clear();
        }
    }

    /// What a dead letter does to its key here.
    pub fn set_policy(&self, policy: DeadKeyPolicy) {
        self.state().policy = policy;
    }

    /// Whether a dead letter holds its key here.
    pub fn parks(&self) -> bool {
        self.state().policy == DeadKeyPolicy::Park
    }

    /// Whether a topic ever said that it is gone.
    pub fn was_gone(&self, topic: &str) -> bool {
        self.state().ever_gone.contains(topic)
    }

    /// Whether a relay heard that an event was taken.
    pub fn has_told(&self, owner: &RelayId, id: EventId) -> bool {
        self.state().told.contains(&(owner.clone(), id))
    }

    /// Whether an event is refused here for good.
    pub fn refuses(&self, id: EventId) -> bool {
        self.state().poison.get(&id) == Some(&Poison::Refused)
    }

    /// Makes an event poison here.
    pub fn poison(&self, id: EventId, how: Poison) {
        self.state().poison.insert(id, how);
    }

    /// Whether it has an event and said so, or would have.
    pub fn has(&self, id: EventId) -> bool {
        self.state().acked.contains(&id)
    }

    /// Which events it is owed.
    pub fn owed(&self) -> Owed {
        self.state().owed.clone()
    }

    /// It is owed only what is committed after so many others.
    pub fn begins_after(&self, committed: u64) {
        self.state().owed.after = committed;
    }

    /// From now on it is owed these types only; what it was not owed before it is not owed now.
    pub fn takes_only(&self, types: &[&'static str]) {
        self.state().owed.types.retain(|kind| types.contains(kind));
    }

    /// It is owed nothing any more.
    pub fn remove(&self) {
        self.state().owed.removed = true;
    }

    /// How many events it holds.
    pub fn count(&self) -> u64 {
        self.state().acked.len() as u64
    }

    fn fate(&self, rows: usize) -> Fate {
        let (mut state, weather) = (self.state(), &self.weather);
        let dice = &mut state.dice;
        let slow = weather.strikes(dice, "broker_slow", |rates| rates.broker_slow);
        let most = if slow { 9_000_000 } else { 5_000 };
        Fate {
            sent: self.kernel.now(),
            there: Duration::from_micros(dice.between(200, most)),
            back: Duration::from_micros(dice.between(200, most)),
            lost_there: weather.strikes(dice, "broker_lost_there", |rates| rates.broker_lost_there),
            lost_back: weather.strikes(dice, "broker_lost_back", |rates| rates.broker_lost_back),
            twice: weather.strikes(dice, "broker_twice", |rates| rates.broker_twice),
            refused: weather
                .strikes(dice, "broker_refuses_one", |rates| rates.broker_refuses_one)
                .then(|| usize::try_from(dice.below(rows as u64)).unwrap_or_default()),
            throttled: weather.strikes(dice, "broker_throttles", |rates| rates.broker_throttles),
        }
    }

    /// The broker's own act, at one moment.
    fn take(&self, batch: &[Outgoing], fate: &Fate) -> Result<Vec<Outcome>> {
        let now = self.kernel.now();
        if now < self.state().down_until {
            self.weather.count("broker_down_felt");
            return Err(Error::new(ErrorKind::Unavailable, "publish").message("connection refused"));
        }
        let prefix = self.memory.capabilities().prefix_order;
        let mut stopped: BTreeSet<KeyHash> = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(batch.len());
        for (index, out) in batch.iter().enumerate() {
            let key = out.event.key_hash();
            let outcome = if stopped.contains(&key) {
                Outcome::Skipped
            } else {
                self.take_one(out, index, fate, now)
            };
            if prefix && outcome != Outcome::Acked {
                stopped.insert(key);
            }
            self.tell(out, &outcome);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    fn take_one(&self, out: &Outgoing, index: usize, fate: &Fate, now: Tick) -> Outcome {
        let mut state = self.state();
        if state.dead_topics.get(&*out.topic).is_some_and(|until| now < *until) {
            drop(state);
            self.weather.count("topic_down_felt");
            return Outcome::Unroutable(Fault::new(ErrorKind::NotFound, "no such topic"));
        }
        if state.sick_topics.get(&*out.topic).is_some_and(|until| now < *until) {
            drop(state);
            self.weather.count("topic_sick_felt");
            let fault = Fault::new(ErrorKind::Unavailable, "502");
            return Outcome::Retry { fault, after: None };
        }
        if state.gone_topics.contains(&*out.topic) {
            drop(state);
            self.weather.count("topic_gone_felt");
            return Outcome::Gone(Fault::new(ErrorKind::NotFound, "410"));
        }
        match state.poison.get(&out.event.id) {
            Some(Poison::Refused) => {
                return Outcome::Rejected(Fault::new(ErrorKind::Rejected, "schema"));
            }
            Some(Poison::Fails) => {
                let fault = Fault::new(ErrorKind::Unavailable, "500");
                return Outcome::Retry { fault, after: None };
            }
            None => {}
        }
        if fate.throttled {
            let after = Some(Duration::from_millis(state.dice.between(100, 3_000)));
            return Outcome::Retry { fault: Fault::new(ErrorKind::Busy, "429"), after };
        }
        if fate.refused == Some(index) {
            let fault = Fault::new(ErrorKind::Unavailable, "503");
            return Outcome::Retry { fault, after: None };
        }
        state.acked.insert(out.event.id);
        let times = if fate.twice { 2 } else { 1 };
        state.sent.extend(std::iter::repeat_n(fate.sent, times));
        drop(state);
        for _ in 0..times {
            store(&self.memory, out);
        }
        Outcome::Acked
    }

    fn tell(&self, out: &Outgoing, outcome: &Outcome) {
        self.story.tell(&self.name(), || {
            let marks = match (out.marks.late, out.marks.replay) {
                (true, _) => " late",
                (_, true) => " replay",
                _ => "",
            };
            let (event, topic) = (&out.event, &out.topic);
            let n = short(event.id);
            format!("{outcome:?} {n} of {} on {topic}, attempt {}{marks}", event.key(), out.attempt)
        });
    }
}

/// The memory broker takes one at once.
fn store(memory: &MemoryBroker, out: &Outgoing) {
    let batch = std::slice::from_ref(out);
    let mut publish = memory.publish(batch);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let done = publish.as_mut().poll(&mut context);
    debug_assert!(matches!(done, Poll::Ready(Ok(_))), "the memory broker answers at once");
}

/// A relay's connection to a place.
#[derive(Debug)]
pub struct Connection {
    place: Arc<Place>,
    capabilities: BrokerCapabilities,
    shared: Arc<Shared>,
    owner: RelayId,
    under_way: Arc<AtomicU32>,
}

/// A call under way, until it is answered or dropped.
struct Flight(Arc<AtomicU32>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// A connection of a relay.
    pub fn new(place: Arc<Place>, shared: Arc<Shared>, owner: RelayId) -> Connection {
        let capabilities = place.memory.capabilities();
        Connection { place, capabilities, shared, owner, under_way: Arc::default() }
    }

    /// INV-6: neither a batch nor what is under way is larger than the broker takes.
    fn take_off(&self, rows: usize) -> Flight {
        let flights = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        let can = &self.capabilities;
        if rows > can.batch_rows_max as usize || flights > OVERDUE * can.batches_in_flight_max {
            let what = format!("{} has {flights} batches under way, one of {rows}", self.owner);
            self.shared.broke(Invariant::Bounded, format!("{what}, where {can:?} is the limit"));
        }
        Flight(Arc::clone(&self.under_way))
    }

    /// Nobody starts to send what it has no lease for, by the store's clock.
    fn look_at_leases(&self, batch: &[Outgoing]) {
        let partitions = u64::from(self.shared.scenario.partitions);
        for out in batch.iter().filter(|_| self.shared.leases_stand()) {
            let partition = u16::try_from(out.event.key_hash().0 % partitions).unwrap_or_default();
            let holder = self.shared.store.holder(PartitionId(partition));
            if holder.as_ref() != Some(&self.owner) {
                let (event, owner) = (short(out.event.id), &self.owner);
                let what = format!(
                    "{owner} sends {event} of partition {partition}, which is {holder:?}'s"
                );
                self.shared.broke(Invariant::KeyOrder, what);
            }
        }
    }
}

/// An answer that comes, or does not.
type Slot = Arc<Mutex<(Option<Result<Vec<Outcome>>>, Option<std::task::Waker>)>>;

impl Broker for Connection {
    fn capabilities(&self) -> BrokerCapabilities {
        self.capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        self.look_at_leases(batch);
        let (place, batch) = (Arc::clone(&self.place), batch.to_vec());
        let slot: Slot = Arc::default();
        let answer = Arc::clone(&slot);
        let (kernel, owner) = (Arc::clone(&self.place.kernel), self.owner.clone());
        let flight = self.take_off(batch.len());
        kernel.spawn(self.place.network, async move {
            let fate = place.fate(batch.len());
            place.note_tries(&batch, fate.sent);
            place.kernel.sleep(fate.there).await;
            let result = if fate.lost_there {
                Err(Error::new(ErrorKind::Unavailable, "publish").message("the connection broke"))
            } else {
                place.take(&batch, &fate)
            };
            place.kernel.sleep(fate.back).await;
            if fate.lost_back && result.is_ok() {
                place.story.tell(&place.name(), || "loses the answer".to_owned());
                if place.state().dice.chance(5_000) {
                    // The sender waits until its deadline.
                    return;
                }
                let error = Error::new(ErrorKind::Unavailable, "publish");
                give(&slot, Err(error.message("the connection broke before the answer")));
                return;
            }
            place.note_heard(&batch, &result);
            place.note_told(&owner, &batch, &result);
            give(&slot, result);
        });
        Box::pin(std::future::poll_fn(move |context| {
            let _flight = &flight;
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            match answer.0.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    answer.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }
}

fn give(slot: &Slot, result: Result<Vec<Outcome>>) {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    slot.0 = Some(result);
    if let Some(waker) = slot.1.take() {
        waker.wake();
    }
}
