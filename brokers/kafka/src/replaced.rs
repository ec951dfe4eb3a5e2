//! Topics that were deleted and made anew under a member: the library has another identity for them than before, says so in its
//! log and nowhere else, and reads on behind the offset where the old one ended.
//!
//! Invariant (INV-1): of a topic that took the place of another, nothing is passed over because of what was settled of that.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the library's line stands: `Topic orders changed id from AAAAAAAAAAAAAAAAAAAAAA to nLhVZQ2pSnWDrHRK5pCjKA`.
const SAID: &str = " changed id from ";

/// Before the name of a topic.
const BEFORE: &str = "Topic ";

/// The identity of what was not known before.
const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Topics that are remembered: more than a member has.
const TOPICS_MAX: usize = 4_096;

/// See the module. A member whose topic is among them is followed by another one, of another client.
#[derive(Debug, Default)]
pub(crate) struct Replaced(Mutex<BTreeSet<String>>);

impl Replaced {
    /// The library says something. Its own threads do, before they ask the new topic for anything.
    pub(crate) fn hear(&self, said: &str) {
        let Some(topic) = read(said) else { return };
        let mut known = self.lock();
        if known.len() < TOPICS_MAX {
            known.insert(topic.to_owned());
        }
    }

    /// Whether this one was replaced.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.lock().contains(topic)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(said: &str) -> Option<&str> {
    let (topic, ids) = said.split_once(SAID)?;
    // Behind the name of the thread.
    let (_, topic) = topic.rsplit_once(BEFORE)?;
    let (before, now) = ids.split_once(" to ")?;
    let is_known = |id: &str| !id.starts_with(NONE);
    // One that is not there has no identity either.
    (is_known(before) && is_known(now)).then_some(topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_is_read() {
        let replaced = Replaced::default();
        for said in [
            "[thrd:main]: Topic shop.order changed id from AAAAAAAAAAAAAAAAAAAAAA to nLhVZQ2pSnWDrHRK5pCjKA",
            "[thrd:main]: Topic shop.order changed id from nLhVZQ2pSnWDrHRK5pCjKA to AAAAAAAAAAAAAAAAAAAAAA",
            "[thrd:main]: Topic other [0] Leader 1 Epoch 0",
        ] {
            replaced.hear(said);
        }
        assert!(replaced.all().is_empty());
        replaced.hear("[thrd:main]: Topic shop.order changed id from nLhVZQ2pSnWDrHRK5pCjKA to 1LhVZQ2pSnWDrHRK5pCjKA");
        assert!(replaced.has("shop.order"));
        assert_eq!(replaced.all(), ["shop.order"]);
    }
}
