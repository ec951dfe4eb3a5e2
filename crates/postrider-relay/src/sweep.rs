//! Sweep: forget endpoints that nothing is to go to any more.
//!
//! Keeps INV-6: a topic template with a key or an id in it names as many endpoints as there are keys or
//! events; memory holds those in use, and a bounded number besides.

use std::collections::BTreeSet;
use std::sync::Arc;

use postrider_core::reach;

use crate::endpoint::Endpoint;
use crate::lane::Lane;
use crate::machine::Machine;
use crate::outlet::Outlet;
use crate::owned::Owned;

/// Endpoints that are remembered though nothing is to go to them: enough for every topic a person
/// would name; those named by keys are soon found again.
pub(crate) const ENDPOINTS_KEPT: usize = 1_024;

impl Machine {
    /// Sweeps the outlets that have grown much since they were swept last.
    pub(crate) fn sweep_endpoints(&mut self) {
        for (destination, outlet) in &mut self.outlets {
            if !outlet.wants_sweep() {
                continue;
            }
            let flows = self.owned.values().flat_map(Owned::ready);
            let flows = flows.filter(|(id, _)| *id == destination).map(|(_, flow)| flow);
            let mut used: BTreeSet<u32> = flows
                .flat_map(|flow| {
                    let entries = flow.lanes.values().flat_map(Lane::iter);
                    entries.map(|entry| entry.endpoint).chain(flow.trial_endpoint())
                })
                .collect();
            let late = self.late.values().filter(|batch| batch.destination == *destination);
            used.extend(late.map(|batch| batch.endpoint));
            outlet.sweep(&used);
        }
    }
}

impl Outlet {
    /// Whether there are many endpoints, and more than at the last sweep.
    fn wants_sweep(&self) -> bool {
        self.by_topic.len() >= self.sweep_at
    }

    /// Forgets endpoints that nothing refers to. Those that fail are kept for their pause, as far as
    /// there is room; one that acknowledged something last is kept as the witness that not all are
    /// down.
    fn sweep(&mut self, used: &BTreeSet<u32>) {
        let timed: BTreeSet<u32> = self.timers.values().map(|(index, _)| *index).collect();
        let mut room = ENDPOINTS_KEPT;
        // By their places: those that were there first are kept first.
        let mut all: Vec<_> = std::mem::take(&mut self.by_topic).into_iter().collect();
        all.sort_unstable_by_key(|(_, index)| *index);
        for (topic, index) in all {
            let endpoint = &self.endpoints[index as usize];
            let busy = endpoint.in_flight > 0 || endpoint.in_turn || !endpoint.ready.is_empty();
            let witness = endpoint.last_ack.is_some() && endpoint.last_ack == self.last_ack;
            let failing = endpoint.failures > 0 && room > 0;
            if busy || witness || failing || used.contains(&index) || timed.contains(&index) {
                room -= usize::from(failing);
                self.by_topic.insert(topic, index);
                continue;
            }
            reach!(EndpointForgotten);
            self.failing -= u32::from(endpoint.failures > 0);
            self.endpoints[index as usize] = Endpoint::new(Arc::from(""), 1);
            self.free.push(index);
        }
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        self.sweep_at = (self.by_topic.len() * 2).max(ENDPOINTS_KEPT);
    }
}
