//! Owed: which events a destination must have in the end. What it is not owed may come all the same.

use crate::broker::Place;

/// Which events a destination is owed.
#[derive(Clone, Debug)]
pub struct Owed {
    /// Those committed after so many others.
    pub after: u64,
    /// Those of these types.
    pub types: Vec<&'static str>,
    /// None at all, because it was removed.
    pub removed: bool,
}

impl Place {
    /// Which events it is owed.
    pub fn owed(&self) -> Owed {
        self.state().owed.clone()
    }

    /// It is owed only what is committed after so many others.
    pub fn begins_after(&self, committed: u64) {
        self.state().owed.after = committed;
    }

    /// From now on it is owed these types only; what it was not owed before it is not owed now.
    pub fn takes_only(&self, types: &[&'static str]) {
        self.state().owed.types.retain(|kind| types.contains(kind));
    }

    /// It is owed nothing any more.
    pub fn remove(&self) {
        self.state().owed.removed = true;
    }
}
