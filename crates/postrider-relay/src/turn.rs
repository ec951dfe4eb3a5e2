//! Turns: whose event is the next probe of an endpoint that counts as down.
//!
//! Keeps INV-8: the events of the windows and those in `waiting` take turns. One side may be nothing but
//! poison, and only the other show that the endpoint takes what it is given.

use postrider_core::reach;

use crate::outlet::{LaneRef, Outlet};

/// Whose turn it is at an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// That of whatever stands ready first.
    #[default]
    Any,
    /// An event of a window was tried last, and failed: one out of `waiting` comes next.
    Waiting,
    /// That of what came out of `waiting` and stands before the others.
    Guest(LaneRef),
}

impl Outlet {
    /// Whether an event out of `waiting` may be the next probe although others stand ready.
    pub(crate) fn invites(&self, index: u32) -> bool {
        self.endpoint(index).turn == Turn::Waiting
    }

    /// Puts a lane with an event out of `waiting` before the others: it is the next probe.
    pub(crate) fn invite(&mut self, index: u32, lane: LaneRef) {
        reach!(WaitingInvited);
        self.endpoints[index as usize].turn = Turn::Guest(lane);
        self.put_back(index, lane);
        self.takes_turns(index);
    }

    /// Whether a lane is the next probe by invitation, and stays when others are put off.
    pub(crate) fn is_guest(&self, index: u32, lane: LaneRef) -> bool {
        self.endpoint(index).turn == Turn::Guest(lane)
    }

    /// A lane leaves the queue: if it was invited, it had its turn.
    pub(crate) fn leaves_queue(&mut self, index: u32, lane: LaneRef) {
        if self.is_guest(index, lane) {
            self.endpoints[index as usize].turn = Turn::Any;
        }
    }

    /// A probe of an event of a window failed.
    pub(crate) fn window_had_turn(&mut self, index: u32) {
        let turn = &mut self.endpoints[index as usize].turn;
        if *turn == Turn::Any {
            *turn = Turn::Waiting;
        }
    }
}
