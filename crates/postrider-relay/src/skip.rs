//! Skip: what follows a dead letter that does not hold its key.
//!
//! It flows, and keeps INV-3 only if the dead letter is recorded first: an owner that dies in between
//! leaves the event to the next one, who knows nothing of it, tries it again, and may have it taken
//! after what was sent behind it.

use std::collections::BTreeMap;

use postrider_core::waiting::Placement;
use postrider_core::{KeyHash, planted, reach};

/// Keys with a dead letter that lets them flow and is not saved yet, with how many.
#[derive(Debug, Default)]
pub(crate) struct Skipping(BTreeMap<KeyHash, u32>);

impl Skipping {
    /// An event is on its way into `waiting`.
    pub(crate) fn enter(&mut self, key: KeyHash, placement: &Placement) {
        if skips(placement) {
            *self.0.entry(key).or_default() += 1;
        }
    }

    /// It is recorded there.
    pub(crate) fn entered(&mut self, key: KeyHash, placement: &Placement) {
        if skips(placement)
            && let Some(count) = self.0.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Whether what follows of a key has to wait for a dead letter to be recorded.
    pub(crate) fn holds(&self, key: KeyHash) -> bool {
        let holds = self.0.contains_key(&key) && !planted!(SkipNotRecorded);
        reach!(LaneHeldBySkip, if holds);
        holds
    }
}

fn skips(placement: &Placement) -> bool {
    matches!(placement, Placement::Dead { holds_key: false, .. })
}
