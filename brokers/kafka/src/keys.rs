//! The keys of the records that routes send to one topic, as an examination looks at them.
//!
//! Invariant: a route's own key counts, and the destination's where it has none.

use postrider_core::Code;
use postrider_core::operate::{Finding, findings};

use crate::RecordKey;

/// Each key once.
#[derive(Clone, Default)]
pub(crate) struct Keys(Vec<RecordKey>);

impl Keys {
    pub(crate) fn add(&mut self, key: &RecordKey) {
        if !self.0.contains(key) {
            self.0.push(key.clone());
        }
    }

    pub(crate) fn add_all(&mut self, keys: &Keys) {
        keys.0.iter().for_each(|key| self.add(key));
    }

    /// Whether some records have no key.
    pub(crate) fn have_none(&self) -> bool {
        self.0.contains(&RecordKey::none())
    }

    /// Records of one ordering key to which routes give different keys, in a topic of several partitions.
    pub(crate) fn apart(&self, subject: &str) -> Option<Finding> {
        if self.0.len() < 2 {
            return None;
        }
        let shown: Vec<String> = self.0.iter().map(|key| format!("`{key}`")).collect();
        let message = format!(
            "routes give its records different keys, {}: what one ordering key sends by several of them comes into \
             different partitions, and has no order there",
            findings::listed(&shown)
        );
        let advice = "give the routes to one topic the same record_key, or each a topic of its own";
        Some(findings::coded(subject, message, advice, Code::KeysApart))
    }
}
