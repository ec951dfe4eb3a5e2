//! What must be so at last: each message done exactly as promised, or dead for a reason.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{ErrorKind, EventId, Fault, HandlerName, InboxKey, Invariant, Marks};
use postrider_testkit::memory::{MemoryBroker, MemoryStore};

use super::shop::STEPS;
use super::{Kind, Shop};
use crate::app::short;

/// One group of consumers: all that act on a topic under one handler's name.
#[derive(Debug)]
pub struct Group<'a> {
    /// The record.
    pub shop: &'a Shop,
    /// The broker.
    pub broker: &'a MemoryBroker,
    /// The topic.
    pub topic: &'a str,
    /// The handler, and the group.
    pub handler: &'a HandlerName,
    /// Where the handler's effects are.
    pub kind: Kind,
    /// The store, without a line.
    pub store: &'a MemoryStore,
}

/// A message that the broker took, where it stands for its event first.
struct Message {
    key: InboxKey,
    lane: String,
    marks: Marks,
}

impl Group<'_> {
    /// The events of the topic, in the order in which the broker first took each.
    fn messages(&self) -> Vec<Message> {
        let mut seen = BTreeSet::new();
        let mut messages = Vec::new();
        for published in self.broker.published() {
            if *published.topic != *self.topic || !published.is_acked() {
                continue;
            }
            let event = &published.event;
            if let Ok(key) = InboxKey::of(event, self.handler)
                && seen.insert(key.clone())
            {
                messages.push(Message { key, lane: event.key(), marks: published.marks });
            }
        }
        messages
    }

    /// Messages of these events are at the dead letters.
    fn dead(&self) -> BTreeMap<InboxKey, Fault> {
        let dead = self.broker.dead_letters(self.topic, self.handler.as_str());
        dead.into_iter()
            .filter_map(|(event, fault)| Some((InboxKey::of(&event, self.handler).ok()?, fault)))
            .collect()
    }

    /// How often the effect of each event was made in the database.
    fn committed(&self) -> BTreeMap<InboxKey, u32> {
        let mut counts = BTreeMap::new();
        for key in self.store.effects().into_iter().filter(|key| key.handler == *self.handler) {
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    /// Whether every message is settled, and every event done or dead.
    ///
    /// # Errors
    /// What is not.
    pub fn at_rest(&self) -> Result<(), String> {
        let open = self.broker.unsettled(self.topic, self.handler.as_str());
        if open > 0 {
            return Err(format!("{open} messages of {} are open for {}", self.topic, self.handler));
        }
        let (dead, committed) = (self.dead(), self.committed());
        for message in self.messages() {
            let done = match self.kind {
                Kind::Transactional => committed.contains_key(&message.key),
                Kind::Leased => self.shop.is_done(&message.key),
            };
            let done = done || self.shop.was_done_before_it_was_forgotten(&message.key);
            if !done && !dead.contains_key(&message.key) {
                let (id, handler) = (short(message.key.event_id), self.handler);
                return Err(format!("{id} of {} is not done by {handler}", message.lane));
            }
        }
        Ok(())
    }

    /// Judges what happened. Call it at the end, when everything is [`at_rest`](Group::at_rest), or
    /// must be.
    pub fn judge(&self) {
        if let Err(what) = self.at_rest() {
            self.shop.broke(Invariant::NoLoss, what);
        }
        let (messages, dead, committed) = (self.messages(), self.dead(), self.committed());
        for (key, count) in &committed {
            if *count > self.shop.effects_max(key) {
                let (id, handler) = (short(key.event_id), self.handler);
                let what = format!("the effect of {id} for {handler} was committed {count} times");
                self.shop.broke(Invariant::OneEffect, what);
            }
        }
        for (key, fault) in &dead {
            self.judge_dead(key, fault);
        }
        self.judge_derived(&messages, &committed);
        self.judge_order(&messages, &dead);
        if self.kind == Kind::Leased {
            self.judge_steps(&messages);
        }
    }

    /// A message is dead because its handler said so, or never said anything: no failure of a store,
    /// a broker, or a network is a reason.
    fn judge_dead(&self, key: &InboxKey, fault: &Fault) {
        let reason = match fault.detail.as_str() {
            text if text.starts_with("gave up after") => self.shop.has_failed(key),
            text if text.ends_with("it may stop the consumer's process") => {
                fault.kind == ErrorKind::Internal
            }
            text if text.starts_with("PR-1101") => true,
            _ => self.shop.has_refused(key),
        };
        if !reason {
            let id = short(key.event_id);
            let what = format!("{id} is dead, and its handler never failed: {fault}");
            self.shop.broke(Invariant::NoLoss, what);
        }
    }

    /// What handlers enqueued is there where the effect is, once, and nowhere else.
    fn judge_derived(&self, messages: &[Message], committed: &BTreeMap<InboxKey, u32>) {
        let there: BTreeSet<EventId> =
            self.store.committed().into_iter().map(|row| row.row.id).collect();
        for message in messages {
            let derived = self.shop.derived(&message.key);
            let count = derived.iter().filter(|id| there.contains(id)).count();
            // One for each effect; how many of those there may be is judged elsewhere.
            let most = committed.get(&message.key).map_or(0, |count| *count as usize);
            if count > most {
                let id = short(message.key.event_id);
                let what = format!("{id} has {most} effects and {count} events of its handler");
                self.shop.broke(Invariant::OneEffect, what);
            }
        }
    }

    /// The effects of a key are in the order of its messages, as the subscription promises.
    fn judge_order(&self, messages: &[Message], dead: &BTreeMap<InboxKey, Fault>) {
        let order = match self.kind {
            Kind::Transactional => self.store.effects(),
            Kind::Leased => self.shop.order(self.handler),
        };
        // What was forgotten and is done again has its first effect in order, and no other.
        let mut place: BTreeMap<&InboxKey, usize> = BTreeMap::new();
        for (key, at) in order.iter().zip(0..) {
            place.entry(key).or_insert(at);
        }
        let mut last: BTreeMap<&str, (usize, &InboxKey)> = BTreeMap::new();
        for message in messages {
            // One that gave up holds nobody, and may still be at work elsewhere.
            let free =
                message.marks.late || message.marks.replay || dead.contains_key(&message.key);
            let Some(&at) = place.get(&message.key).filter(|_| !free) else { continue };
            if let Some((before, earlier)) = last.insert(&message.lane, (at, &message.key))
                && before > at
            {
                let (id, earlier) = (short(message.key.event_id), short(earlier.event_id));
                let what = format!("{id} of {} had its effect before {earlier}", message.lane);
                self.shop.broke(Invariant::KeyOrder, what);
            }
        }
    }

    /// What a leased handler is done with has all its effects.
    fn judge_steps(&self, messages: &[Message]) {
        for message in messages.iter().filter(|message| self.shop.is_done(&message.key)) {
            for step in STEPS {
                if !self.shop.has_effect(&message.key, step) {
                    let id = short(message.key.event_id);
                    let what = format!("{id} is done, and {step} was not made");
                    self.shop.broke(Invariant::NoLoss, what);
                }
            }
        }
    }
}
