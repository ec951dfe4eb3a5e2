//! Verdicts: which promises a history breaks, in words a person can act on.

use std::collections::BTreeMap;
use std::fmt;

use postrider_core::{EventId, Invariant};
use serde::Serialize;

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    /// Which promise.
    pub invariant: Invariant,
    /// The event, where it is about one.
    pub event: Option<EventId>,
    /// The key, destination, or gauge it is about.
    pub subject: String,
    /// What happened, for a person.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.invariant, self.what, self.subject)
    }
}

/// The judgement over a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What is broken, by invariant.
    pub violations: Vec<Violation>,
    /// On how many facts each invariant was judged.
    pub judged: BTreeMap<Invariant, u64>,
}

impl Verdict {
    /// Whether nothing is broken. Says nothing about how much was judged.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// On how many facts an invariant was judged; a verdict on none proves nothing.
    pub fn judged(&self, invariant: Invariant) -> u64 {
        self.judged.get(&invariant).copied().unwrap_or_default()
    }

    /// The invariants that are broken, each once, in order.
    pub fn broken(&self) -> Vec<Invariant> {
        let mut broken: Vec<Invariant> = self.violations.iter().map(|v| v.invariant).collect();
        broken.sort_unstable();
        broken.dedup();
        broken
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        for (invariant, facts) in &self.judged {
            writeln!(f, "{invariant} was judged on {facts} facts")?;
        }
        Ok(())
    }
}
