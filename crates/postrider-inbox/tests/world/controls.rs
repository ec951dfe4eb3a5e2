//! The negative controls: engines that the checker must catch.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::{Delivery, Tick};
use postrider_inbox::Machine;
use postrider_inbox::command::{Command, DeliveryNo, Input};

use super::Engine;

/// The negative control of what is tried alone: says so of whatever it starts.
pub(crate) struct Boastful(pub(crate) Machine);

impl Engine for Boastful {
    fn step(&mut self, now: Tick, input: Input) -> Vec<Command> {
        let mut commands = self.0.step(now, input);
        for command in &mut commands {
            if let Command::Dispatch { delivery, .. } = command {
                Arc::make_mut(delivery).alone = Some(true);
            }
        }
        commands
    }
    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

/// The negative control: starts whatever comes at once.
#[derive(Default)]
pub(crate) struct Careless {
    next_no: u64,
    out: BTreeMap<DeliveryNo, Arc<Delivery>>,
    asked: bool,
}

impl Engine for Careless {
    fn step(&mut self, _: Tick, input: Input) -> Vec<Command> {
        let mut commands = Vec::new();
        match input {
            Input::Received(deliveries) => {
                self.asked = false;
                for delivery in deliveries {
                    let (no, delivery) = (DeliveryNo(self.next_no), Arc::new(delivery));
                    self.next_no += 1;
                    self.out.insert(no, Arc::clone(&delivery));
                    commands.push(Command::Dispatch { no, delivery });
                }
            }
            Input::Answered(no, _) => {
                let delivery = Arc::clone(&self.out[&no]);
                commands.push(Command::Ack { no, delivery });
            }
            _ => {}
        }
        if !self.asked {
            self.asked = true;
            commands.push(Command::Receive { max: 1 });
        }
        commands
    }
    fn is_stopped(&self) -> bool {
        false
    }
}
