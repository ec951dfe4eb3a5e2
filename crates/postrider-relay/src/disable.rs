//! Disable: an endpoint that is gone takes nothing until an operator enables it.
//!
//! Keeps INV-5 (its events leave the windows, so the cursor is not held, not even if every endpoint of
//! a destination is disabled) and INV-3 (what follows one of its events waits behind that).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postrider_core::source::Definitions;
use postrider_core::waiting::{
    DisabledEndpoint, Placement, Reason, RowRef, SettlementPart, WaitingChange,
};
use postrider_core::{DestinationId, Fault, KeyHash, PartitionId, Tick, reach};

use crate::attempt::attempted;
use crate::flow::Flow;
use crate::lane::Origin;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::outlet::Outlet;
use crate::owned::Owned;

/// An endpoint that is disabled.
#[derive(Clone, Debug)]
pub(crate) struct Disabling {
    /// What it answered; empty where another relay, or an operator, disabled it.
    detail: Arc<str>,
    known: Known,
}

/// Whether the store knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Not yet: the next settlement of some partition says so.
    No,
    /// That settlement is on its way, under this lease.
    Told(PartitionId, u64),
    /// Since before the question with this ticket: an answer that does not name it any more, to that
    /// or a later question, means that it was enabled.
    Since(u64),
}

/// What definitions say that was not known.
struct Learnt {
    /// These are disabled, and were not.
    gone: Vec<Box<str>>,
    /// These were, and are not.
    back: Vec<Box<str>>,
    /// The store was to be told of one, and knows it already.
    known_now: bool,
}

impl Outlet {
    /// What a disabled endpoint answered.
    fn gone(&self, index: u32) -> String {
        let disabling = self.disabled.get(&*self.endpoint(index).topic);
        disabling.map_or_else(String::new, |disabling| disabling.detail.to_string())
    }

    /// An endpoint takes nothing any more. Says whether that is news.
    fn disable(&mut self, topic: &str, disabling: Disabling) -> bool {
        if self.disabled.contains_key(topic) {
            return false;
        }
        if disabling.known == Known::No {
            self.untold.insert(Box::from(topic));
        }
        self.disabled.insert(Box::from(topic), disabling);
        self.set_disabled(topic, true);
        true
    }

    /// An endpoint is in service again. Says whether that is news.
    fn enable(&mut self, topic: &str) -> bool {
        self.untold.remove(topic);
        let was = self.disabled.remove(topic).is_some();
        if was {
            self.set_disabled(topic, false);
        }
        was
    }

    /// Takes over which endpoints are disabled, from the answer to the question with a ticket.
    fn learn_disabled(&mut self, topics: &BTreeSet<&str>, asked: u64) -> Learnt {
        let back = |topic: &str, known: Known| match known {
            Known::No | Known::Told(..) => false,
            Known::Since(ticket) => ticket <= asked && !topics.contains(topic),
        };
        let known = self.disabled.iter();
        let back: Vec<Box<str>> =
            known.filter(|(t, d)| back(t, d.known)).map(|(topic, _)| topic.clone()).collect();
        back.iter().for_each(|topic| _ = self.enable(topic));
        let (mut gone, mut known_now) = (Vec::new(), false);
        for topic in topics {
            let known = Known::Since(0);
            if self.disable(topic, Disabling { detail: Arc::from(""), known }) {
                gone.push(Box::from(*topic));
            } else if let Some(disabling) = self.disabled.get_mut(*topic) {
                disabling.known = known;
                known_now |= self.untold.remove(*topic);
            }
        }
        Learnt { gone, back, known_now }
    }
}

/// What becomes of an event out of `waiting` whose endpoint is disabled. No attempt counts.
pub(crate) fn wait_for_endpoint(
    row: RowRef,
    attempts: u32,
    outlet: &Outlet,
    endpoint: u32,
) -> WaitingChange {
    let attempted = attempted(attempts, Reason::Disabled, outlet.gone(endpoint));
    WaitingChange::Disabled { row, endpoint: topic_of(outlet, endpoint), attempted }
}

fn topic_of(outlet: &Outlet, endpoint: u32) -> Box<str> {
    Box::from(&*outlet.endpoint(endpoint).topic)
}

impl Flow {
    /// An event out of `waiting` is to be left to a disabled endpoint. Says whether that is new: one
    /// that comes back would come again and again.
    pub(crate) fn strands(&mut self, seq: u64) -> bool {
        /// Events remembered; beyond, the lowest numbers are forgotten, and come back once more.
        const STRANDED_MAX: usize = 16_384;
        let new = self.stranded.insert(seq);
        if self.stranded.len() > STRANDED_MAX {
            self.stranded.pop_first();
        }
        new
    }

    /// How an event of the window waits for a disabled endpoint.
    pub(crate) fn behind_endpoint(outlet: &Outlet, endpoint: u32) -> Placement {
        let attempted = attempted(0, Reason::Disabled, outlet.gone(endpoint));
        Placement::Disabled { endpoint: topic_of(outlet, endpoint), attempted }
    }

    /// Lets a lane whose head is to go to a disabled endpoint wait in the store.
    fn strand(&mut self, key: KeyHash, endpoint: u32, outlet: &Outlet, now: Tick) {
        let lane = self.lanes.get(&key).filter(|lane| lane.queued && lane.in_flight == 0);
        let head = lane.and_then(|lane| lane.head()).filter(|head| head.endpoint == endpoint);
        let Some((row, origin)) = head.map(|head| (head.row, head.origin)) else { return };
        match origin {
            Origin::Stream(_) => {
                self.spill(key, Some(Flow::behind_endpoint(outlet, endpoint)), now);
            }
            Origin::Waiting { attempts, late, .. } => {
                let change = wait_for_endpoint(row, attempts, outlet, endpoint);
                self.strands(row.seq);
                self.change(key, !late, change, now);
                self.spill(key, None, now);
            }
        }
        if self.unsaved_since.is_none() {
            self.unsaved_since = Some(now);
        }
    }
}

impl Machine {
    /// An endpoint said that it is gone: it is disabled from now on, and the store hears of it.
    pub(crate) fn disable(&mut self, destination: &DestinationId, endpoint: u32, fault: &Fault) {
        let Some(outlet) = self.outlets.get_mut(destination) else { return };
        let detail = Arc::from(attempted(0, Reason::Disabled, fault.to_string()).detail);
        let topic = Arc::clone(&outlet.endpoint(endpoint).topic);
        let said = String::from(&*detail);
        if outlet.disable(&topic, Disabling { detail, known: Known::No }) {
            let destination = destination.clone();
            self.notices.push(Notice::EndpointDisabled { destination, topic, detail: said });
        }
    }

    /// An endpoint is in service again: an operator said so, and the store has done it.
    pub(crate) fn enable(&mut self, destination: &DestinationId, topic: &str) {
        self.definitions.disabled.retain(|(d, t)| d != destination || **t != *topic);
        let Some(outlet) = self.outlets.get_mut(destination) else { return };
        if outlet.enable(topic) {
            let (destination, topic) = (destination.clone(), Arc::from(topic));
            self.notices.push(Notice::EndpointEnabled { destination, topic });
        }
        for owned in self.owned.values_mut() {
            // What was answered before is not told any more.
            if let Some(flow) = owned.flow(destination) {
                flow.stranded.clear();
                flow.part.disabled.retain(|endpoint| *endpoint.topic != *topic);
            }
            // Nor again, by a settlement whose answer was lost.
            let tells = |part: &SettlementPart| {
                part.destination == *destination
                    && part.disabled.iter().any(|endpoint| *endpoint.topic == *topic)
            };
            let Some(settling) = &mut owned.settling else { continue };
            if settling.settlement.parts.iter().any(tells) {
                let parts = &mut Arc::make_mut(&mut settling.settlement).parts;
                for part in parts.iter_mut().filter(|part| part.destination == *destination) {
                    part.disabled.retain(|endpoint| *endpoint.topic != *topic);
                }
            }
        }
    }

    /// Takes over which endpoints are disabled, from definitions that were asked for with a ticket.
    pub(crate) fn learn_disabled(&mut self, asked: u64) {
        let mut named = disabled_of(&self.definitions);
        for (destination, outlet) in &mut self.outlets {
            let topics = named.remove(destination).unwrap_or_default();
            let Learnt { gone, back, known_now } = outlet.learn_disabled(&topics, asked);
            reach!(DisabledHeard, if !gone.is_empty());
            reach!(EnabledHeard, if !back.is_empty());
            if known_now || !back.is_empty() {
                forget_stranded(&mut self.owned, destination);
            }
            self.notices.extend(gone.into_iter().map(|topic| Notice::EndpointDisabled {
                destination: destination.clone(),
                topic: Arc::from(topic),
                detail: String::new(),
            }));
            self.notices.extend(back.into_iter().map(|topic| Notice::EndpointEnabled {
                destination: destination.clone(),
                topic: Arc::from(topic),
            }));
        }
    }

    /// A new outlet knows what the definitions say.
    pub(crate) fn teach_disabled(&self, destination: &DestinationId, outlet: &mut Outlet) {
        let topics = disabled_of(&self.definitions).remove(destination).unwrap_or_default();
        let _ = outlet.learn_disabled(&topics, u64::MAX);
    }

    /// Lets everything that is ready for a disabled endpoint wait in the store, and tells the store
    /// which endpoints these are.
    pub(crate) fn empty_disabled(&mut self) {
        let now = self.now;
        for (destination, outlet) in &mut self.outlets {
            // What was set aside for an endpoint that was enabled in the meantime goes back into its queue.
            if outlet.disabled.is_empty() && outlet.stranded.is_empty() {
                continue;
            }
            outlet.tick(now);
            for (endpoint, (partition, key)) in outlet.take_stranded() {
                let owned = self.owned.get_mut(&partition);
                if let Some(flow) = owned.and_then(|owned| owned.flow(destination)) {
                    flow.strand(key, endpoint, outlet, now);
                }
            }
        }
        self.tell_disabled();
    }

    /// The next settlement of some partition says which endpoints are disabled.
    fn tell_disabled(&mut self) {
        for (destination, outlet) in &mut self.outlets {
            for topic in &outlet.untold {
                let Some(disabling) = outlet.disabled.get_mut(topic) else { continue };
                let owned = |partition, token| {
                    let owned = self.owned.get(&partition);
                    owned.is_some_and(|owned| owned.lease.token == token)
                };
                // A lease that was lost took the news with it.
                if matches!(disabling.known, Known::Told(p, token) if owned(p, token)) {
                    continue;
                }
                disabling.known = Known::No;
                let mut owned = self.owned.iter_mut().filter(|(_, owned)| !owned.leaving);
                let found = owned.find_map(|(partition, owned)| {
                    let token = owned.lease.token;
                    Some((*partition, token, owned.flow(destination)?))
                });
                if let Some((partition, token, flow)) = found {
                    let (topic, detail) = (topic.clone(), disabling.detail.to_string());
                    flow.part.disabled.push(DisabledEndpoint { topic, detail });
                    disabling.known = Known::Told(partition, token);
                }
            }
        }
    }

    /// The store has written which endpoints are disabled.
    pub(crate) fn told(&mut self, destination: &DestinationId, endpoints: &[DisabledEndpoint]) {
        let next = self.next_ticket();
        let Some(outlet) = self.outlets.get_mut(destination) else { return };
        let mut news = false;
        for DisabledEndpoint { topic, .. } in endpoints {
            if let Some(disabling) = outlet.disabled.get_mut(topic)
                && outlet.untold.remove(topic)
            {
                reach!(DisabledTold);
                (disabling.known, news) = (Known::Since(next), true);
            }
        }
        if news {
            forget_stranded(&mut self.owned, destination);
            // It may have been enabled before this answer came, and what was read meanwhile may say
            // so already: no later version would tell of it.
            self.define_again();
        }
    }
}

/// What was left to a disabled endpoint before the store knew of it was due again at once. Now, when it comes back, it is
/// left to it once more.
fn forget_stranded(owned: &mut BTreeMap<PartitionId, Owned>, destination: &DestinationId) {
    let flows = owned.values_mut().filter_map(|owned| owned.flow(destination));
    flows.for_each(|flow| flow.stranded.clear());
}

fn disabled_of(definitions: &Definitions) -> BTreeMap<DestinationId, BTreeSet<&str>> {
    let mut all: BTreeMap<DestinationId, BTreeSet<&str>> = BTreeMap::new();
    for (destination, topic) in &definitions.disabled {
        all.entry(destination.clone()).or_default().insert(topic);
    }
    all
}
