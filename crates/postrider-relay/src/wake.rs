//! Wake: when the machine wants to be stepped again though nothing happens.
//!
//! Keeps INV-8 from its other side: a moment is named only if something can be done then. A moment in
//! the past that nothing can be done about would keep the shell busy for as long as it stands.

use postrider_core::{DestinationId, Tick};

use crate::flow::Flow;
use crate::machine::{Defining, Machine};
use crate::owned::{FlowState, Head, Owned};
use crate::room::Budget;

impl Machine {
    /// When to step again with [`Input::Passed`](crate::Input::Passed) if nothing else happens before.
    pub fn wake_at(&self) -> Tick {
        let budget = self.budget();
        let owned = self.owned.values().filter_map(|owned| self.owned_wake_at(owned, &budget));
        let draining = self.mode.is_draining();
        let open = self.outlets.iter().filter(|(id, _)| !draining && self.is_open(id));
        let outlets = open.filter_map(|(_, outlet)| outlet.wake_at(self.now));
        let defining = match self.defining {
            Defining::Wanted(at) => Some(at),
            _ => None,
        };
        let mode = self.mode.wake_at(&self.settings, self.stats.progressed_at);
        let rest = [
            defining,
            Some(self.lease_wake_at()),
            mode,
            self.carry_wake_at(),
            self.purge_wake_at(),
            self.release_wake_at(),
            self.gauge_wake_at(),
        ];
        let soonest = owned.chain(outlets).chain(rest.into_iter().flatten()).min();
        // Never in the past: whatever is due now has been done, or waits for an answer.
        soonest.unwrap_or(self.now + self.settings.poll_max).max(self.now)
    }

    /// When a partition wants to be looked at again.
    fn owned_wake_at(&self, owned: &Owned, budget: &Budget) -> Option<Tick> {
        let retry = owned.settling.as_ref().and_then(|settling| settling.retry_at);
        let retry = retry.filter(|_| !owned.carrying);
        if self.mode.is_draining() || owned.leaving {
            // Nothing new is begun; what is settled is saved at once.
            return retry;
        }
        let head = match owned.head {
            Head::Wanted(at) => self.mode.has_target().then_some(at),
            Head::Scheduled | Head::Asked | Head::Known(_) => None,
        };
        let flows = owned.flows.iter().filter_map(|(destination, state)| match state {
            FlowState::Wanted(at) => (self.is_open(destination) && !owned.carrying).then_some(*at),
            FlowState::Loading(_) => None,
            FlowState::Ready(flow) => self.flow_wake_at(destination, flow, owned, budget),
        });
        let rest = [owned.admit_at, retry, head, owned.probe_wake_at()];
        rest.into_iter().chain([flows.min()]).flatten().min()
    }

    fn flow_wake_at(
        &self,
        destination: &DestinationId,
        flow: &Flow,
        owned: &Owned,
        budget: &Budget,
    ) -> Option<Tick> {
        let open = self.is_open(destination);
        let knows_target = !self.mode.has_target() || matches!(owned.head, Head::Known(_));
        let reads = self.may_read(destination)
            && knows_target
            && !flow.fetching
            && !flow.reached
            && self.room(flow, budget).is_some();
        let poll = reads.then(|| {
            let held = [owned.loading_until(), self.waits_until(owned, flow, budget)];
            held.into_iter().flatten().fold(flow.poll_at, Tick::max)
        });
        let due = (open && self.may_ask(destination, flow)).then_some(flow.due_at);
        let save = flow
            .unsaved_since
            .filter(|_| owned.settling.is_none() && flow.has_outcomes())
            .map(|since| since + self.saving(flow, budget).after);
        let range = self.range_wake_at(destination, flow).filter(|_| open && !self.reading_range);
        [poll, due, save, range].into_iter().flatten().min()
    }
}
