//! A destination's broker behind a network that misbehaves.
//!
//! What is sent travels on its own: it arrives also when its sender has died or has given up waiting,
//! as a packet does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use postrider_core::{
    Broker, DeadKeyPolicy, Error, ErrorKind, EventId, Fault, KeyHash, Outcome, Outgoing, RelayId,
    Result, Tick,
};
use postrider_testkit::memory::MemoryBroker;

use crate::app::{TYPES, short};
use crate::consumer::DERIVED;
use crate::dice::Dice;
use crate::exec::{Kernel, ProcessNo};
use crate::owed::Owed;
use crate::story::Story;
use crate::weather::Weather;

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

#[derive(Debug)]
pub(crate) struct State {
    /// The destination's name now, and how often it had another.
    name: Arc<str>,
    renames: u32,
    pub(crate) owed: Owed,
    pub(crate) dice: Dice,
    /// Not reachable until then.
    down_until: Tick,
    /// Topics that take nothing until then.
    dead_topics: BTreeMap<Box<str>, Tick>,
    gone_topics: BTreeSet<Box<str>>,
    pub(crate) poison: BTreeMap<EventId, Poison>,
    /// Events that it holds: what may be recorded as published.
    acked: BTreeSet<EventId>,
    /// When each delivery that it holds was sent, in the order in which they arrived.
    sent: Vec<Tick>,
    /// Topics that answer each event with a failure of its own until then.
    sick_topics: BTreeMap<Box<str>, Tick>,
    /// Topics of which a part takes nothing until then.
    limping_topics: BTreeMap<Box<str>, Tick>,
    /// Topics that refuse each event for good until then.
    strict_topics: BTreeMap<Box<str>, Tick>,
    /// Events that were refused for good by such a one.
    refused: BTreeSet<EventId>,
    /// Events that failed, and whether all that anybody heard of them was that a part of their topic takes nothing.
    pub(crate) hindered: BTreeMap<EventId, bool>,
    /// Who heard of which event that it was taken: what that relay may record as published.
    pub(crate) told: BTreeSet<(RelayId, EventId)>,
    /// Topics that ever said that they are gone.
    ever_gone: BTreeSet<Box<str>>,
    /// What a dead letter does to its key here.
    policy: DeadKeyPolicy,
    /// When each event was first sent.
    pub(crate) tried: BTreeMap<EventId, Tick>,
    /// When each event was last sent.
    pub(crate) tried_last: BTreeMap<EventId, Tick>,
    /// When a sender last heard that a topic took something.
    pub(crate) heard: BTreeMap<Arc<str>, Tick>,
}

/// What becomes of a batch.
pub(crate) struct Fate {
    pub(crate) sent: Tick,
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) lost_there: bool,
    pub(crate) lost_back: bool,
    pub(crate) twice: bool,
    pub(crate) refused: Option<usize>,
    pub(crate) throttled: bool,
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
            limping_topics: BTreeMap::new(),
            strict_topics: BTreeMap::new(),
            refused: BTreeSet::new(),
            hindered: BTreeMap::new(),
            told: BTreeSet::new(),
            ever_gone: BTreeSet::new(),
            policy: DeadKeyPolicy::default(),
            tried: BTreeMap::new(),
            tried_last: BTreeMap::new(),
            heard: BTreeMap::new(),
        });
        Place { born: name, memory, kernel, weather, story, network, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
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

    /// A part of one topic takes nothing until a time.
    pub fn topic_limps_until(&self, topic: &str, until: Tick) {
        self.state().limping_topics.insert(Box::from(topic), until);
    }

    /// One topic refuses each event for good until a time.
    pub fn topic_strict_until(&self, topic: &str, until: Tick) {
        self.state().strict_topics.insert(Box::from(topic), until);
    }

    /// When each delivery that it holds was sent, in the order of [`MemoryBroker::published`].
    pub fn sent(&self) -> Vec<Tick> {
        self.state().sent.clone()
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
        state.limping_topics.clear();
        state.strict_topics.clear();
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

    /// Whether an event is refused here for good, or was.
    pub fn refuses(&self, id: EventId) -> bool {
        let state = self.state();
        state.poison.get(&id) == Some(&Poison::Refused) || state.refused.contains(&id)
    }

    /// Makes an event poison here.
    pub fn poison(&self, id: EventId, how: Poison) {
        self.state().poison.insert(id, how);
    }

    /// Whether it has an event and said so, or would have.
    pub fn has(&self, id: EventId) -> bool {
        self.state().acked.contains(&id)
    }

    /// How many events it holds.
    pub fn count(&self) -> u64 {
        self.state().acked.len() as u64
    }

    pub(crate) fn fate(&self, rows: usize) -> Fate {
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
    pub(crate) fn take(&self, batch: &[Outgoing], fate: &Fate) -> Result<Vec<Outcome>> {
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
        let limps = state.limping_topics.get(&*out.topic).is_some_and(|until| now < *until);
        // By other bits than those that say which partition of the store it is.
        if limps && (out.event.key_hash().0 >> 32).is_multiple_of(3) {
            drop(state);
            self.weather.count("topic_limping_felt");
            return Outcome::Hindered(Fault::new(ErrorKind::Timeout, "no leader"));
        }
        if state.strict_topics.get(&*out.topic).is_some_and(|until| now < *until) {
            state.refused.insert(out.event.id);
            drop(state);
            self.weather.count("topic_strict_felt");
            return Outcome::Rejected(Fault::new(ErrorKind::Rejected, "no schema"));
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
