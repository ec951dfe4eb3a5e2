//! What came of a run.

use postrider_core::Invariant;

/// The end of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was broken, if something was: the first thing that was seen.
    pub failure: Option<Failure>,
    /// Two runs of one scenario have the same.
    pub fingerprint: u64,
    /// What happened, line by line; empty unless it was asked for.
    pub story: Vec<String>,
    /// What the run was made of.
    pub tally: Tally,
    /// How often each spot was reached, in the order of `Spot::ALL`; empty without probes.
    pub reached: Vec<u64>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub invariant: Invariant,
    /// How, in a sentence or more.
    pub what: String,
}

impl Failure {
    /// A promise that was broken, and how.
    pub fn new(invariant: Invariant, what: impl Into<String>) -> Failure {
        Failure { invariant, what: what.into() }
    }
}

/// What a run was made of: what did not happen proves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that were committed.
    pub committed: u64,
    /// Deliveries that a broker acknowledged.
    pub delivered: u64,
    /// Effects of handlers.
    pub effects: u64,
    /// Faults that struck, by name.
    pub faults: std::collections::BTreeMap<&'static str, u64>,
    /// Planned incidents that never struck.
    pub unfired: Vec<String>,
    /// The world's time at the end, in milliseconds.
    pub virtual_ms: u64,
    /// Steps of tasks.
    pub steps: u64,
}

impl Outcome {
    /// Whether the run counts: something was delivered, and every planned fault struck.
    pub fn counts(&self) -> bool {
        self.tally.delivered > 0 && self.tally.unfired.is_empty()
    }
}
