//! Publish: form batches out of lanes that are ready, and send them.
//!
//! Keeps INV-3 (one delivery of a key under way, or a prefix to one endpoint where the broker
//! declares prefix order) and the lease's rule that no publish starts when it could end after the
//! lease. What the answers mean is in [`outcome`](crate::outcome).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::Passed;
use postrider_core::{
    DestinationId, Invariant, Marks, Outgoing, PartitionId, Tick, planted, reach,
};

use crate::command::Command;
use crate::lane::{Entry, Lane, Origin};
use crate::machine::{Asked, BatchItem, Machine};
use crate::outlet::Outlet;
use crate::owned::Owned;
use crate::violation::Broken;
use crate::window::Window;

/// When a key is looked at again whose dead letter was not recorded yet: a settlement takes less.
const SKIP_PAUSE: Duration = Duration::from_millis(5);

/// A batch that is being filled.
struct Batch {
    items: Vec<BatchItem>,
    outgoing: Vec<Outgoing>,
    bytes: u64,
    rows_max: u32,
    bytes_max: u64,
    /// What is seen to be out of its key's order.
    broken: Option<Broken>,
}

impl Batch {
    fn has_room_for(&self, entry: &Entry) -> bool {
        self.outgoing.is_empty()
            || (self.outgoing.len() < self.rows_max as usize
                && self.bytes + entry.bytes <= self.bytes_max)
    }

    /// Adds the longest prefix of a lane that may go to the endpoint and fits; says how long it is.
    fn push_prefix(
        &mut self,
        lane: &Lane,
        endpoint: u32,
        most: u32,
        outlet: &Outlet,
        replay_through: u64,
    ) -> u32 {
        let mut entries = 0;
        for entry in lane.iter().take(most as usize) {
            let ends = entry.endpoint != endpoint || (entries > 0 && outlet.is_held(entry));
            if ends || !self.has_room_for(entry) {
                break;
            }
            self.push(entry, outlet, replay_through);
            entries += 1;
        }
        entries
    }

    fn push(&mut self, entry: &Entry, outlet: &Outlet, replay_through: u64) {
        let (attempts, late) = match entry.origin {
            Origin::Stream(_) => (0, false),
            Origin::Waiting { attempts, late, .. } => (attempts, late),
        };
        self.bytes += entry.bytes;
        self.outgoing.push(Outgoing {
            event: Arc::clone(&entry.event),
            topic: Arc::clone(&outlet.endpoint(entry.endpoint).topic),
            format: outlet.route(entry.route).format,
            layout: outlet.layout(entry.route),
            marks: Marks { late, replay: entry.row.seq <= replay_through },
            attempt: attempts + 1,
        });
    }
}

impl Machine {
    /// Sends whatever is ready, to every destination, within its limits and our leases.
    pub(crate) fn publish(&mut self) {
        if self.mode.is_draining() {
            return;
        }
        let now = self.now;
        self.outlets.values_mut().for_each(|outlet| outlet.tick(now));
        let ready =
            self.outlets.iter().filter(|(id, outlet)| outlet.has_ready() && self.is_open(id));
        let ready: Vec<_> = ready.map(|(id, _)| id.clone()).collect();
        if ready.is_empty() {
            return;
        }
        let may_publish = self.publishable();
        for destination in ready {
            let Some(outlet) = self.outlets.get_mut(&destination) else {
                continue;
            };
            let mut sent = Vec::new();
            while let Some(endpoint) = outlet.next_endpoint(self.now) {
                let batch =
                    fill(outlet, endpoint, &mut self.owned, &may_publish, &destination, self.now);
                if batch.outgoing.is_empty() {
                    // Nothing of this endpoint may go now; another turn finds the others.
                    continue;
                }
                reach!(EndpointProbed, if outlet.endpoint(endpoint).failures() > 0);
                outlet.sent(endpoint);
                sent.push((endpoint, batch));
            }
            let broken: Vec<Broken> = sent.iter().filter_map(|(_, batch)| batch.broken).collect();
            broken.into_iter().for_each(|broken| self.violated(broken));
            let deadline = self.settings.publish_deadline;
            for (endpoint, batch) in sent {
                self.stats.batches += 1;
                let (start_by, drop_by) = self.bounds(&batch.items);
                let asked = Asked::Publish {
                    destination: destination.clone(),
                    endpoint,
                    sent: self.now,
                    items: batch.items,
                };
                let destination = destination.clone();
                let batch = batch.outgoing;
                let command = Command::Publish { destination, batch, start_by, deadline, drop_by };
                self.command(asked, command);
            }
        }
    }

    /// When a batch must have started, and when its call is dropped: the earliest that any of its
    /// leases says.
    fn bounds(&self, items: &[BatchItem]) -> (Tick, Tick) {
        let owned = items.iter().filter_map(|item| self.owned.get(&item.partition));
        let start_by = owned.map(|owned| self.publish_until(owned)).min().unwrap_or(self.now);
        (start_by, start_by + self.settings.publish_deadline)
    }

    /// The partitions in which a publish may start now.
    fn publishable(&self) -> BTreeMap<PartitionId, u64> {
        self.owned
            .iter()
            .filter(|(_, owned)| !owned.leaving && self.now <= self.publish_until(owned))
            .map(|(id, owned)| (*id, owned.lease.token))
            .collect()
    }
}

/// Whether the first entries of a lane are in another order than its key's, or sent before what stands
/// between the cursor and them was read.
fn out_of_order(lane: &Lane, entries: u32, ahead: &BTreeSet<u64>) -> Option<Broken> {
    let what = "events of one key are sent in another order than they were committed in";
    let mut last = None;
    for entry in lane.iter().take(entries as usize) {
        let place = match entry.origin {
            Origin::Stream(ordinal) => Some(ordinal),
            Origin::Waiting { .. } if ahead.contains(&entry.row.seq) => {
                return Some((Invariant::KeyOrder, what));
            }
            Origin::Waiting { .. } => None,
        };
        if place.is_some() && place <= last {
            return Some((Invariant::KeyOrder, what));
        }
        last = place.or(last);
    }
    None
}

/// The planted bug: what is about to be sent counts as acknowledged.
fn settle_early(lane: &Lane, entries: u32, window: &mut Window) {
    for entry in lane.iter().take(entries as usize) {
        if let Origin::Stream(ordinal) = entry.origin {
            window.settle(ordinal, Passed::Acked);
        }
    }
}

/// Fills a batch to an endpoint out of its ready lanes.
fn fill(
    outlet: &mut Outlet,
    endpoint: u32,
    owned: &mut BTreeMap<PartitionId, Owned>,
    may_publish: &BTreeMap<PartitionId, u64>,
    destination: &DestinationId,
    now: Tick,
) -> Batch {
    let capabilities = outlet.capabilities;
    let mut batch = Batch {
        items: Vec::new(),
        outgoing: Vec::new(),
        bytes: 0,
        rows_max: outlet.batch_rows(endpoint).min(capabilities.batch_rows_max.max(1)),
        bytes_max: capabilities.batch_bytes_max,
        broken: None,
    };
    while batch.outgoing.len() < batch.rows_max as usize {
        let Some((partition, key)) = outlet.pop_ready(endpoint) else {
            break;
        };
        let flow = owned.get_mut(&partition).and_then(|owned| owned.flow(destination));
        let Some(flow) = flow else { continue };
        let replay_through = flow.replay_through;
        let Some(lane) = flow.lanes.get_mut(&key) else { continue };
        // A lane that was forgotten and began anew stands in a queue twice: the first one counts.
        if !lane.queued || lane.in_flight > 0 || lane.head().is_none() {
            reach!(LaneNamedTwice);
            continue;
        }
        if lane.head().is_some_and(|head| head.endpoint != endpoint) {
            continue;
        }
        let Some(token) = may_publish.get(&partition) else {
            // The lease is too old to start anything: it is renewed, or lost and the lane with it.
            reach!(LaneHeldByOldLease);
            outlet.ready_at(now + Duration::from_millis(50), endpoint, (partition, key));
            continue;
        };
        if flow.skipping.holds(key) {
            // A moment later the dead letter before it is recorded.
            outlet.ready_at(now + SKIP_PAUSE, endpoint, (partition, key));
            continue;
        }
        if lane.head().is_some_and(|head| !batch.has_room_for(head)) {
            // Before it is asked whether it is held: it would no longer be the next probe.
            reach!(BatchFull);
            outlet.put_back(endpoint, (partition, key));
            break;
        }
        if let Some(delay) = lane.head().and_then(|head| outlet.holds_back(head, now)) {
            flow.hold(key, delay, outlet, now);
            continue;
        }
        let in_order = capabilities.prefix_order || planted!(PrefixAssumed);
        let prefix = if in_order { batch.rows_max } else { 1 };
        let entries = batch.push_prefix(lane, endpoint, prefix, outlet, replay_through);
        batch.broken = batch.broken.or_else(|| out_of_order(lane, entries, &flow.ahead));
        if planted!(SettleBeforeAck) {
            settle_early(lane, entries, &mut flow.window);
        }
        reach!(LaneSent);
        reach!(LaneSentPrefix, if entries > 1);
        lane.queued = false;
        lane.in_flight = entries;
        batch.items.push(BatchItem { partition, token: *token, key, entries });
    }
    batch
}
