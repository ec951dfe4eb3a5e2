//! What consumers did, for the checkers: who had which claim, who worked on what, which effects there
//! are outside the database, and how each handler ended.
//!
//! Safety is judged as things happen; the first broken promise is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::inbox::Verdict;
use postrider_core::{Delivery, EventId, HandlerName, InboxKey, Invariant, KeyHash};
use postrider_inbox::command::Answer;

use super::Worker;
use super::ledger::Ledger;
use crate::app::short;
use crate::exec::{Kernel, ProcessNo};
use crate::outcome::Failure;
use crate::story::Story;

/// The record of a world's consumers.
#[derive(Debug)]
pub struct Shop {
    pub(super) kernel: Arc<Kernel>,
    story: Arc<Story>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) ledger: Ledger,
    /// Keys with a handler at work, by process.
    in_work: BTreeSet<(ProcessNo, KeyHash)>,
    /// Effects at the service, by event, handler, and step: with the idempotency keys that made them.
    effects: BTreeMap<(InboxKey, &'static str), BTreeSet<String>>,
    /// First effects outside the database, in the order in which they were made.
    order: Vec<InboxKey>,
    /// Events that handlers wanted to enqueue in the transaction of their effect.
    derived: BTreeMap<InboxKey, Vec<EventId>>,
    /// Tries that the handler failed, so that they may count.
    failed: BTreeMap<InboxKey, u32>,
    /// What handlers refused.
    refused: BTreeSet<InboxKey>,
    /// Events whose handler said that it is done with them.
    answered_done: BTreeSet<InboxKey>,
    /// The store lost something.
    forgets: bool,
    /// How often an operator made the inbox forget an event.
    forgotten: BTreeMap<InboxKey, u32>,
    failure: Option<Failure>,
}

/// A handler at work on a key; over when it is dropped, however that comes.
#[derive(Debug)]
pub(super) struct InWork {
    shop: Arc<Shop>,
    at: (ProcessNo, KeyHash),
}

impl Drop for InWork {
    fn drop(&mut self) {
        self.shop.state().in_work.remove(&self.at);
    }
}

impl Shop {
    /// A record of nothing.
    pub fn new(kernel: Arc<Kernel>, story: Arc<Story>) -> Shop {
        Shop { kernel, story, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody did something.
    pub(super) fn tell(&self, who: &str, what: impl FnOnce() -> String) {
        self.story.tell(who, what);
    }

    /// The first promise that was seen broken.
    pub fn failure(&self) -> Option<Failure> {
        self.state().failure.clone()
    }

    /// How many effects were made outside the database.
    pub fn effects(&self) -> u64 {
        self.state().effects.len() as u64
    }

    /// A promise was broken.
    pub(super) fn broke(&self, invariant: Invariant, what: String) {
        let mut state = self.state();
        if state.failure.is_none() {
            self.story.tell("CHECKER", || format!("{invariant}: {what}"));
            state.failure = Some(Failure::new(invariant, what));
        }
    }

    /// The store lost what it had, within the stated loss: what it said of claims and results before
    /// proves nothing any more. What was acted on before is not done again where the broker was told
    /// so.
    pub fn store_forgot(&self) {
        let mut state = self.state();
        state.ledger.forget();
        state.forgets = true;
    }

    /// An operator made the inbox forget one event, whose claims up to a token are void by that: it may
    /// be claimed and done once more. Nothing else is excused: its claims have one owner at a time, no
    /// token is given twice, and a step whose result is stored is not made again.
    pub fn operator_forgot(&self, key: &InboxKey, void_through: u64) {
        let id = short(key.event_id);
        self.tell("operator", || format!("forgets {id} of {}", key.handler));
        let mut state = self.state();
        state.ledger.forget_one(key, void_through);
        *state.forgotten.entry(key.clone()).or_default() += 1;
    }

    /// How often an effect in the database may have been made: once, and once more for each time that
    /// it was forgotten.
    pub(super) fn effects_max(&self, key: &InboxKey) -> u32 {
        1 + self.state().forgotten.get(key).copied().unwrap_or_default()
    }

    /// Whether a handler is done with an event, as far as anybody knows who remembers.
    pub(super) fn was_done_before_it_was_forgotten(&self, key: &InboxKey) -> bool {
        let state = self.state();
        let forgotten = state.forgets || state.forgotten.contains_key(key);
        forgotten && state.answered_done.contains(key)
    }

    /// A handler begins.
    pub(super) fn begin(self: &Arc<Shop>, worker: &Worker, delivery: &Delivery) -> InWork {
        let at = (worker.process, delivery.key_hash());
        if !self.state().in_work.insert(at) {
            let what = format!("{} has two deliveries of one key in work at once", worker.name);
            self.broke(Invariant::KeyOrder, what);
        }
        self.tell(&worker.name, || match &delivery.event {
            Ok(event) => {
                let (id, key) = (short(event.id), event.key());
                format!("begins {id} of {key}, delivery {}", delivery.count)
            }
            Err(fault) => format!("begins what is no event: {fault}"),
        });
        InWork { shop: Arc::clone(self), at }
    }

    /// A handler ended.
    pub(super) fn answered(&self, handler: &HandlerName, delivery: &Delivery, answer: &Answer) {
        let Ok(event) = &delivery.event else { return };
        let Ok(key) = InboxKey::of(event, handler) else { return };
        self.tell(handler.as_str(), || format!("ends {} with {answer:?}", short(event.id)));
        match answer {
            Answer::Verdict(Verdict::Retry { .. }) | Answer::Panicked(_) => self.note_failed(key),
            Answer::Failed(error) if error.kind().blames_event() => self.note_failed(key),
            Answer::Verdict(Verdict::Reject(_)) => _ = self.state().refused.insert(key),
            Answer::Verdict(Verdict::Done | Verdict::Duplicate) => {
                self.state().answered_done.insert(key);
            }
            Answer::Verdict(_) | Answer::Failed(_) => {}
        }
    }

    /// A handler was dropped, because it did not stop when it was told to.
    pub(super) fn killed(&self, worker: &Worker, handler: &HandlerName, delivery: &Delivery) {
        let Ok(event) = &delivery.event else { return };
        self.tell(&worker.name, || format!("drops the handler of {}", short(event.id)));
        if let Ok(key) = InboxKey::of(event, handler) {
            self.note_failed(key);
        }
    }

    fn note_failed(&self, key: InboxKey) {
        *self.state().failed.entry(key).or_default() += 1;
    }

    /// Whether a handler ever failed an event in a way that counts.
    pub(super) fn has_failed(&self, key: &InboxKey) -> bool {
        self.state().failed.contains_key(key)
    }

    /// Whether a handler ever refused an event.
    pub(super) fn has_refused(&self, key: &InboxKey) -> bool {
        self.state().refused.contains(key)
    }

    /// The service makes an effect, or knows its key.
    pub(super) fn effect(&self, key: &InboxKey, step: &'static str, idempotency: &str) {
        let mut state = self.state();
        let keys = state.effects.entry((key.clone(), step)).or_default();
        let (first, fresh) = (keys.is_empty(), keys.insert(idempotency.to_owned()));
        let count = keys.len();
        if first && step == STEPS[0] {
            state.order.push(key.clone());
        }
        drop(state);
        let id = short(key.event_id);
        if fresh {
            self.tell("service", || format!("makes {step} of {id} for {idempotency}"));
        }
        if count > 1 {
            let what =
                format!("{step} of {id} was made {count} times, the last time for {idempotency}");
            self.broke(Invariant::OneEffect, what);
        }
    }

    /// Whether the service has made an effect.
    pub(super) fn has_effect(&self, key: &InboxKey, step: &'static str) -> bool {
        self.state().effects.contains_key(&(key.clone(), step))
    }

    /// The events of a handler in the order of their first effects outside the database.
    pub(super) fn order(&self, handler: &HandlerName) -> Vec<InboxKey> {
        let state = self.state();
        state.order.iter().filter(|key| key.handler == *handler).cloned().collect()
    }

    /// A handler enqueues an event in the transaction of its effect, which may not commit.
    pub(super) fn derives(&self, key: &InboxKey, id: EventId) {
        self.state().derived.entry(key.clone()).or_default().push(id);
    }

    /// What handlers wanted to enqueue.
    pub(super) fn derived(&self, key: &InboxKey) -> Vec<EventId> {
        self.state().derived.get(key).cloned().unwrap_or_default()
    }
}

/// The steps of every leased handler, in their order.
pub(super) const STEPS: [&str; 2] = ["charge", "mail"];
