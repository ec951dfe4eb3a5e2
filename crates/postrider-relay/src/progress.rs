//! Progress: whether the relay moves, told destination by destination.
//!
//! Keeps INV-8: a cursor that moves past what is not its destination's, and another destination that flows, hide
//! none that stands. Nor does what flows beside something that takes nothing turn the state with each event.

use std::time::Duration;

use postrider_core::{DestinationId, Tick};

use crate::flow::Flow;
use crate::health::{Blocker, State};
use crate::machine::Machine;
use crate::outlet::Outlet;
use crate::owned::{FlowState, Owned};
use crate::settings::Settings;

/// How long without progress still counts as moving.
const WHILE: Duration = Duration::from_secs(5);

/// For how long what a destination did counts beside another one that stands: more than is between two events where there are
/// few, so that a relay does not go to and fro with each of them.
pub(crate) const HELD: Duration = Duration::from_secs(15);

/// How far apart it is looked which destinations have nothing to deliver.
const LOOKS_APART: Duration = Duration::from_millis(250);

impl Outlet {
    /// An event was acknowledged, or got an answer of its own.
    pub(crate) fn moved(&mut self, now: Tick, settings: &Settings) {
        if self.moved_at.is_none_or(|at| now >= at + HELD) {
            // Who had something to deliver all the while stood, and does so no more: that is believed at once. While some of it
            // takes nothing, it always has.
            let ails = self.ails_since(settings, now).is_some();
            self.moving_since = if ails { now } else { self.idle_at.min(now) };
        }
        self.moved_at = Some(now);
    }

    /// Whether it moves: within a while, or steadily where it has moved beside something of its own that takes nothing.
    fn moves(&self, now: Tick, settings: &Settings) -> bool {
        let beside = self
            .ails_since(settings, now)
            .filter(|since| self.moved_at.is_some_and(|at| at > *since));
        match beside {
            Some(_) => self.is_steady(now, self.well_at),
            None => self.moved_at.is_some_and(|at| now < at + WHILE),
        }
    }

    /// Whether it moves so steadily that this counts beside what stands, or moved before that stood: one event in a long
    /// while would turn the relay's state for some seconds, and each next one again.
    fn is_steady(&self, now: Tick, calm_at: Tick) -> bool {
        let since = self.moving_since;
        let counts = |at| now < at + HELD && (at >= since + WHILE || calm_at + WHILE >= since);
        self.moved_at.is_some_and(counts)
    }
}

impl Machine {
    /// Before anything happens at a time: whoever has nothing to deliver had nothing until then, and did not stand.
    pub(crate) fn note_idle(&mut self, now: Tick) {
        if now < self.stats.looked_at + LOOKS_APART {
            return;
        }
        self.stats.looked_at = now;
        for (id, outlet) in &mut self.outlets {
            if !self.owned.values().any(|owned| has_work(owned, id)) {
                outlet.idle_at = now;
            }
            if outlet.ails_since(&self.settings, now).is_none() {
                outlet.well_at = now;
            }
        }
        if self.standing().next().is_none() {
            self.stats.calm_at = now;
        }
    }

    /// Destinations whose events do not move, though those of others may: there are some, or an endpoint is down.
    pub(crate) fn standing(&self) -> impl Iterator<Item = &DestinationId> {
        let stands = |id: &DestinationId, outlet: &Outlet| {
            let late = || self.now >= outlet.idle_at + WHILE && self.has_work(id);
            !outlet.moves(self.now, &self.settings)
                && (outlet.ails_since(&self.settings, self.now).is_some() || late())
        };
        self.outlets.iter().filter(move |(id, outlet)| stands(id, outlet)).map(|(id, _)| id)
    }

    /// The relay's state in a word.
    pub(crate) fn state(&self, blockers: &[Blocker], standing: &[DestinationId]) -> State {
        let held = blockers.iter().any(|b| matches!(b, Blocker::Lease { .. }));
        if self.owned.is_empty() {
            let trouble = |b: &Blocker| matches!(b, Blocker::Store { .. } | Blocker::Absent { .. });
            let troubled = blockers.iter().any(trouble);
            let held = held || (self.ownable() == 0 && !self.definitions.rows.is_empty());
            return match (troubled, held) {
                (true, _) => State::Blocked,
                (false, true) => State::Standby,
                (false, false) => State::Starting,
            };
        }
        let hindered = blockers.iter().any(Blocker::hinders);
        let ready =
            |owned: &Owned| owned.flows.values().all(|state| matches!(state, FlowState::Ready(_)));
        if !self.owned.values().all(ready) {
            return if hindered { State::Blocked } else { State::Starting };
        }
        let (mut busy, mut moves) = (false, false);
        for (id, outlet) in &self.outlets {
            let works = self.has_work(id);
            busy |= works;
            moves |= match standing.is_empty() {
                true => works || outlet.moves(self.now, &self.settings),
                false => !standing.contains(id) && outlet.is_steady(self.now, self.stats.calm_at),
            };
        }
        match busy || hindered {
            true if moves => State::Moving,
            true => State::Blocked,
            false => State::Empty,
        }
    }

    fn has_work(&self, destination: &DestinationId) -> bool {
        self.owned.values().any(|owned| has_work(owned, destination))
    }
}

/// Whether something of a destination stands in a partition without an outcome.
fn has_work(owned: &Owned, destination: &DestinationId) -> bool {
    let unsettled = |flow: &Flow| flow.window.len() > flow.window.settled();
    owned.flows.get(destination).is_some_and(|state| match state {
        FlowState::Ready(flow) => unsettled(flow) || !flow.lanes.is_empty() || flow.trial.is_some(),
        _ => false,
    })
}
