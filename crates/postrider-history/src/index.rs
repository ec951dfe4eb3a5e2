//! A history by what is asked of it: built once, read by every check. Sorted maps only, so that the
//! same history always gives the same verdict.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::EventId;

use crate::{Commit, Delivery, History, Record, Waiting};

/// (destination, event).
pub(crate) type Place<'a> = (&'a str, EventId);

#[derive(Debug, Default)]
pub(crate) struct Index<'a> {
    pub(crate) commits: BTreeMap<EventId, &'a Commit>,
    pub(crate) rolled_back: BTreeSet<EventId>,
    /// In order of arrival.
    pub(crate) deliveries: Vec<&'a Delivery>,
    pub(crate) delivered: BTreeSet<Place<'a>>,
    pub(crate) waiting: BTreeMap<Place<'a>, &'a Waiting>,
    /// By (source, event, handler).
    pub(crate) effects: BTreeMap<(&'a str, EventId, &'a str), u64>,
    /// The first acknowledgement of each.
    pub(crate) acked: BTreeMap<Place<'a>, u64>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(history: &'a History) -> Index<'a> {
        let mut index = Index::default();
        for record in history.records() {
            index.add(record);
        }
        // Stable: what has the same place keeps the order in which it was recorded.
        index.deliveries.sort_by_key(|delivery| delivery.order);
        index
    }

    fn add(&mut self, record: &'a Record) {
        match record {
            Record::Commit(commit) => {
                self.commits.insert(commit.id, commit);
            }
            Record::Rollback { id } => {
                self.rolled_back.insert(*id);
            }
            Record::Delivery(delivery) => {
                self.deliveries.push(delivery);
                self.delivered.insert((&delivery.destination, delivery.id));
            }
            Record::Waiting(waiting) => {
                self.waiting.insert((&waiting.destination, waiting.id), waiting);
            }
            Record::Effect(effect) => {
                let identity = (&*effect.source, effect.id, &*effect.handler);
                *self.effects.entry(identity).or_default() += effect.count;
            }
            Record::Ack(ack) => {
                let first = self.acked.entry((&ack.destination, ack.id)).or_insert(ack.order);
                *first = ack.order.min(*first);
            }
            Record::Published(_) | Record::Gauge(_) | Record::Progress(_) | Record::Delay(_) => {}
        }
    }

    /// Where a committed event should be and is not; an event without expectation is missing if it
    /// is nowhere.
    pub(crate) fn missing(&self, commit: &'a Commit) -> Vec<&'a str> {
        let visible =
            |place: &Place<'_>| self.delivered.contains(place) || self.waiting.contains_key(place);
        match &commit.destinations {
            Some(expected) => expected
                .iter()
                .map(String::as_str)
                .filter(|destination| !visible(&(*destination, commit.id)))
                .collect(),
            None => {
                let anywhere = self.destinations().any(|name| visible(&(name, commit.id)));
                if anywhere { Vec::new() } else { vec!["anywhere"] }
            }
        }
    }

    fn destinations(&self) -> impl Iterator<Item = &'a str> {
        let delivered = self.delivered.iter().map(|(name, _)| *name);
        let waiting = self.waiting.keys().map(|(name, _)| *name);
        delivered.chain(waiting).collect::<BTreeSet<_>>().into_iter()
    }

    /// Whether an event was committed, as far as the history knows.
    pub(crate) fn is_ghost(&self, id: EventId) -> bool {
        !self.commits.contains_key(&id)
    }

    /// The first deliveries that are out of their key's order, each with the event that came before
    /// it though it was committed after it.
    pub(crate) fn out_of_order(&self) -> Vec<(&'a Delivery, EventId)> {
        let mut seen: BTreeSet<Place<'_>> = BTreeSet::new();
        let mut latest: BTreeMap<(&str, &str), &Commit> = BTreeMap::new();
        let mut found = Vec::new();
        for delivery in &self.deliveries {
            let first = seen.insert((&delivery.destination, delivery.id));
            let Some(commit) = self.commits.get(&delivery.id) else {
                continue;
            };
            if !first || delivery.late || commit.unserialised {
                continue;
            }
            let latest = latest.entry((&delivery.destination, &commit.key)).or_insert(commit);
            if commit.order < latest.order {
                found.push((*delivery, latest.id));
            } else {
                *latest = commit;
            }
        }
        found
    }

    /// Deliveries that passed a waiting event which holds their key.
    pub(crate) fn passed_holder(&self) -> Vec<(&'a Delivery, EventId)> {
        let mut holders: BTreeMap<(&str, &str), &Commit> = BTreeMap::new();
        for waiting in self.waiting.values().filter(|waiting| waiting.holds_key) {
            let place = (&*waiting.destination, waiting.id);
            let Some(commit) = self.commits.get(&waiting.id) else {
                continue;
            };
            if commit.unserialised || self.delivered.contains(&place) {
                continue;
            }
            let first = holders.entry((&waiting.destination, &commit.key)).or_insert(commit);
            if commit.order < first.order {
                *first = commit;
            }
        }
        let mut seen: BTreeSet<Place<'_>> = BTreeSet::new();
        let mut found = Vec::new();
        for delivery in self.deliveries.iter().filter(|delivery| !delivery.late) {
            let Some(commit) = self.commits.get(&delivery.id) else {
                continue;
            };
            let holder = holders.get(&(&*delivery.destination, &*commit.key));
            if let Some(holder) = holder
                && commit.order > holder.order
                && !commit.unserialised
                && seen.insert((&delivery.destination, delivery.id))
            {
                found.push((*delivery, holder.id));
            }
        }
        found
    }
}
