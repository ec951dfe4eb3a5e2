//! Carry out: have the store do what operators asked for, and act on what it did.
//!
//! Keeps INV-3 (who counts a key's waiting events hears of each that is let go, so that nothing passes
//! one that is still there) and INV-8 (a count that may be too high, because an answer was lost, is
//! read anew).

use std::time::Duration;

use postrider_core::source::{CarriedOut, CarryOutRequest};
use postrider_core::{Lease, Result, Tick, planted, reach};

use crate::command::Command;
use crate::machine::{Asked, Defining, Machine};
use crate::notice::{LostBecause, Notice};
use crate::owned::{FlowState, Owned};
use crate::trouble::Work;

/// The shortest time between two questions, however often the store says that something changed:
/// every commit says so, and few of them are requests.
const PAUSE: Duration = Duration::from_millis(100);

/// When the store is asked to carry out requests.
#[derive(Debug, Default)]
pub(crate) struct Carrying {
    /// When next.
    at: Tick,
    /// When it was asked last.
    asked_at: Option<Tick>,
    /// One question is under way.
    asking: bool,
    /// The last answer was about everything that is owned, and there was no more to do.
    caught_up: bool,
}

impl Carrying {
    /// Something may have been asked for: look soon.
    pub(crate) fn hurry(&mut self, now: Tick) {
        let soonest = self.asked_at.map_or(now, |asked| asked + PAUSE);
        self.at = self.at.min(soonest.max(now));
    }

    /// A partition is ours now, and with it what was asked for there.
    pub(crate) fn begin(&mut self, now: Tick) {
        self.caught_up = false;
        self.hurry(now);
    }

    /// A partition is loaded, and may be asked about: not yet, if one of the others is still.
    pub(crate) fn resume(&mut self, now: Tick) {
        if !self.caught_up {
            self.hurry(now);
        }
    }

    /// Whether nothing that was asked for before the last partition came is left to do.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.caught_up
    }
}

impl Machine {
    /// Asks the store to carry out what operators want of the partitions that are ours.
    pub(crate) fn carry_out(&mut self) {
        if self.carrying.asking || self.carrying.at > self.now || self.mode.is_draining() {
            return;
        }
        // Not while a flow is being loaded: whether its counts are from before or after, nobody
        // could say.
        let leases: Vec<Lease> = self.steady().map(|owned| owned.lease.clone()).collect();
        if leases.is_empty() {
            return;
        }
        for lease in &leases {
            if let Some(owned) = self.owned_under(lease.partition, lease.token) {
                owned.carrying = true;
            }
        }
        reach!(RequestsAsked);
        self.carrying.asking = true;
        self.carrying.asked_at = Some(self.now);
        let rows_max = self.settings.carry_rows_max;
        let asked = Asked::CarryOut(leases.clone());
        self.command(asked, Command::CarryOut(CarryOutRequest { leases, rows_max }));
    }

    /// Partitions in which something may be carried out.
    fn steady(&self) -> impl Iterator<Item = &Owned> {
        self.owned.values().filter(|owned| {
            let loading = |state: &FlowState| matches!(state, FlowState::Loading(_));
            // Nor while a settlement may be written or not: sent again, it would undo a request.
            let doubt = owned.settling.as_ref().is_some_and(|settling| settling.in_doubt);
            let doubt = doubt && !planted!(SettleUndoesRequest);
            !owned.leaving && !doubt && !owned.flows.values().any(loading)
        })
    }

    pub(crate) fn carried_out(&mut self, leases: &[Lease], result: Result<CarriedOut>) {
        let now = self.now;
        self.carrying.asking = false;
        self.cross_settlements(leases, &result);
        let Some(done) = self.stats.trouble.note(Work::CarryOut, None, result) else {
            reach!(RequestsInDoubt);
            // Something of it may be done: which keys are free, we do not know.
            for lease in leases {
                if let Some(owned) = self.owned_under(lease.partition, lease.token) {
                    owned.miscounts = true;
                }
            }
            self.carrying.caught_up = false;
            self.carrying.at = self.again_within(self.settings.heartbeat);
            return;
        };
        let all = self.owned.values().all(|owned| leases.contains(&owned.lease));
        self.carrying.caught_up = all && !done.more;
        // Partitions come one after another: whoever came meanwhile is not left to the next round.
        let unasked = self.steady().any(|owned| !leases.contains(&owned.lease));
        reach!(RequestsMore, if done.more);
        reach!(RequestsDone, if done.rows > 0);
        self.carrying.at = match done.more {
            true => now,
            false if unasked => now + PAUSE,
            false => now + self.settings.carry_every,
        };
        self.act_on(leases, &done);
        self.count_again(leases);
    }

    /// Requests are no longer being carried out. What was done in a partition, or may have been, a
    /// settlement that was sent before must not undo.
    fn cross_settlements(&mut self, leases: &[Lease], result: &Result<CarriedOut>) {
        for lease in leases {
            let Some(owned) = self.owned_under(lease.partition, lease.token) else { continue };
            owned.carrying = false;
            let touched = result.as_ref().map_or(true, |done| {
                done.touched.iter().any(|(partition, _)| *partition == lease.partition)
            });
            if let Some(settling) = owned.settling.as_mut().filter(|_| touched) {
                reach!(SettleCrossed);
                settling.crossed = true;
            }
            self.give_up_crossed(lease.partition);
        }
    }

    /// Takes over what the store has done.
    fn act_on(&mut self, leases: &[Lease], done: &CarriedOut) {
        let now = self.now;
        let ours = |partition| leases.iter().find(|lease| lease.partition == partition);
        for (partition, destination, key) in &done.freed {
            let owned = ours(*partition).and_then(|l| self.owned_under(*partition, l.token));
            if let Some(flow) = owned.and_then(|owned| owned.flow(destination)) {
                reach!(RequestFreedKey);
                flow.unwait(*key);
            }
        }
        for (partition, destination) in &done.touched {
            let owned = ours(*partition).and_then(|l| self.owned_under(*partition, l.token));
            if let Some(flow) = owned.and_then(|owned| owned.flow(destination)) {
                reach!(RequestTouched);
                reach!(RequestTouchedWhileAsking, if flow.asking);
                // An answer that is on its way may be from before: it is asked for again.
                flow.look_for_due(now);
            }
        }
        for (destination, topic) in &done.enabled {
            reach!(RequestEnabled);
            self.enable(destination, topic);
        }
        for lease in &done.surrendered {
            if self.owned_under(lease.partition, lease.token).is_some() {
                reach!(RequestSurrendered);
                // The store let it go with the write: it is free, and nobody is to come before us.
                self.drop_partition(lease.partition, LostBecause::Surrendered);
                self.tenancy.acquire_now(now);
            }
        }
        if done.definitions > 0 {
            // A store that carries out nothing says nothing of them.
            self.hear_of(done.definitions);
        }
        if done.rows > 0 {
            self.gauges_touched();
            self.stats.carried += u64::from(done.rows);
            self.stats.progressed_at = now;
            self.notices.push(Notice::CarriedOut {
                rows: done.rows,
                freed: done.freed.len(),
                surrendered: done.surrendered.len(),
            });
        }
    }

    /// The store answers again: partitions whose counts may be too high, because an answer was lost,
    /// are loaded anew as soon as nothing of them is under way.
    fn count_again(&mut self, leases: &[Lease]) {
        for lease in leases {
            let Some(owned) = self.owned_under(lease.partition, lease.token) else { continue };
            if !std::mem::take(&mut owned.miscounts) {
                continue;
            }
            let counts = owned.ready().any(|(_, flow)| flow.waiting_keys() > 0);
            if counts && !owned.leaving {
                reach!(CountsDoubted);
                owned.leaving = true;
                owned.reload = true;
            }
        }
    }

    /// The version of the definitions, as the store said it beside something else.
    pub(crate) fn hear_of(&mut self, version: u64) {
        match self.defining {
            Defining::Asked(_) => {
                reach!(DefinitionsHeardWhileReading);
                self.heard = Some(version);
            }
            _ if version == self.definitions.version => {}
            Defining::Known => self.defining = Defining::Wanted(self.now),
            Defining::Wanted(at) => self.defining = Defining::Wanted(at.min(self.now)),
        }
    }

    /// Something shows that our definitions are old: they are read again.
    pub(crate) fn define_again(&mut self) {
        self.hear_of(u64::MAX);
    }

    /// When the next question is, if there is one to ask.
    pub(crate) fn carry_wake_at(&self) -> Option<Tick> {
        let idle =
            self.carrying.asking || self.mode.is_draining() || self.steady().next().is_none();
        (!idle).then_some(self.carrying.at)
    }
}
