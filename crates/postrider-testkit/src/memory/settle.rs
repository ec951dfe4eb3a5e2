//! Settling: cursors, waiting events, and the settled log in one atomic, fenced write.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use postrider_core::waiting::{
    Attempted, DETAIL_BYTES_MAX, NewWaiting, Placement, Reason, Settlement, SettlementPart,
    WaitingChange, WaitingState,
};
use postrider_core::{DestinationId, Result};

use super::state::{LogRow, State};
use super::waiting::{Stored, promote};

impl State {
    pub(super) fn settle(&mut self, settlement: &Settlement, now: Duration) -> Result<()> {
        self.fence("settle", &settlement.lease)?;
        self.settle_unfenced(settlement, now)
    }

    /// What a settlement writes. Who calls it has checked the fence in the same statement.
    pub(super) fn settle_unfenced(&mut self, settlement: &Settlement, now: Duration) -> Result<()> {
        let partition = settlement.lease.partition.0;
        // Look before writing, so that a refusal leaves nothing behind.
        for part in &settlement.parts {
            self.check_advance(part, partition)?;
        }
        self.ledger.wrote("settle", &settlement.lease);
        for part in &settlement.parts {
            // A destination that was removed meanwhile has nothing left to settle.
            if self.destinations.contains_key(&part.destination) {
                self.settle_part(part, partition, now);
            }
        }
        Ok(())
    }

    fn settle_part(&mut self, part: &SettlementPart, partition: u16, now: Duration) {
        for endpoint in &part.disabled {
            let name = (part.destination.clone(), endpoint.topic.clone());
            if let Entry::Vacant(new) = self.endpoints.entry(name) {
                new.insert(endpoint.detail.clone());
                self.definitions += 1;
            }
        }
        let place = (part.destination.clone(), partition);
        let mut waiting = self.waiting.remove(&place).unwrap_or_default();
        for new in &part.waiting {
            self.insert_waiting(&mut waiting, new, &part.destination, partition, now);
        }
        for change in &part.changes {
            change_waiting(&mut waiting, change, now, |endpoint| {
                self.is_disabled(&part.destination, endpoint)
            });
        }
        self.waiting.insert(place, waiting);
        self.change_ranges(&part.destination, partition, &part.ranges);
        if self.advance(part, partition)
            && let Some(lease) = self.leases.get_mut(usize::from(partition))
        {
            lease.takeovers = 0;
        }
    }

    fn is_disabled(&self, destination: &DestinationId, endpoint: &str) -> bool {
        self.endpoints.contains_key(&(destination.clone(), Box::from(endpoint)))
    }

    fn insert_waiting(
        &self,
        rows: &mut BTreeMap<u64, Stored>,
        new: &NewWaiting,
        destination: &DestinationId,
        partition: u16,
        now: Duration,
    ) {
        if rows.contains_key(&new.row.seq) {
            return;
        }
        let committed = self.row_of(partition, new.row.seq);
        // What the writer could not read is kept, and nobody is told that it could be sent.
        let read = |row: &&LogRow| row.format <= 1 || new.event.is_some();
        let event = committed
            .filter(read)
            .and_then(|row| row.event.as_ref().ok().cloned())
            .or_else(|| new.event.clone());
        let key = committed
            .map(|row| std::sync::Arc::clone(&row.key))
            .or_else(|| event.as_ref().map(|event| event.key().into()))
            .unwrap_or_default();
        let mut stored = Stored {
            row: new.row,
            key_hash: new.key_hash,
            event,
            state: WaitingState::Retrying,
            due: now,
            attempts: 0,
            reason: Reason::Behind,
            detail: String::new(),
            holds_key: false,
            late: false,
            endpoint: None,
            key,
        };
        place(&mut stored, &new.placement, now);
        if stored.endpoint.as_deref().is_some_and(|name| !self.is_disabled(destination, name)) {
            // It was enabled while this was on its way: nobody would let the event out.
            stored.come_out(now);
            stored.state = WaitingState::Retrying;
        }
        let behind =
            rows.range(..new.row.seq).rev().any(|(_, row)| row.key == stored.key && row.holds());
        if behind && stored.state != WaitingState::Dead {
            stored.state = WaitingState::Parked;
        }
        if stored.holds() {
            // It came before others that are due: they wait behind it from now on.
            for (_, later) in rows.range_mut(new.row.seq + 1..) {
                if later.key == stored.key && later.is_timed() && !later.late {
                    later.state = WaitingState::Parked;
                }
            }
        }
        rows.insert(new.row.seq, stored);
    }
}

fn place(stored: &mut Stored, placement: &Placement, now: Duration) {
    match placement {
        Placement::Behind(reason) => stored.reason = *reason,
        Placement::Retry { delay, attempted } => {
            stored.state = WaitingState::of_timed(attempted.reason);
            stored.due = now + *delay;
            record(stored, attempted);
        }
        Placement::Disabled { endpoint, attempted } => {
            stored.state = WaitingState::Disabled;
            stored.endpoint = Some(endpoint.clone());
            record(stored, attempted);
        }
        Placement::Dead { attempted, holds_key } => {
            stored.state = WaitingState::Dead;
            stored.holds_key = *holds_key;
            record(stored, attempted);
        }
    }
}

fn record(stored: &mut Stored, attempted: &Attempted) {
    stored.attempts = attempted.attempts;
    stored.reason = attempted.reason;
    let end = attempted.detail.floor_char_boundary(DETAIL_BYTES_MAX);
    stored.detail = attempted.detail[..end].to_owned();
}

fn change_waiting(
    rows: &mut BTreeMap<u64, Stored>,
    change: &WaitingChange,
    now: Duration,
    is_disabled: impl Fn(&str) -> bool,
) {
    let seq = change.row().seq;
    let Some(stored) = rows.get_mut(&seq) else {
        return;
    };
    // What an operator decided, and what gave up, is not undone by an attempt that was under way.
    if matches!(stored.state, WaitingState::Dead | WaitingState::Discarded) {
        return;
    }
    let key = std::sync::Arc::clone(&stored.key);
    match change {
        WaitingChange::Delivered(_) | WaitingChange::Erased(_) => {
            rows.remove(&seq);
        }
        WaitingChange::Retry { delay, attempted, .. } => {
            // One that is parked or disabled stays so: its turn has not come.
            if stored.is_timed() {
                stored.state = WaitingState::of_timed(attempted.reason);
            }
            record(stored, attempted);
            stored.due = now + *delay;
        }
        WaitingChange::Disabled { endpoint, attempted, .. } => {
            record(stored, attempted);
            if is_disabled(endpoint) {
                stored.state = WaitingState::Disabled;
                stored.endpoint = Some(endpoint.clone());
            } else {
                // It was enabled while this was on its way: nobody would let the event out.
                stored.due = now;
            }
        }
        WaitingChange::Dead { attempted, holds_key, .. } => {
            record(stored, attempted);
            stored.state = WaitingState::Dead;
            stored.holds_key = *holds_key;
        }
        WaitingChange::Postpone { delay, .. } => stored.due = now + *delay,
    }
    promote(rows, &key, now);
}
