//! What must hold of any world: order, truth, and that nothing is left where nobody reads it.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::waiting::{Passed, RowRef};

use crate::world::{World, id};

impl World {
    /// What ranges of a place stand for. Each of them waits behind something: left alone, a range is read to its end.
    pub(crate) fn ranged(&self, name: &str) -> Vec<RowRef> {
        let (rows, waiting) = (self.store.ranged(&id(name)), self.store.waiting(&id(name)));
        let committed = self.store.committed();
        let key = |row: &RowRef| committed.iter().find(|it| it.row == *row).map(|it| &it.key);
        for row in &rows {
            let held = waiting.iter().any(|waits| key(&waits.row) == key(row));
            assert!(held, "INV-8: nobody reads what the range of {row:?} stands for");
        }
        rows
    }

    /// Checks INV-2, INV-3 and INV-7 for a place: only committed events, first deliveries of each
    /// key in commit order (late ones and replays excepted), nothing recorded as published that was not
    /// acknowledged.
    pub(crate) fn check(&self, name: &str) {
        let committed: BTreeMap<_, _> = self
            .store
            .committed()
            .into_iter()
            .map(|row| (row.row.id, (row.position, row.key.to_string())))
            .collect();
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for published in self.place(name).memory.published() {
            if !published.is_acked() {
                continue;
            }
            let id = published.event.id;
            let (position, key) = committed.get(&id).expect("INV-2: delivered but not committed");
            if !seen.insert(id) || published.marks.late || published.marks.replay {
                continue;
            }
            let last = newest.entry(key).or_default();
            assert!(position > last, "INV-3: {id} of {key} at {position} after {last}");
            *last = *position;
        }
        for health in self.healths() {
            assert_eq!(health.violations.total(), 0, "{health:?}");
        }
        for (row, passed) in self.store.settled(&id(name)) {
            if passed == Passed::Acked {
                assert!(seen.contains(&row.id), "INV-7: {row:?} is recorded and was not delivered");
            }
        }
    }
}
