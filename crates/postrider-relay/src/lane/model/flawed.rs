//! Machines with a flaw each, made of the real one and an interpreter who gets one thing wrong.

use std::sync::Arc;

use postrider_core::waiting::Passed;
use postrider_core::{Cursor, Outcome, Tick};

use super::play::Engine;
use crate::{Answer, Command, Input, Machine, Ticket};

/// What the interpreter gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A batch is sent twice at once.
    SendsAgain,
    /// What is to be tried again counts as delivered.
    TakesRetryForAck,
    /// A batch goes out back to front.
    TurnsRunsRound,
    /// The cursor is saved behind what was not read yet.
    SavesTooFar,
    /// The first open row counts as acknowledged.
    SavesUnsettled,
    /// Four times the rows that there is room for are asked for.
    ReadsTooFar,
    /// Four times the bytes.
    ReadsTooMuch,
}

pub(super) struct Flawed {
    machine: Machine,
    flaw: Flaw,
    copies: u64,
}

impl Flawed {
    pub(super) fn new(machine: Machine, flaw: Flaw) -> Flawed {
        Flawed { machine, flaw, copies: 0 }
    }

    fn misread(&self, input: Input) -> Input {
        match input {
            Input::Answered(ticket, Answer::Published(Ok(mut outcomes)))
                if self.flaw == Flaw::TakesRetryForAck =>
            {
                for outcome in &mut outcomes {
                    if matches!(outcome, Outcome::Retry { .. }) {
                        *outcome = Outcome::Acked;
                    }
                }
                Input::Answered(ticket, Answer::Published(Ok(outcomes)))
            }
            input => input,
        }
    }

    fn misspeak(&mut self, command: &mut Command) {
        match (self.flaw, command) {
            (Flaw::TurnsRunsRound, Command::Publish { batch, .. }) => batch.reverse(),
            (Flaw::SavesTooFar, Command::Settle(settlement)) => {
                for part in &mut Arc::make_mut(settlement).parts {
                    if let Some((_, to)) = &mut part.cursor {
                        *to = Cursor::number(to.position() + 1);
                    }
                }
            }
            (Flaw::SavesUnsettled, Command::Settle(settlement)) => {
                for part in &mut Arc::make_mut(settlement).parts {
                    for new in part.waiting.drain(..) {
                        part.passed.retain(|(row, _)| row.seq != new.row.seq);
                        part.passed.push((new.row, Passed::Acked));
                    }
                }
            }
            (Flaw::ReadsTooFar, Command::Fetch(request)) => request.rows_max *= 4,
            (Flaw::ReadsTooMuch, Command::Fetch(request)) => request.bytes_max *= 4,
            _ => {}
        }
    }
}

impl Engine for Flawed {
    fn step(&mut self, now: Tick, input: Input) {
        let input = self.misread(input);
        self.machine.step(now, input);
    }

    fn commands(&mut self) -> Vec<(Ticket, Command)> {
        let mut commands: Vec<_> = self.machine.take_commands().collect();
        commands.iter_mut().for_each(|(_, command)| self.misspeak(command));
        if self.flaw == Flaw::SendsAgain {
            let sent = commands.iter().filter(|(_, c)| matches!(c, Command::Publish { .. }));
            let again: Vec<_> = sent.map(|(_, command)| command.clone()).collect();
            for command in again {
                self.copies += 1;
                commands.push((Ticket(u64::MAX - self.copies), command));
            }
        }
        commands
    }
}
