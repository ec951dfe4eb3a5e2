//! Relieve: free a full window of the few events that keep it from moving.
//!
//! Keeps INV-5 and INV-8: the cursor never waits for one event, and what fills a window for a dead
//! endpoint does not hide the others.

use std::time::Duration;

use postrider_core::waiting::{Placement, Reason};
use postrider_core::{PartitionId, Tick, reach};

use crate::attempt::attempted;
use crate::flow::Flow;
use crate::lane::{Entry, Lane, Origin};
use crate::machine::Machine;
use crate::outlet::Outlet;
use crate::room::Budget;
use crate::settings::Settings;

impl Machine {
    /// Frees windows that are full because of a few events.
    pub(crate) fn relieve(&mut self, partition: PartitionId, budget: &Budget) {
        let (now, settings) = (self.now, self.settings);
        let Some(owned) = self.owned.get(&partition) else { return };
        if owned.ready().all(|(_, flow)| flow.fetching || flow.window.len() == 0) {
            // An empty window has room, whatever the others hold.
            return;
        }
        let full: Vec<_> = owned
            .ready()
            .filter(|(_, flow)| !flow.fetching && self.is_full(flow, budget))
            .map(|(destination, _)| destination.clone())
            .collect();
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        for destination in full {
            let (Some(flow), Some(outlet)) =
                (owned.flow(&destination), self.outlets.get(&destination))
            else {
                continue;
            };
            flow.relieve(settings.pause_min, now);
            for endpoint in outlet.hiders(&settings) {
                flow.leave_window(endpoint, outlet.pause_left(endpoint, now), now);
            }
            flow.give_way(outlet, &settings, now);
        }
    }
}

impl Flow {
    /// Lets the events wait in the store that keep a full window from moving although most of it is
    /// settled: those that were tried and are not under way, and what stands in the lane of a hot key, the rest of which
    /// waits already. The cursor never waits for one event; and without the others, nothing would show whether the event
    /// or its endpoint is to blame.
    fn relieve(&mut self, delay: Duration, now: Tick) {
        for key in self.window.holders() {
            let Some(lane) = self.lanes.get(&key) else { continue };
            let tried = lane.head().is_some_and(|head| {
                head.tried.is_some() && matches!(head.origin, Origin::Stream(_))
            });
            if tried && lane.in_flight == 0 {
                reach!(WindowRelieved);
                let attempted =
                    attempted(0, Reason::EndpointDown, "it kept the window from moving");
                self.spill(key, Some(Placement::Retry { delay, attempted }), now);
            } else if self.waits(key) {
                self.shed(key, now);
            }
        }
    }

    /// Lets the key of the first open row wait in the store when all that the window holds was tried in
    /// vain. It may be an outage, or nothing but poison: only what is not read yet can tell. Then all
    /// is tried again before the next one, so that an outage copies little.
    fn give_way(&mut self, outlet: &Outlet, settings: &Settings, now: Tick) {
        if outlet.failing() == 0 {
            return;
        }
        let Some(key) = self.window.first_open() else { return };
        let first = self.lanes.get(&key).filter(|lane| lane.in_flight == 0).and_then(Lane::head);
        let of_window = |head: &&Entry| matches!(head.origin, Origin::Stream(_));
        let Some(endpoint) = first.filter(of_window).map(|head| head.endpoint) else { return };
        let mut heads = self.lanes.values().filter_map(Lane::head).filter(of_window);
        let tried = |head: &Entry| head.tried.is_some_and(|tried| tried >= self.gave_way);
        if !outlet.is_down(endpoint, settings) || !heads.all(tried) {
            return;
        }
        reach!(WindowGaveWay);
        let delay = outlet.away_for(endpoint, now);
        self.gave_way = now;
        let attempted = attempted(0, Reason::EndpointDown, "all that was read was tried in vain");
        self.spill(key, Some(Placement::Retry { delay, attempted }), now);
    }

    /// Lets the events of the window wait in the store that are to go to an endpoint and are not
    /// under way.
    fn leave_window(&mut self, endpoint: u32, delay: Duration, now: Tick) {
        for key in self.ready_for(endpoint) {
            let from = self.lanes.get(&key).and_then(Lane::head).map(|head| head.origin);
            if matches!(from, Some(Origin::Stream(_))) {
                reach!(WindowLeftByHider);
                let attempted = attempted(0, Reason::EndpointDown, "it filled the window");
                self.spill(key, Some(Placement::Retry { delay, attempted }), now);
            }
        }
    }
}
