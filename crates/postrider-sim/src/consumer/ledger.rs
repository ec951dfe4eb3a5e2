//! Who was given which claim, and for how long: what shows that a claim has one owner at a time.
//!
//! Everything is judged by what the workers were told and when, in the world's time: a claim stands
//! at least until a lease after it was *asked* for, and at most until a lease after its answer came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_core::{ClaimLease, InboxKey, Invariant, Tick};

use super::Worker;
use super::shop::{STEPS, Shop};
use crate::app::short;

/// What is known of the claims.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    grants: BTreeMap<InboxKey, BTreeMap<u64, Grant>>,
    /// Events whose result is recorded, or was seen to be, with the token if it is known.
    done: BTreeMap<InboxKey, Option<u64>>,
    /// Steps whose result is stored.
    stored: BTreeSet<(InboxKey, &'static str)>,
    /// Events whose claims and results were lost with the store: nothing is said of these any more.
    forgotten: BTreeSet<InboxKey>,
    /// Events that an operator made the inbox forget, with the token up to which claims are void.
    void: BTreeMap<InboxKey, u64>,
}

impl Ledger {
    /// The store has lost what it had.
    pub(super) fn forget(&mut self) {
        self.forgotten.extend(std::mem::take(&mut self.grants).into_keys());
        self.forgotten.extend(std::mem::take(&mut self.done).into_keys());
        self.stored.clear();
    }

    /// One event is not done any more, and nobody has its claim: it is not forgotten while a lease
    /// runs. Steps that are stored stay so.
    pub(super) fn forget_one(&mut self, key: &InboxKey, void_through: u64) {
        self.done.remove(key);
        let grants = self.grants.get_mut(key).into_iter().flat_map(BTreeMap::values_mut);
        grants.for_each(|grant| grant.released = true);
        self.void.insert(key.clone(), void_through);
    }

    /// Whether what is said under a token was true before the event was forgotten, and is not now: the
    /// answer was on its way.
    fn is_void(&self, lease: &ClaimLease) -> bool {
        self.void.get(&lease.key).is_some_and(|through| lease.token <= *through)
    }
}

/// A claim that was granted.
#[derive(Debug)]
struct Grant {
    owner: String,
    /// The store's lease runs at least until then.
    at_least: Tick,
    /// The owner may believe in it at most until then.
    at_most: Tick,
    /// Its owner wanted to let it go.
    released: bool,
}

impl Shop {
    /// A claim was granted: asked for at `sent`, and known to its worker now.
    pub(super) fn granted(&self, by: &Worker, lease: &ClaimLease, sent: Tick, span: Duration) {
        let now = self.kernel.now();
        let (id, token) = (short(lease.key.event_id), lease.token);
        self.tell(&by.name, || format!("is granted the claim of {id} as {token}"));
        let what = {
            let mut state = self.state();
            let ledger = &mut state.ledger;
            // The answer to an older claim may come late; to a newer one it must not come at all.
            let done = ledger.done.get(&lease.key).copied().flatten();
            let done = done.is_some_and(|recorded| token > recorded);
            let grants = ledger.grants.entry(lease.key.clone()).or_default();
            let before = grants.range(..=token).next_back();
            let forgotten = ledger.forgotten.contains(&lease.key);
            let what = match before {
                _ if forgotten => None,
                _ if done => Some("although its result was recorded".to_owned()),
                Some((same, grant)) if *same == token => {
                    Some(format!("under the token {token} that {} has", grant.owner))
                }
                Some((_, grant)) if !grant.released && now < grant.at_least => {
                    Some(format!("while the claim of {} stands", grant.owner))
                }
                _ => None,
            };
            let (at_least, at_most) = (sent + span, now + span);
            let owner = by.name.clone();
            grants.insert(token, Grant { owner, at_least, at_most, released: false });
            what
        };
        if let Some(what) = what {
            self.broke(Invariant::OneEffect, format!("{} was granted {id} {what}", by.name));
        }
    }

    /// A heartbeat was answered well.
    pub(super) fn prolonged(&self, lease: &ClaimLease, sent: Tick, span: Duration) {
        let now = self.kernel.now();
        if let Some(grant) = self.state().grant(lease) {
            grant.at_least = grant.at_least.max(sent + span);
            grant.at_most = grant.at_most.max(now + span);
        }
    }

    /// A worker lets its claim go.
    pub(super) fn releasing(&self, lease: &ClaimLease) {
        if let Some(grant) = self.state().grant(lease) {
            grant.released = true;
        }
    }

    /// A handler that was not told to stop goes on: the claim must be its own.
    pub(super) fn goes_on(&self, by: &Worker, lease: &ClaimLease) {
        let now = self.kernel.now();
        let what = {
            let mut state = self.state();
            if state.ledger.forgotten.contains(&lease.key) {
                return;
            }
            let grants = state.ledger.grants.entry(lease.key.clone()).or_default();
            let newer = grants.last_key_value().filter(|(token, _)| **token > lease.token);
            match (newer, grants.get(&lease.token)) {
                (Some((_, grant)), _) => format!("although {} owns its claim now", grant.owner),
                (None, Some(grant)) if now > grant.at_most => {
                    "although its claim may have run out".to_owned()
                }
                _ => return,
            }
        };
        let id = short(lease.key.event_id);
        self.broke(Invariant::OneEffect, format!("{} works on {id} {what}", by.name));
    }

    /// A step asks the service for its effect.
    pub(super) fn step_begins(&self, by: &Worker, lease: &ClaimLease, step: &'static str) {
        self.goes_on(by, lease);
        let (key, id) = (&lease.key, short(lease.key.event_id));
        let (stored, done) = {
            let state = self.state();
            let ledger = &state.ledger;
            if ledger.forgotten.contains(key) {
                return;
            }
            (ledger.stored.contains(&(key.clone(), step)), ledger.done.contains_key(key))
        };
        if stored || done {
            let what = format!("{} makes {step} of {id}, whose result is stored", by.name);
            self.broke(Invariant::OneEffect, what);
        }
    }

    /// A result of a step is on its way to the store.
    pub(super) fn step_recording(&self, by: &Worker, lease: &ClaimLease, step: &str) {
        if let Some(step) = STEPS.into_iter().find(|known| *known == step)
            && !self.has_effect(&lease.key, step)
        {
            let id = short(lease.key.event_id);
            let what = format!("{} records {step} of {id}, which was not made", by.name);
            self.broke(Invariant::Truth, what);
        }
    }

    /// A result of a step is stored.
    pub(super) fn step_recorded(&self, lease: &ClaimLease, step: &str) {
        if let Some(step) = STEPS.into_iter().find(|known| *known == step) {
            self.state().ledger.stored.insert((lease.key.clone(), step));
        }
    }

    /// A result was recorded.
    pub(super) fn completed(&self, by: &Worker, lease: &ClaimLease) {
        let newer = {
            let mut state = self.state();
            let ledger = &mut state.ledger;
            let void = ledger.is_void(lease);
            if !void {
                ledger.done.insert(lease.key.clone(), Some(lease.token));
            }
            let known = !void && !ledger.forgotten.contains(&lease.key);
            let newest = ledger.grants.get(&lease.key).and_then(|grants| grants.last_key_value());
            let newest = newest.filter(|(token, _)| known && **token > lease.token);
            newest.map(|(_, grant)| grant.owner.clone())
        };
        if let Some(owner) = newer {
            let id = short(lease.key.event_id);
            let what = format!("{} recorded {id}, whose claim is {owner}'s", by.name);
            self.broke(Invariant::OneEffect, what);
        }
        self.was_made(&lease.key);
    }

    /// The store says that it was done.
    pub(super) fn was_done(&self, key: &InboxKey) {
        let mut state = self.state();
        // Of what was ever forgotten, the answer may be older than that.
        if !state.ledger.void.contains_key(key) {
            state.ledger.done.entry(key.clone()).or_insert(None);
        }
        drop(state);
        self.was_made(key);
    }

    /// What is recorded as done must have been.
    fn was_made(&self, key: &InboxKey) {
        let missing = STEPS.into_iter().find(|step| !self.has_effect(key, step));
        if let Some(step) = missing {
            let id = short(key.event_id);
            self.broke(Invariant::Truth, format!("{id} is recorded, and {step} was not made"));
        }
    }

    /// Whether a leased handler is known to be done with an event.
    pub(super) fn is_done(&self, key: &InboxKey) -> bool {
        self.state().ledger.done.contains_key(key)
    }
}

impl super::shop::State {
    fn grant(&mut self, lease: &ClaimLease) -> Option<&mut Grant> {
        self.ledger.grants.get_mut(&lease.key)?.get_mut(&lease.token)
    }
}
