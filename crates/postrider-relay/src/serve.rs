//! Serve: which destinations this relay serves, and when their outlets open and close.
//!
//! Keeps INV-1: an event is judged by one definition at a time, that of the store.

use std::sync::Arc;

use postrider_core::{Destination, DestinationId, DestinationState, reach};

use crate::health::Blocker;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::outlet::Outlet;
use crate::owned::FlowState;

impl Machine {
    /// Works out which destinations this relay serves: those whose definition in the store is
    /// exactly its own. `unrouted` is served beside any of them, by the store's definitions: if it fell
    /// behind the others, an event that none of them took would be judged by later routes, and lost.
    pub(crate) fn want_destinations(&mut self) {
        let mut wanted = std::collections::BTreeMap::new();
        let mut current = true;
        for row in &self.definitions.rows {
            let definition = &row.definition;
            if definition.is_unrouted() {
                continue;
            }
            match self.local.get(&definition.id) {
                Some((own, can)) if **own == *definition => {
                    // It may have been another meanwhile, and be the same again.
                    let outlet = self.outlets.get_mut(&definition.id);
                    if let Some(outlet) = outlet.filter(|outlet| is_same(own, &outlet.definition)) {
                        outlet.version = row.version;
                    }
                    if row.state == DestinationState::Active {
                        wanted.insert(definition.id.clone(), (Arc::clone(own), *can));
                    }
                }
                _ => current = false,
            }
        }
        let unrouted = self.definitions.rows.iter().find(|row| row.definition.is_unrouted());
        if let Some(row) = unrouted.filter(|_| !wanted.is_empty()) {
            let definition = Arc::new(row.definition.clone());
            let can = postrider_core::BrokerCapabilities::least();
            wanted.insert(definition.id.clone(), (definition, can));
        }
        reach!(DefinitionsOfAnother, if !current);
        self.tenancy.set_current(current);
        self.wanted = wanted;
        self.tell_unserved();
    }

    /// Destinations of the store that this relay does not serve, because it has another definition or none.
    pub(crate) fn of_others(&self) -> impl Iterator<Item = Blocker> {
        let rows = self.definitions.rows.iter().map(|row| &row.definition);
        rows.filter(|definition| !definition.is_unrouted()).filter_map(|definition| {
            let destination = definition.id.clone();
            match self.local.get(&destination) {
                Some((own, _)) if **own == *definition => None,
                Some(_) => Some(Blocker::Definition { destination }),
                None => Some(Blocker::Unnamed { destination }),
            }
        })
    }

    /// This relay's own destinations, if the store has none of them.
    pub(crate) fn absent(&self) -> impl Iterator<Item = Blocker> {
        let lost =
            !self.definitions.rows.iter().any(|row| self.local.contains_key(&row.definition.id));
        self.missing().filter(move |_| self.has_defined && lost)
    }

    /// This relay's own destinations that the store does not have.
    fn missing(&self) -> impl Iterator<Item = Blocker> {
        let has =
            |id: &DestinationId| self.definitions.rows.iter().any(|row| row.definition.id == *id);
        let missing = self.local.keys().filter(move |id| !has(id));
        missing.map(|id| Blocker::Absent { destination: id.clone() })
    }

    /// Says once of each destination that it is not served: whoever waits for its events may look at nothing but the log.
    fn tell_unserved(&mut self) {
        let unserved: Vec<Blocker> = self.of_others().chain(self.missing()).collect();
        for blocker in unserved.iter().filter(|blocker| !self.unserved.contains(blocker)) {
            self.notices.push(Notice::NotServed { blocker: blocker.clone() });
        }
        self.unserved = unserved;
    }

    /// Opens outlets that are wanted, and closes those that are not as soon as nothing of them is
    /// under way. A changed definition closes first and opens afterwards.
    pub(crate) fn open_outlets(&mut self) {
        let wanted = &self.wanted;
        let stale: Vec<_> = self
            .outlets
            .iter()
            .filter(|(id, outlet)| {
                wanted
                    .get(*id)
                    .is_none_or(|(definition, _)| !is_same(definition, &outlet.definition))
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in stale {
            let busy = self.outlets.get(&id).is_some_and(|outlet| outlet.in_flight > 0)
                || self.owned.values().any(|owned| {
                    owned.settling.is_some()
                        || matches!(owned.flows.get(&id), Some(FlowState::Loading(_)))
                        || owned.ready().any(|(flow, state)| {
                            *flow == id
                                && (state.fetching
                                    || state.asking
                                    || state.has_outcomes()
                                    || state.ranges.reading.is_some())
                        })
                });
            reach!(OutletCloses, if busy);
            if !busy {
                reach!(OutletClosed);
                self.outlets.remove(&id);
                self.stats.trouble.forget(&id);
                self.late.retain(|_, batch| batch.destination != id);
                for owned in self.owned.values_mut() {
                    owned.flows.remove(&id);
                    owned.trouble.forget(&id);
                }
            }
        }
        for (id, (definition, can)) in &self.wanted {
            if !self.outlets.contains_key(id) {
                reach!(OutletOpened);
                let mut outlet = Outlet::new(Arc::clone(definition), *can);
                outlet.idle_at = self.now;
                let row = self.definitions.rows.iter().find(|row| row.definition.id == *id);
                outlet.version = row.map_or(0, |row| row.version);
                self.teach_disabled(id, &mut outlet);
                self.outlets.insert(id.clone(), outlet);
            }
        }
    }

    /// Whether a destination may read and send: it is open, and not about to close.
    pub(crate) fn is_open(&self, destination: &postrider_core::DestinationId) -> bool {
        match (self.wanted.get(destination), self.outlets.get(destination)) {
            (Some((definition, _)), Some(outlet)) => is_same(definition, &outlet.definition),
            _ => false,
        }
    }
}

/// Whether two definitions are the same. Asked with every step: that they most often stand at the
/// same place says it without a look inside.
fn is_same(one: &Arc<Destination>, other: &Arc<Destination>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}
