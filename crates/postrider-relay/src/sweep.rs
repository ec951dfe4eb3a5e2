//! Sweep: forget endpoints that nothing is to go to any more.
//!
//! Keeps INV-6: a topic template with a key or an id in it names as many endpoints as there are keys or
//! events; memory holds those in use, and a bounded number besides.

use std::collections::BTreeSet;

use crate::lane::Lane;
use crate::machine::Machine;
use crate::owned::Owned;

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
