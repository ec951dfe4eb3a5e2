//! Transaction numbers: drawn with a transaction's first write, and what a snapshot of the server
//! says of them.

use std::collections::BTreeSet;

/// The number before the first one that is given.
const BEFORE_FIRST: u64 = 700;

/// The transaction numbers of the server.
#[derive(Clone, Debug)]
pub(super) struct Xids {
    last: u64,
    /// The greatest that is completed.
    completed: u64,
    /// The greatest that a crash cannot take back: a commit makes all before it durable.
    durable: u64,
    running: BTreeSet<u64>,
}

/// Which transactions a statement sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerSnapshot {
    /// All below are completed.
    pub(super) xmin: u64,
    /// One past the last *completed* transaction: one with a number from here on may have begun
    /// before the snapshot, and have drawn numbers.
    pub(super) xmax: u64,
    /// Those that run below `xmax`, ascending.
    pub(super) xip: Vec<u64>,
}

impl Default for Xids {
    fn default() -> Xids {
        Xids {
            last: BEFORE_FIRST,
            completed: BEFORE_FIRST,
            durable: BEFORE_FIRST,
            running: BTreeSet::new(),
        }
    }
}

impl Xids {
    /// Gives a transaction its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.running.insert(self.last);
        self.last
    }

    /// A transaction ends. If what it wrote is durable, so is every number that was given before.
    pub(super) fn end(&mut self, xid: u64, durable: bool) {
        self.running.remove(&xid);
        self.completed = self.completed.max(xid);
        if durable {
            self.durable = self.last;
        }
    }

    /// What a statement sees now.
    pub(super) fn snapshot(&self) -> ServerSnapshot {
        let xmax = self.completed + 1;
        let xip: Vec<u64> = self.running.range(..xmax).copied().collect();
        ServerSnapshot { xmin: xip.first().copied().unwrap_or(xmax), xmax, xip }
    }

    /// The server crashed: whoever ran has failed, and numbers that were not durable are given again.
    pub(super) fn crash(&mut self) {
        self.running.clear();
        self.last = self.durable;
        self.completed = self.last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_ends_behind_the_last_completed() {
        let mut xids = Xids::default();
        let (a, b, c) = (xids.begin(), xids.begin(), xids.begin());
        assert_eq!(xids.snapshot(), ServerSnapshot { xmin: a, xmax: a, xip: vec![] });
        xids.end(b, true);
        assert_eq!(xids.snapshot(), ServerSnapshot { xmin: a, xmax: b + 1, xip: vec![a] });
        xids.end(a, false);
        assert_eq!(xids.snapshot(), ServerSnapshot { xmin: c, xmax: c, xip: vec![] });
    }

    #[test]
    fn a_crash_gives_numbers_again_that_were_not_durable() {
        let mut xids = Xids::default();
        let a = xids.begin();
        xids.end(a, true);
        let b = xids.begin();
        xids.crash();
        assert_eq!(xids.begin(), b);
    }
}
