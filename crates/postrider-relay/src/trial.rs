//! Trials: an event that may kill the process is tried alone, its attempt saved before.
//!
//! An owner that took a partition over twice, with its cursors standing still, from owners that died,
//! suspects what it reads there: each event goes to `waiting` first. A suspect is taken from there
//! alone; its attempt is written, and only when the store has answered is it sent. If the process dies
//! again, the attempt is remembered, and enough of them make a dead letter: poison that kills is
//! poison too (INV-1, INV-5). So is what waits already: the killer may have been redriven, or let out from
//! behind another event, and stand behind no cursor.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::{Placement, Reason, WaitingChange, WaitingRow};
use postrider_core::{PartitionId, Route, Tick, reach};

use crate::attempt::{attempted, holds_key};
use crate::flow::Flow;
use crate::lane::{Entry, Origin};
use crate::machine::Machine;
use crate::outlet::Outlet;
use crate::owned::FlowState;
use crate::retake::Retaken;
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
        Some(Placement::Retry { delay: Duration::ZERO, attempted })
    }

    /// Whether a row out of `waiting` is to be tried alone: it is known as a suspect, or the relay died here more than
    /// once and what waits may be to blame as well as what is read. Not one that failed as often as may be, and is tried
    /// on for ever: a process lived to count each time.
    pub(crate) fn suspects(&self, row: &WaitingRow, route: &Route) -> bool {
        row.suspect || (self.wary > 0 && row.attempts < route.retry.attempts_max)
    }

    /// A row was treated as a suspect. One that was none before is one of those that the flow is wary of: however many
    /// wait, it is not so for ever. Each is saved as tried or put off, so a killer that stands behind them has come
    /// closer when it kills.
    pub(crate) fn was_wary(&mut self, row: &WaitingRow) {
        if !row.suspect {
            self.wary = self.wary.saturating_sub(1);
        }
    }

    /// A suspect whose turn has come: it has had enough of its trials and is dead, or its trial begins, or it is put
    /// off while its endpoint pauses: left as it is, it would come in the place of others. One at a time.
    pub(crate) fn try_suspect(
        &mut self,
        row: WaitingRow,
        endpoint: u32,
        route: u16,
        outlet: &mut Outlet,
        settings: &Settings,
        now: Tick,
    ) -> Retaken {
        if row.attempts >= outlet.route(route).retry.attempts_max {
            reach!(TrialGaveUp);
            let attempted = attempted(row.attempts, Reason::GaveUp, DETAIL);
            let holds_key = holds_key(outlet.route(route).dead_key) && !row.late;
            let subject = self.subject(row.row, Some(Arc::clone(&row.event)));
            self.note_dead(subject, &attempted, holds_key);
            let change = WaitingChange::Dead { row: row.row, attempted, holds_key };
            return self.end_turn(&row, change, now);
        }
        if outlet.pause_left(endpoint, now) > Duration::ZERO {
            reach!(WaitingPutBack);
            self.was_wary(&row);
            return self.put_back(&row, outlet.put_back_for(endpoint, now), now);
        }
        if self.trial.is_some() {
            return Retaken::Left;
        }
        self.was_wary(&row);
        self.begin_trial(row, endpoint, route, settings, now);
        Retaken::Over
    }

    /// Begins the trial of a suspect: its attempt is saved with the next settlement.
    fn begin_trial(
        &mut self,
        row: WaitingRow,
        endpoint: u32,
        route: u16,
        settings: &Settings,
        now: Tick,
    ) {
        let tried = self.tried.get(&row.row.seq).copied();
        reach!(TrialBegun);
        // Two changes follow: the attempt, and its outcome.
        *self.engaged.entry(row.key_hash).or_default() += 2;
        let attempted = attempted(row.attempts + 1, Reason::Suspect, DETAIL);
        let change = WaitingChange::Retry { row: row.row, delay: settings.lease, attempted };
        self.change(row.key_hash, !row.late, change, now);
        let entry = Entry {
            bytes: row.event.size_bytes(),
            event: row.event,
            row: row.row,
            origin: Origin::Waiting {
                attempts: row.attempts,
                late: row.late,
                suspect: true,
                held: row.held,
            },
            endpoint,
            route,
            tried,
        };
        self.trial = Some(Trial { seq: row.row.seq, entry: Some(entry), is_saved: false });
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
                let delay = Duration::ZERO;
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
