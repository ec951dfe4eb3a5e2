//! Turns: whose event is the next probe of an endpoint that counts as down.
//!
//! Keeps INV-8: the events of the windows and those in `waiting` take turns. One side may be nothing but
//! poison, and only the other show that the endpoint takes what it is given. And INV-5: of what waits, that
//! goes first which was not tried since the endpoint fails, so that a few poison events are not all the probes.

use postrider_core::{Tick, reach};

use crate::outlet::{LaneRef, Outlet};

/// Whose turn it is at an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// That of whatever stands ready first.
    #[default]
    Any,
    /// An event of a window was tried last, and failed: one out of `waiting` comes next.
    Waiting,
    /// That of whatever stands ready first; among it is what came out of `waiting` and was tried in vain before.
    Again(LaneRef),
    /// That of what came out of `waiting` and stands before the others, and whether it was tried in vain before.
    Guest(LaneRef, bool),
}

impl Outlet {
    /// Whether an event out of `waiting`, last tried then, may be the next probe although others stand ready.
    pub(crate) fn invites(&self, index: u32, tried: Option<Tick>) -> bool {
        match self.endpoint(index).turn {
            Turn::Any | Turn::Guest(_, false) => false,
            Turn::Waiting => true,
            Turn::Again(_) | Turn::Guest(_, true) => !self.in_vain(index, tried),
        }
    }

    /// Whether what was last tried then was tried since the endpoint fails.
    fn in_vain(&self, index: u32, tried: Option<Tick>) -> bool {
        let endpoint = self.endpoint(index);
        endpoint.failures > 0 && tried.is_some_and(|tried| tried >= endpoint.failing_since)
    }

    /// Puts a lane with an event out of `waiting` before the others: it is the next probe.
    pub(crate) fn invite(&mut self, index: u32, lane: LaneRef, tried: Option<Tick>) {
        reach!(WaitingInvited);
        reach!(WaitingInvitedFirst, if self.endpoint(index).turn != Turn::Waiting);
        let turn = Turn::Guest(lane, self.in_vain(index, tried));
        self.endpoints[index as usize].turn = turn;
        self.put_back(index, lane);
        self.takes_turns(index);
    }

    /// Puts a lane with an event out of `waiting` behind the others. If it was tried in vain, what was not may still
    /// go before it.
    pub(crate) fn stands(&mut self, index: u32, lane: LaneRef, tried: Option<Tick>) {
        if self.in_vain(index, tried) && self.endpoint(index).turn == Turn::Any {
            self.endpoints[index as usize].turn = Turn::Again(lane);
        }
        self.ready(index, lane);
    }

    /// Whether a lane is the next probe by invitation, and stays when others are put off.
    pub(crate) fn is_guest(&self, index: u32, lane: LaneRef) -> bool {
        matches!(self.endpoint(index).turn, Turn::Guest(guest, _) if guest == lane)
    }

    /// A lane leaves the queue: if it was about this one, the turn is over.
    pub(crate) fn leaves_queue(&mut self, index: u32, lane: LaneRef) {
        if self.is_guest(index, lane) || self.endpoint(index).turn == Turn::Again(lane) {
            self.endpoints[index as usize].turn = Turn::Any;
        }
    }

    /// A probe of an event of a window failed.
    pub(crate) fn window_had_turn(&mut self, index: u32) {
        let turn = &mut self.endpoints[index as usize].turn;
        if !matches!(turn, Turn::Guest(..)) {
            *turn = Turn::Waiting;
        }
    }
}
