//! Faults that strike at a time: somebody dies, is paused, or loses what it relied on.

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::scenario::Scenario;

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// When, in milliseconds of the world's time.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// A relay dies after so many more of its steps, and a new one starts after a while.
    KillRelay {
        /// Which.
        relay: u8,
        /// After how many more of its steps.
        steps: u32,
        /// When another one takes its place, in milliseconds.
        again_ms: u64,
    },
    /// A relay stands still while time goes on.
    PauseRelay {
        /// Which.
        relay: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
}

impl Incident {
    /// The incidents of a scenario.
    pub fn draw(dice: &mut Dice, scenario: &Scenario) -> Vec<Incident> {
        let count = dice.below(8);
        let mut incidents: Vec<Incident> = (0..count)
            .map(|_| {
                let relay = u8::try_from(dice.below(u64::from(scenario.relays))).unwrap_or(0);
                let what = match dice.below(2) {
                    0 => What::KillRelay {
                        relay,
                        steps: u32::try_from(dice.between(1, 60)).unwrap_or(1),
                        again_ms: dice.between(0, 5_000),
                    },
                    _ => What::PauseRelay { relay, for_ms: dice.between(1_000, 60_000) },
                };
                Incident { at_ms: dice.below(scenario.span_ms), what }
            })
            .collect();
        incidents.sort_by_key(|incident| incident.at_ms);
        incidents
    }
}
