//! What the world itself does and when: the incidents, and what follows from each.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::Tick;

use crate::incident::What;
use crate::scenario::Scenario;

/// Something that the world does at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// An incident strikes.
    Incident(usize),
    /// The server's standby has everything up to now, for an incident that comes.
    Checkpoint(usize),
    /// A relay starts in a slot.
    StartRelay(u8),
    /// A relay is told to stop, and another takes its place at once when it has.
    Replace(u8),
    /// A relay that stands still goes on.
    ResumeRelay(u8),
    /// An application starts again.
    StartApp(u8),
    /// A consumer starts again.
    StartConsumer(u8),
    /// A consumer that stands still goes on.
    ResumeConsumer(u8),
    /// The server answers again.
    StartServer,
    /// The server has room again.
    FreeDisk,
    /// The server takes writes again.
    AllowWrites,
}

/// Acts in the order of their times.
#[derive(Debug, Default)]
pub struct Agenda {
    acts: BTreeMap<(Tick, u64), Act>,
    last: u64,
}

impl Agenda {
    /// The agenda of a scenario.
    pub fn of(scenario: &Scenario) -> Agenda {
        let mut agenda = Agenda::default();
        for (index, incident) in scenario.incidents.iter().enumerate() {
            let at = Tick(0) + Duration::from_millis(incident.at_ms);
            if let What::FailOver { lag_ms, .. } = incident.what {
                agenda.add(at - Duration::from_millis(lag_ms), Act::Checkpoint(index));
            }
            agenda.add(at, Act::Incident(index));
        }
        agenda
    }

    /// Adds something.
    pub fn add(&mut self, at: Tick, act: Act) {
        self.last += 1;
        self.acts.insert((at, self.last), act);
    }

    /// The next, if its time comes before the end.
    pub fn next(&mut self, end: Tick) -> Option<(Tick, Act)> {
        let (&(at, number), _) = self.acts.first_key_value()?;
        if at > end {
            return None;
        }
        self.acts.remove(&(at, number)).map(|act| (at, act))
    }
}
