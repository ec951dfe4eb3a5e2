//! How the topics of one batch stand.

use std::sync::Arc;

use postrider_core::{ErrorKind, Outcome};

use crate::topics::{Facts, Standing};

/// The topics of a batch, and how each stands.
#[derive(Default)]
pub(crate) struct Standings(Vec<(Arc<str>, Standing)>);

impl Standings {
    /// Remembers one.
    pub(crate) fn add(&mut self, topic: &Arc<str>, standing: Standing) {
        self.0.push((Arc::clone(topic), standing));
    }

    pub(crate) fn of(&self, topic: &str) -> Option<&Standing> {
        self.0.iter().find(|(known, _)| **known == *topic).map(|(_, standing)| standing)
    }

    pub(crate) fn facts(&self, topic: &str) -> Option<&Facts> {
        match self.of(topic)? {
            Standing::There(facts) => Some(facts),
            Standing::Closed(_) | Standing::Unsaid(_) => None,
        }
    }

    pub(crate) fn is_alone(&self, topic: &str) -> bool {
        self.facts(topic).is_some_and(Facts::is_alone)
    }

    /// The outcome of an event whose topic takes nothing.
    pub(crate) fn closed(&self, topic: &str) -> Option<Outcome> {
        match self.of(topic)? {
            Standing::There(_) => None,
            // The event's own fields made it.
            Standing::Closed(fault) if fault.kind == ErrorKind::Invalid => {
                Some(Outcome::Rejected(fault.clone()))
            }
            Standing::Closed(fault) => Some(Outcome::Unroutable(fault.clone())),
            Standing::Unsaid(fault) => Some(Outcome::Hindered(fault.clone())),
        }
    }
}
