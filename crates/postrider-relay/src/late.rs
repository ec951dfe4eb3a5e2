//! Late acknowledgements: an answer that comes after the deadline still settles what it can (INV-7).
//!
//! At the deadline the outcome counts as unknown, and the events are tried again. If the answer comes
//! after all, before the next try began, there is no reason for that try.

use postrider_core::waiting::RowRef;
use postrider_core::{DestinationId, Outcome, Tick, planted, reach};

use crate::command::Ticket;
use crate::judge::Judgement;
use crate::machine::{BatchItem, Machine};
use crate::outcome::deliver;
use crate::subject::delivered;

/// Batches whose answer may still come; beyond, the oldest are forgotten and merely sent again.
const LATE_MAX: usize = 64;

/// A batch whose deadline has passed.
#[derive(Debug)]
pub(crate) struct LateBatch {
    pub(crate) destination: DestinationId,
    pub(crate) endpoint: u32,
    items: Vec<(BatchItem, Vec<RowRef>)>,
    until: Tick,
}

impl Machine {
    /// Remembers what was in a batch whose deadline has passed.
    pub(crate) fn expect_late(
        &mut self,
        ticket: Ticket,
        destination: &DestinationId,
        endpoint: u32,
        items: &[BatchItem],
    ) {
        let rows = |item: &BatchItem| -> Option<Vec<RowRef>> {
            let owned = self.owned.get(&item.partition)?;
            let (_, flow) = owned.ready().find(|(id, _)| *id == destination)?;
            let lane = flow.lanes.get(&item.key)?;
            Some(lane.iter().take(item.entries as usize).map(|entry| entry.row).collect())
        };
        let items = items.iter().map(|item| (*item, rows(item).unwrap_or_default())).collect();
        let until = self.now + self.settings.lease;
        let batch = LateBatch { destination: destination.clone(), endpoint, items, until };
        let now = self.now;
        self.late.retain(|_, batch| batch.until > now);
        self.late.insert(ticket, batch);
        if self.late.len() > LATE_MAX {
            self.late.pop_first();
        }
    }

    /// The answer has come after all: what it acknowledges, and is not under way again, is delivered.
    pub(crate) fn settle_late(&mut self, ticket: Ticket, outcomes: &[Outcome]) {
        let Some(batch) = self.late.remove(&ticket) else { return };
        reach!(LateAnswered, if !outcomes.is_empty());
        if batch.items.iter().map(|(item, _)| item.entries as usize).sum::<usize>()
            != outcomes.len()
        {
            return;
        }
        let mut outcomes = outcomes.iter();
        for (item, rows) in &batch.items {
            let answered: Vec<&Outcome> = outcomes.by_ref().take(item.entries as usize).collect();
            let acked = rows
                .iter()
                .zip(answered)
                .take_while(|(_, outcome)| **outcome == Outcome::Acked)
                .filter(|(row, _)| self.deliver_late(&batch.destination, item, **row))
                .count();
            if acked > 0 {
                self.requeue(&batch.destination, item, None);
                if let Some(outlet) = self.outlets.get_mut(&batch.destination) {
                    let _ = outlet.acked(batch.endpoint, self.now, &self.settings);
                }
            }
        }
    }

    /// Delivers the head of a lane, if it is this event and not under way.
    fn deliver_late(&mut self, destination: &DestinationId, item: &BatchItem, row: RowRef) -> bool {
        let now = self.now;
        let owned = self.owned.get_mut(&item.partition);
        let owned = owned.filter(|owned| owned.lease.token == item.token);
        let Some(flow) = owned.and_then(|owned| owned.flow(destination)) else { return false };
        let Some(lane) = flow.lanes.get_mut(&item.key) else { return false };
        let other = lane.head().is_none_or(|head| head.row != row);
        if lane.in_flight > 0 || (other && !planted!(LateAckForNext)) {
            reach!(LateAckTooLate);
            return false;
        }
        let Some(entry) = lane.pop() else { return false };
        reach!(LateAckTaken);
        if let Some(outlet) = self.outlets.get_mut(destination) {
            let heard = outlet.hears(&entry, &Judgement::Delivered, now, &self.settings);
            self.notices.extend(heard);
        }
        if !self.notices.no_deliveries
            && let Some(outlet) = self.outlets.get(destination)
        {
            // How long the call took is known to be too long, and no more.
            let took = entry.tried.map(|tried| now.since(tried)).unwrap_or_default();
            self.notices.push(delivered(flow, outlet, &entry, took));
        }
        deliver(flow, item.key, &entry, now);
        if flow.unsaved_since.is_none() && flow.has_outcomes() {
            flow.unsaved_since = Some(now);
        }
        self.stats.delivered += 1;
        self.stats.tally(destination).delivered += 1;
        self.stats.progressed_at = now;
        true
    }
}
