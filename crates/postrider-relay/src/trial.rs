//! Trials: an event that may kill the process is tried alone, its attempt saved before.
//!
//! An owner that took a partition over twice, with its cursors standing still, from owners that died,
//! suspects what it reads there: each event goes to `waiting` first. A suspect is taken from there
//! alone; its attempt is written, and only when the store has answered is it sent. If the process dies
//! again, the attempt is remembered, and enough of them make a dead letter: poison that kills is
//! poison too (INV-1, INV-5).

use postrider_core::waiting::{Placement, Reason, WaitingChange, WaitingRow};
use postrider_core::{PartitionId, Tick, reach};

use crate::attempt::{attempted, holds_key};
use crate::flow::Flow;
use crate::lane::{Entry, Origin};
use crate::machine::Machine;
use crate::outlet::Outlet;
use crate::owned::FlowState;
use crate::settings::Settings;

// Careful for an eighth of a window: so much may be settled and not saved when a process dies. If the
// killer stands behind it, the next two deaths find a cursor that has come closer.

/// Takeovers in a row from which on an owner is careful.
pub(crate) const CAREFUL_AFTER: u32 = 2;

const DETAIL: &str = "the relay died here more than once; this event is tried alone";

/// A suspect on trial.
#[derive(Debug)]
pub(crate) struct Trial {
    seq: u64,
    /// Until its attempt is saved and it is sent.
    entry: Option<Entry>,
    is_saved: bool,
}

impl Trial {
    /// Whether an outcome of this event ends the trial: not the saving of its attempt.
    pub(crate) fn is_over(&self, seq: u64) -> bool {
        self.seq == seq && self.entry.is_none()
    }

    /// Whether its attempt is on its way to the store, or saved, and the event is not sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.entry.is_some()
    }

    /// A change was written; if it was the attempt of this trial, the event may be sent.
    pub(crate) fn saved(&mut self, change: &WaitingChange) {
        self.is_saved |= change.row().seq == self.seq;
    }
}

impl Flow {
    /// Where the suspect goes whose attempt is being saved.
    pub(crate) fn trial_endpoint(&self) -> Option<u32> {
        Some(self.trial.as_ref()?.entry.as_ref()?.endpoint)
    }

    /// How a row enters `waiting` while the flow is careful.
    pub(crate) fn suspicion(&mut self) -> Option<Placement> {
        self.careful = self.careful.checked_sub(1)?;
        let attempted = attempted(0, Reason::Suspect, DETAIL);
        Some(Placement::Retry { delay: std::time::Duration::ZERO, attempted })
    }

    /// Begins the trial of a suspect: its attempt is saved with the next settlement, or it is dead
    /// because it has had enough of them. One at a time; says whether it began.
    pub(crate) fn begin_trial(
        &mut self,
        row: WaitingRow,
        outlet: &mut Outlet,
        settings: &Settings,
        now: Tick,
    ) -> bool {
        let Some(route) = outlet.route_of(&row.event) else { return false };
        let endpoint = outlet.endpoint_of(route, &row.event);
        let index = u16::try_from(route).unwrap_or(u16::MAX);
        let policy = outlet.route(index).dead_key;
        let held = !row.late;
        if row.attempts >= outlet.route(index).retry.attempts_max {
            reach!(TrialGaveUp);
            *self.engaged.entry(row.key_hash).or_default() += 1;
            let attempted = attempted(row.attempts, Reason::GaveUp, DETAIL);
            let holds_key = holds_key(policy) && held;
            let subject = self.subject(row.row, Some(std::sync::Arc::clone(&row.event)));
            self.note_dead(subject, &attempted, holds_key);
            let change = WaitingChange::Dead { row: row.row, attempted, holds_key };
            self.change(row.key_hash, held, change, now);
            return true;
        }
        if self.trial.is_some() || outlet.pause_left(endpoint, now) > std::time::Duration::ZERO {
            return false;
        }
        let tried = self.tried.get(&row.row.seq).copied();
        reach!(TrialBegun);
        // Two changes follow: the attempt, and its outcome.
        *self.engaged.entry(row.key_hash).or_default() += 2;
        let attempted = attempted(row.attempts + 1, Reason::Suspect, DETAIL);
        let change = WaitingChange::Retry { row: row.row, delay: settings.lease, attempted };
        self.change(row.key_hash, held, change, now);
        let entry = Entry {
            bytes: row.event.size_bytes(),
            event: row.event,
            row: row.row,
            origin: Origin::Waiting { attempts: row.attempts, late: row.late, suspect: true },
            endpoint,
            route: index,
            tried,
        };
        self.trial = Some(Trial { seq: row.row.seq, entry: Some(entry), is_saved: false });
        true
    }
}

impl Machine {
    /// A relay that stops, or gives a partition away, takes back attempts that were saved and not
    /// made.
    pub(crate) fn take_back_trials(&mut self) {
        let (now, draining) = (self.now, self.mode.is_draining());
        for owned in self.owned.values_mut().filter(|owned| draining || owned.leaving) {
            for state in owned.flows.values_mut() {
                let FlowState::Ready(flow) = state else { continue };
                let Some(trial) = flow.trial.as_mut().filter(|trial| trial.is_saved) else {
                    continue;
                };
                let Some(entry) = trial.entry.take() else { continue };
                let Origin::Waiting { attempts, late, .. } = entry.origin else { continue };
                reach!(TrialTakenBack);
                let attempted = attempted(attempts, Reason::Suspect, DETAIL);
                let delay = std::time::Duration::ZERO;
                let change = WaitingChange::Retry { row: entry.row, delay, attempted };
                flow.change(entry.event.key_hash(), !late, change, now);
            }
        }
    }

    /// Sends the suspects whose attempt is saved.
    pub(crate) fn hold_trials(&mut self, partition: PartitionId) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        for (destination, state) in &mut owned.flows {
            let FlowState::Ready(flow) = state else { continue };
            let Some(outlet) = self.outlets.get_mut(destination) else { continue };
            let Some(trial) = flow.trial.as_mut().filter(|trial| trial.is_saved) else { continue };
            let Some(entry) = trial.entry.take() else { continue };
            let (key, endpoint) = (entry.event.key_hash(), entry.endpoint);
            reach!(TrialSent);
            flow.taken_bytes += entry.bytes;
            let lane = flow.lanes.entry(key).or_default();
            lane.push(entry);
            lane.queued = true;
            outlet.ready(endpoint, (partition, key));
        }
    }
}
