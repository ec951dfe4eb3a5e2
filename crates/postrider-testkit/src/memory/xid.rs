//! Transaction numbers: drawn with a transaction's first write, and what a snapshot of the server
//! says of them.

use std::collections::BTreeSet;

use postrider_core::snapshot::Snapshot;

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

    /// Something is written and durable, and with it the end of every transaction that ended before.
    pub(super) fn flush(&mut self) {
        self.durable = self.durable.max(self.completed);
    }

    /// What a statement sees now.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::with_running(self.completed + 1, self.running.iter().copied())
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
        assert_eq!(xids.snapshot(), Snapshot::with_running(a, []));
        xids.end(b, true);
        assert_eq!(xids.snapshot(), Snapshot::with_running(b + 1, [a]));
        xids.end(a, false);
        assert_eq!(xids.snapshot(), Snapshot::with_running(c, []));
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
