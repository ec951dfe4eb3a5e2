//! Drain: how a relay ends, by a signal or because it has done what it was started for.

use std::time::Duration;

use postrider_core::lease::HeldLease;
use postrider_core::{RelayId, Tick, reach};

use crate::machine::{Defining, Machine};
use crate::owned::{FlowState, Head};
use crate::settings::Settings;

/// What a relay is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Run until it is told to stop.
    Forever,
    /// Deliver what was committed when it started, then stop.
    Once,
}

/// Why a relay stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was told to, and let its leases go.
    Drained,
    /// Everything that was committed when it started is settled. Some may wait: the store knows.
    Done,
    /// Nothing was settled for the stall time.
    Stalled,
    /// Another relay holds a partition, for longer than a lease.
    HeldBy(RelayId),
}

#[derive(Debug)]
pub(crate) struct Mode {
    target: Target,
    draining_since: Option<Tick>,
    ending: Option<Ending>,
    started: Option<Tick>,
}

impl Mode {
    pub(crate) fn new(target: Target) -> Mode {
        Mode { target, draining_since: None, ending: None, started: None }
    }

    pub(crate) fn drain(&mut self, now: Tick) {
        reach!(RelayDrains, if self.draining_since.is_none());
        self.draining_since.get_or_insert(now);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    pub(crate) fn has_target(&self) -> bool {
        self.target == Target::Once
    }

    pub(crate) fn wake_at(&self, settings: &Settings, progressed_at: Tick) -> Option<Tick> {
        match (self.draining_since, self.started) {
            (Some(since), _) => Some(since + settings.drain),
            (None, Some(started)) if self.has_target() => {
                Some(progressed_at.max(started) + settings.stall)
            }
            _ => None,
        }
    }
}

impl Machine {
    /// Why the relay has stopped, if it has: nothing is under way, and nothing more will be asked.
    pub fn ending(&self) -> Option<&Ending> {
        self.mode.ending.as_ref()
    }

    pub(crate) fn finish(&mut self) {
        if self.mode.ending.is_some() {
            return;
        }
        let now = self.now;
        let started = *self.mode.started.get_or_insert(now);
        if let Some(since) = self.mode.draining_since {
            let late = now >= since + self.settings.drain;
            let idle = self.owned.is_empty()
                && self.tenancy.releasing.is_empty()
                && !self.is_waiting_for_answers();
            if idle || late {
                reach!(RelayDrained, if idle);
                reach!(RelayDrainedLate, if !idle);
                let reached = self.stats.once.take();
                self.mode.ending = Some(reached.unwrap_or(Ending::Drained));
            }
            return;
        }
        if !self.mode.has_target() {
            return;
        }
        let useless = self.defining == Defining::Known && self.wanted.is_empty();
        let ending = if useless {
            Some(Ending::Stalled)
        } else if self.is_target_reached() {
            // What another definition of a destination takes, nobody has delivered.
            Some(if self.tenancy.current { Ending::Done } else { Ending::Stalled })
        } else if let Some(owner) = self.held_too_long(started) {
            Some(Ending::HeldBy(owner))
        } else if now >= self.stats.progressed_at.max(started) + self.settings.stall {
            Some(Ending::Stalled)
        } else {
            None
        };
        if let Some(ending) = ending {
            reach!(OnceDone, if ending == Ending::Done);
            reach!(OnceStalled, if ending == Ending::Stalled);
            reach!(OnceHeld, if matches!(ending, Ending::HeldBy(_)));
            if ending == Ending::Stalled {
                self.stats.at_end = self.health().blockers;
            }
            self.stats.once = Some(ending);
            self.mode.drain(now);
            // One more round, to let the leases go.
            self.keep_leases();
            self.finish();
        }
    }

    fn is_target_reached(&self) -> bool {
        let all = self.owned_of_ownable() == usize::from(self.ownable());
        all && !self.outlets.is_empty()
            && self.carrying.is_caught_up()
            && self.outlets.keys().all(|id| self.is_open(id))
            && self.outlets.len() == self.wanted.len()
            && self.owned.values().all(|owned| {
                matches!(owned.head, Head::Known(_))
                    && owned.settling.is_none()
                    && owned.flows.len() == self.outlets.len()
                    && owned.flows.iter().all(|(destination, state)| match state {
                        FlowState::Ready(flow) => {
                            flow.reached
                                && flow.lanes.is_empty()
                                && flow.nothing_due
                                && !flow.asking
                                && flow.ranges.reading.is_none()
                                && !self.reads_range(destination, flow)
                                && !flow.has_outcomes()
                        }
                        _ => false,
                    })
            })
    }

    /// Who holds a partition though a lease has passed since we began to ask. The wait has a little
    /// to spare, because the holder's lease may have begun just before.
    fn held_too_long(&self, started: Tick) -> Option<RelayId> {
        let patience = self.settings.lease + self.settings.heartbeat;
        let mine = self.owned_of_ownable() < usize::from(self.ownable());
        let late = self.now >= started + patience && self.tenancy.held_at >= started + patience / 2;
        let alive = |held: &&HeldLease| held.expires_in > Duration::ZERO;
        let held = self.tenancy.held.iter().find(alive).filter(|_| mine && late)?;
        Some(held.lease.owner.clone())
    }
}
