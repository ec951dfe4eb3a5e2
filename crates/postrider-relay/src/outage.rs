//! Outage: what an endpoint's failure does to the events that are to go to it.
//!
//! Keeps INV-5: what cannot be sent goes back to the store or leaves the window, and no attempt counts.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::{Placement, Reason};
use postrider_core::{DestinationId, Fault, Tick, reach};

use crate::attempt::attempted;
use crate::machine::{BatchItem, Machine};
use crate::notice::Notice;

impl Machine {
    /// An endpoint failed: it pauses. What was tried and came from `waiting` goes back there, for a
    /// little longer than the pause, so that the next probe is another's. If the endpoint is down, so
    /// does all that stands ready for it and came from there, but the next probe; if it is down while others of its
    /// destination are not, its events leave the windows.
    pub(crate) fn endpoint_failed(
        &mut self,
        destination: &DestinationId,
        endpoint: u32,
        sent: Tick,
        fault: &Fault,
        after: Option<Duration>,
        tried: &[BatchItem],
    ) {
        let (now, settings) = (self.now, self.settings);
        let Some(outlet) = self.outlets.get_mut(destination) else {
            return;
        };
        let pause = outlet.failed(endpoint, now, sent, after, &settings, &mut self.jitter);
        let is_new = outlet.endpoints[endpoint as usize].is_new(fault.kind);
        self.stats.count_endpoint_failure(destination);
        let detail = attempted(0, Reason::EndpointDown, fault.to_string()).detail;
        outlet.endpoints[endpoint as usize].said = detail.as_str().into();
        self.notices.push(Notice::EndpointFailed {
            destination: destination.clone(),
            topic: Arc::clone(&outlet.endpoint(endpoint).topic),
            failures: outlet.endpoint(endpoint).failures(),
            detail,
            is_new,
            pause,
        });
        let probed_for = outlet.probed_for(endpoint, pause, now);
        for item in tried {
            let owned =
                self.owned.get_mut(&item.partition).filter(|owned| owned.lease.token == item.token);
            let flow = owned.and_then(|owned| owned.flow(destination));
            if flow.is_some_and(|flow| !flow.postpone(item.key, probed_for, now)) {
                outlet.window_had_turn(endpoint);
            }
        }
        let (down, alone) =
            (outlet.is_down(endpoint, &settings), outlet.is_down_alone(endpoint, &settings));
        reach!(EndpointDownAlone, if alone);
        reach!(DestinationDown, if down && !alone);
        for owned in self.owned.values_mut().filter(|_| down) {
            let Some(flow) = owned.flow(destination) else {
                continue;
            };
            for key in flow.ready_for(endpoint) {
                if !alone && outlet.is_guest(endpoint, (flow.partition, key)) {
                    continue;
                }
                if !flow.postpone(key, pause, now) && alone {
                    reach!(LaneLeftWindow);
                    let attempted = attempted(0, Reason::EndpointDown, fault.to_string());
                    flow.spill(key, Some(Placement::Retry { delay: pause, attempted }), now);
                }
            }
        }
        if alone {
            outlet.forget_ready(endpoint);
        }
    }
}
