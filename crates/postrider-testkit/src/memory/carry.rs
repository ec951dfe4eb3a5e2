//! Carrying out requests: the owner of a partition does what an operator asked for, a row at a time,
//! each in the write that marks it done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::source::{CarriedOut, CarryOutRequest};
use postrider_core::waiting::{Reason, WaitingState};
use postrider_core::{DestinationId, Event, KeyHash, Lease, PartitionId, Payload};

use super::request::{Carried, RequestRow};
use super::state::State;
use super::waiting::{Stored, promote};

impl State {
    pub(super) fn carry_out(&mut self, request: &CarryOutRequest, now: Duration) -> CarriedOut {
        let mut done = CarriedOut::default();
        for lease in &request.leases {
            while self.fence("carry out", lease).is_ok()
                && let Some((index, row)) = self.next_row(lease.partition)
            {
                if done.rows >= request.rows_max.max(1) {
                    done.more = true;
                    break;
                }
                self.ledger.wrote("carry out", lease);
                let carried = self.carry(index, row, lease, now, &mut done);
                if self.requests[index].record(row, carried, lease.owner.as_str()) {
                    self.unfinished.remove(&index);
                }
                done.rows += 1;
            }
        }
        done.definitions = self.definitions;
        done
    }

    /// The oldest row of a partition that is not done.
    fn next_row(&self, partition: PartitionId) -> Option<(usize, usize)> {
        self.unfinished.iter().find_map(|index| {
            let request = self.requests.get(*index)?;
            let open = |row: &RequestRow| row.partition == partition.0 && row.outcome.is_none();
            request.rows.iter().position(open).map(|row| (*index, row))
        })
    }

    fn carry(
        &mut self,
        index: usize,
        row: usize,
        lease: &Lease,
        now: Duration,
        done: &mut CarriedOut,
    ) -> Carried {
        let request = &self.requests[index];
        let (verb, row) = (request.submission.verb.clone(), request.rows[row].clone());
        let first = request.rows.iter().all(|row| row.outcome.is_none());
        if !self.destinations.contains_key(&row.destination) {
            return Carried::Skipped;
        }
        let id = &row.destination;
        let carried = match verb {
            Verb::Redrive(_) => self.redrive(&row, now),
            Verb::Discard(_) => {
                let key = self.discard(&row, now);
                let freed = key.iter().flatten();
                done.freed.extend(freed.map(|key| (lease.partition, id.clone(), *key)));
                key.is_some()
            }
            Verb::Requeue(_) => self.requeue(&row, now),
            Verb::Enable { topic, .. } => self.enable(id, &topic, first, lease, now, done),
            Verb::Rewind { .. } => {
                let went = self.set_back(id, row.partition, &row.target);
                if went {
                    self.release(std::slice::from_ref(lease), now);
                    done.surrendered.push(lease.clone());
                }
                return if went { Carried::Done } else { Carried::Skipped };
            }
            _ => false,
        };
        let touched = (lease.partition, id.clone());
        if carried && !done.touched.contains(&touched) {
            done.touched.push(touched);
        }
        if carried { Carried::Done } else { Carried::Skipped }
    }

    /// Sends a dead letter again: its attempts start anew. Says whether it was one.
    fn redrive(&mut self, asked: &RequestRow, now: Duration) -> bool {
        let Some(rows) = self.waiting.get_mut(&asked.place()) else { return false };
        let Some(row) = rows.get_mut(&asked.seq).filter(|row| row.is_dead()) else { return false };
        if row.event.is_none() {
            // Nobody could send what is no event.
            return false;
        }
        // Planted: it stands in no order of its key any more, and is not said to.
        row.late |= !row.holds_key || postrider_core::planted!(RedriveOutOfOrder);
        row.attempts = 0;
        row.due = now;
        row.reason = Reason::Redriven;
        row.state = if row.late { WaitingState::Retrying } else { WaitingState::Parked };
        let key = Arc::clone(&row.key);
        promote(rows, &key, now);
        true
    }

    /// Lets a dead letter or an event of a disabled endpoint go, and says whether it was one, with
    /// its key if it held that.
    #[expect(clippy::option_option, reason = "whether it was done, and then whether a key is free")]
    fn discard(&mut self, asked: &RequestRow, now: Duration) -> Option<Option<KeyHash>> {
        let rows = self.waiting.get_mut(&asked.place())?;
        let discardable = |row: &&mut Stored| row.is_dead() || row.state == WaitingState::Disabled;
        let row = rows.get_mut(&asked.seq).filter(discardable)?;
        let freed = row.holds().then_some(row.key_hash);
        row.state = WaitingState::Discarded;
        row.event = None;
        let key = Arc::clone(&row.key);
        promote(rows, &key, now);
        Some(freed)
    }

    /// Sends an event again that the cursor has passed and that does not wait, late.
    fn requeue(&mut self, asked: &RequestRow, now: Duration) -> bool {
        let Some(row) = self.row_of(asked.partition, asked.seq) else { return false };
        let Ok(event) = &row.event else { return false };
        let place = asked.place();
        let waits = self.waiting.get(&place).is_some_and(|rows| rows.contains_key(&asked.seq));
        let ranged = self.is_in_range(&asked.destination, asked.partition, row);
        if !self.has_passed(&asked.destination, asked.partition, row) || waits || ranged {
            return false;
        }
        let stored = Stored {
            row: row.row,
            key: Arc::clone(&row.key),
            key_hash: row.key_hash,
            event: Some(Arc::clone(event)),
            state: WaitingState::Retrying,
            due: now,
            attempts: 0,
            reason: Reason::Requeued,
            detail: String::new(),
            holds_key: false,
            late: true,
            endpoint: None,
        };
        self.waiting.entry(place).or_default().insert(asked.seq, stored);
        true
    }

    /// Takes an endpoint into service again, with the first partition that is done; each partition
    /// lets its events out. One that was disabled anew meanwhile stays so.
    fn enable(
        &mut self,
        id: &DestinationId,
        topic: &str,
        first: bool,
        lease: &Lease,
        now: Duration,
        done: &mut CarriedOut,
    ) -> bool {
        let name = (id.clone(), Box::from(topic));
        if first && self.endpoints.remove(&name).is_some() {
            self.definitions += 1;
        }
        if self.endpoints.contains_key(&name) {
            return false;
        }
        let rows = self.waiting.entry((id.clone(), lease.partition.0)).or_default();
        let mut keys = BTreeSet::new();
        for row in rows.values_mut() {
            let disabled = row.state == WaitingState::Disabled;
            if disabled && row.endpoint.as_deref() == Some(topic) {
                row.come_out(now);
                keys.insert(Arc::clone(&row.key));
            }
        }
        keys.iter().for_each(|key| promote(rows, key, now));
        if !done.enabled.contains(&name) {
            done.enabled.push(name);
        }
        true
    }

    pub(super) fn erase(&mut self, key: &str) {
        let erased = |event: &Event| {
            let mut event = event.clone();
            event.payload = Payload::Erased;
            event.headers.clear();
            event
        };
        self.version += 1;
        for row in self.log.iter_mut().flatten().filter(|row| &*row.key == key) {
            if let Ok(event) = &mut row.event {
                *event = Arc::new(erased(event));
            }
        }
        let waiting = self.waiting.values_mut().flat_map(|rows| rows.values_mut());
        for row in waiting.filter(|row| &*row.key == key) {
            row.event = row.event.as_deref().map(|event| Arc::new(erased(event)));
        }
        for scheduled in self.scheduled.values_mut().filter(|row| row.event.key() == key) {
            scheduled.event = erased(&scheduled.event);
        }
    }
}
