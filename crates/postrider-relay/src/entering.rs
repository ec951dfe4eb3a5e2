//! Events on their way into `waiting`: what of their keys may not be tried meanwhile.
//!
//! Keeps INV-3: of a key, nothing that stands in `waiting` is tried while an earlier event of it is about to. What is on
//! its way behind it keeps nobody back: a key of which something enters all the time would never be tried at all (INV-8).

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{KeyHash, reach};

use crate::lane::KeyMap;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Entering {
    /// The numbers of those that are not saved yet.
    keys: KeyMap<BTreeSet<u64>>,
    /// The least number of each key of which something was on its way while the question under way was asked.
    stale: BTreeMap<KeyHash, u64>,
}

impl Entering {
    /// One more, and whether what waits is being asked for.
    pub(crate) fn enter(&mut self, key: KeyHash, seq: u64, asking: bool) {
        self.keys.entry(key).or_default().insert(seq);
        if asking {
            reach!(EnteredWhileAsking);
            let least = self.stale.entry(key).or_insert(seq);
            *least = seq.min(*least);
        }
    }

    /// It is saved.
    pub(crate) fn entered(&mut self, key: KeyHash, seq: u64) {
        let Some(rows) = self.keys.get_mut(&key) else { return };
        rows.remove(&seq);
        if rows.is_empty() {
            self.keys.remove(&key);
        }
    }

    /// A question for what waits goes out. Its answer may know nothing of these.
    pub(crate) fn ask(&mut self) {
        let least = |(key, rows): (&KeyHash, &BTreeSet<u64>)| Some((*key, *rows.first()?));
        self.stale = self.keys.iter().filter_map(least).collect();
    }

    /// The least number of a key that the last answer may not know, if there is one.
    pub(crate) fn first(&self, key: KeyHash) -> Option<u64> {
        let unsaved = self.keys.get(&key).and_then(BTreeSet::first);
        unsaved.into_iter().chain(self.stale.get(&key)).min().copied()
    }

    /// How many there are.
    pub(crate) fn rows(&self) -> u64 {
        self.keys.values().map(|rows| rows.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash(7);

    /// INV-3: the earliest counts, whichever way the rows came, and it is remembered as long as an answer may not know it.
    #[test]
    fn the_earliest_that_an_answer_may_not_know_counts() {
        let mut entering = Entering::default();
        assert_eq!(entering.first(KEY), None);
        entering.enter(KEY, 20, false);
        entering.enter(KEY, 21, false);
        // A lane that is spilled later may have had earlier ones.
        entering.enter(KEY, 5, false);
        assert_eq!((entering.first(KEY), entering.rows()), (Some(5), 3));
        entering.ask();
        for seq in [20, 21, 5] {
            entering.entered(KEY, seq);
        }
        assert_eq!(
            (entering.first(KEY), entering.rows()),
            (Some(5), 0),
            "saved behind the question"
        );
        entering.ask();
        assert_eq!(entering.first(KEY), None);
    }

    /// What enters while a question is under way may be missing from its answer.
    #[test]
    fn what_enters_behind_the_question_is_remembered() {
        let mut entering = Entering::default();
        entering.ask();
        entering.enter(KEY, 9, true);
        entering.enter(KEY, 3, true);
        entering.entered(KEY, 9);
        entering.entered(KEY, 3);
        assert_eq!(entering.first(KEY), Some(3));
        assert_eq!(entering.first(KeyHash(8)), None);
    }
}
