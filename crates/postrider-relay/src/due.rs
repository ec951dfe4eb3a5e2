//! Waiting events: ask the store for those whose turn has come, and for scheduled ones.

use std::time::Duration;

use postrider_core::source::{Admitted, DueRequest};
use postrider_core::waiting::Due;
use postrider_core::{DestinationId, KeyHash, PartitionId, Result, Tick, planted, reach};

use crate::command::Command;
use crate::fetch::is_void;
use crate::flow::Flow;
use crate::machine::{Asked, Machine};
use crate::outlet::Outlet;
use crate::owned::Head;
use crate::pace::beat;
use crate::trouble::Work;

/// Scheduled events moved at once: a page.
const ADMIT_ROWS_MAX: u32 = 1_000;

impl Machine {
    pub(crate) fn ask_for_due(&mut self, partition: PartitionId) {
        let now = self.now;
        let wanted: Vec<DestinationId> = match self.owned.get(&partition) {
            Some(owned) => owned
                .ready()
                .filter(|(id, flow)| {
                    self.may_ask(id, flow) && flow.due_at <= now && self.is_open(id)
                })
                .map(|(id, _)| id.clone())
                .collect(),
            None => return,
        };
        for destination in wanted {
            let rows_max = self.settings.due_rows_max;
            let page = self.settings.window.page_bytes_max;
            let bytes_max = self.budget().share.clamp((page / 8).max(1), page);
            let Some(owned) = self.owned.get_mut(&partition) else {
                return;
            };
            let lease = owned.lease.clone();
            let Some(flow) = owned.flow(&destination) else {
                continue;
            };
            flow.ask();
            reach!(WaitingAsked);
            reach!(WaitingAskedApart, if flow.crowded);
            let engaged = flow.engaged.keys();
            let lanes = flow.lanes.keys().filter(|_| flow.crowded);
            let mut except: Vec<_> = engaged.chain(lanes).copied().collect();
            // So that the order of a map never shows.
            except.sort_unstable();
            except.dedup();
            let asked = Asked::Due(partition, lease.token, destination.clone());
            let request = DueRequest { lease, destination, except, rows_max, bytes_max };
            self.command(asked, Command::Due(request));
        }
    }

    /// Whether the store may be asked what is due: not while it is being asked, nor while enough is
    /// under way; what is due stays due. The probe of an endpoint that fails may be under way for
    /// long, and takes nobody's place.
    pub(crate) fn may_ask(&self, destination: &DestinationId, flow: &Flow) -> bool {
        let probes = self.outlets.get(destination).map_or(0, Outlet::failing);
        let most = u64::from(self.settings.due_rows_max) + u64::from(probes);
        let heavy = flow.taken_bytes >= self.settings.window.page_bytes_max / 8;
        !flow.asking && !heavy && (flow.engaged.len() as u64) < most
    }

    pub(crate) fn due_answered(
        &mut self,
        partition: PartitionId,
        token: u64,
        destination: &DestinationId,
        result: Result<Due>,
    ) {
        let (now, settings) = (self.now, self.settings);
        let stops = self.mode.is_draining();
        let Some(outlet) = self.outlets.get_mut(destination) else {
            return;
        };
        let Some(owned) = self.owned.get_mut(&partition) else {
            return;
        };
        if owned.lease.token != token {
            return;
        }
        let result = match result {
            Err(error) if is_void(&error) => return self.refused(partition, token, error),
            other => other,
        };
        let Some(due) = owned.trouble.note(Work::Due, Some(destination), result) else {
            let again = self.again.of(settings.poll_max, now);
            if let Some(flow) = owned.flow(destination) {
                flow.asking = false;
                reach!(WaitingNotAnswered);
                flow.due_at = flow.due_at.min(now + again);
            }
            return;
        };
        let stops = stops || owned.leaving;
        let Some(flow) = owned.flow(destination) else {
            return;
        };
        flow.asking = false;
        // What is late waits for nobody in the store: there may be more of one key than one answer
        // has, and all of it in the way of itself.
        let apart = flow.crowded;
        let full = due.rows.len() as u64 >= u64::from(settings.due_rows_max);
        flow.crowded = full && due.rows.iter().any(|row| flow.lanes.contains_key(&row.key_hash));
        flow.nothing_due = !apart && due.rows.is_empty() && due.next_in != Some(Duration::ZERO);
        let found = !due.rows.is_empty();
        reach!(WaitingAnswered, if found);
        reach!(WaitingAnsweredFull, if full);
        let took = !stops && flow.take_due(due.rows, outlet, &settings, now);
        let pause = match () {
            () if took && full => Duration::ZERO,
            // What is due is in the way of itself: earlier events of its keys are under way.
            () if apart || (found && !took) => settings.poll_max,
            () => due
                .next_in
                .unwrap_or(settings.due_every)
                .clamp(settings.poll_min, settings.due_every),
        };
        let idle = settings.in_step && pause == settings.due_every;
        let next = if idle { beat(now, pause) } else { now + pause };
        flow.due_at = flow.due_at.min(next);
    }

    /// Lets scheduled events that are due enter the outbox.
    pub(crate) fn admit(&mut self, partition: PartitionId) {
        let now = self.now;
        let Some(owned) = self.owned.get_mut(&partition) else {
            return;
        };
        if owned.admit_at.is_none_or(|at| at > now) {
            return;
        }
        owned.admit_at = None;
        let lease = owned.lease.clone();
        self.command(Asked::Admit(partition, lease.token), Command::Admit(lease, ADMIT_ROWS_MAX));
    }

    pub(crate) fn admitted(
        &mut self,
        partition: PartitionId,
        token: u64,
        result: Result<Admitted>,
    ) {
        let (now, settings) = (self.now, self.settings);
        let again = match &result {
            Ok(_) => Duration::ZERO,
            Err(_) => self.again.of(settings.heartbeat, now),
        };
        let Some(owned) = self.owned_under(partition, token) else {
            return;
        };
        reach!(ScheduledAdmitted, if result.as_ref().is_ok_and(|admitted| admitted.moved > 0));
        let more = result.as_ref().is_ok_and(|admitted| admitted.moved >= ADMIT_ROWS_MAX);
        if owned.head == Head::Scheduled && !more {
            owned.head = Head::Wanted(now);
        }
        let pause = match owned.trouble.note(Work::Admit, None, result) {
            Some(admitted) if admitted.moved >= ADMIT_ROWS_MAX => Duration::ZERO,
            Some(admitted) => admitted
                .next_in
                .unwrap_or(settings.due_every)
                .clamp(settings.poll_min, settings.due_every),
            None => again,
        };
        let idle = settings.in_step && pause == settings.due_every;
        let next = if idle { beat(now, pause) } else { now + pause };
        owned.admit_at = Some(next);
    }
}

impl Flow {
    /// A question for what is due goes out.
    pub(crate) fn ask(&mut self) {
        /// Later than anything: the answer says when to ask again.
        const NEVER: Tick = Tick(u64::MAX);
        self.asking = true;
        self.due_at = NEVER;
        self.entering.ask();
    }

    /// Whether an event out of `waiting` may be tried now. Not while something of its key is under way,
    /// or something earlier of it on its way into `waiting`, nor before the fetch has passed it: earlier events may come.
    pub(crate) fn may_try(&self, seq: u64, key: KeyHash) -> bool {
        let busy = self.engaged.contains_key(&key) || self.lanes.contains_key(&key);
        let entering = self.entering.first(key).is_some_and(|first| first < seq);
        let ahead = self.ahead.contains(&seq);
        reach!(WaitingLeftBusy, if busy);
        reach!(WaitingLeftEntering, if !busy && entering);
        reach!(WaitingLeftAhead, if !busy && !entering && ahead);
        !busy
            && (!entering || planted!(EnteringForgotten))
            && (!ahead || planted!(WaitingAheadTriedEarly))
    }

    /// Something in `waiting` may be due at once.
    pub(crate) fn look_for_due(&mut self, now: Tick) {
        self.due_at = self.due_at.min(now);
        self.nothing_due = false;
    }
}
