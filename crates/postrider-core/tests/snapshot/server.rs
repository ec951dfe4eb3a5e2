//! A server with overlapping transactions, as far as the cursor can tell it from a real one:
//! transaction numbers, a sequence, snapshots, and rows that are visible once their writer committed.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::snapshot::{Drawn, Snapshot};

/// A row, with the key and the key's own count that its writer gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) drawn: Drawn,
    pub(crate) key: u8,
    pub(crate) version: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Writer {
    xid: Option<u64>,
    keys: BTreeSet<u8>,
    rows: Vec<Row>,
}

#[derive(Debug)]
pub(crate) struct Server {
    next_xid: u64,
    /// The last transaction that was finished.
    completed: u64,
    running: BTreeSet<u64>,
    last_value: u64,
    is_called: bool,
    pub(crate) writers: Vec<Writer>,
    /// By key: who holds it, and how many versions of it are committed.
    locked: BTreeSet<u8>,
    versions: BTreeMap<u8, u32>,
    /// Committed rows, by sequence number.
    pub(crate) rows: BTreeMap<u64, Row>,
}

impl Server {
    pub(crate) fn new(writers: usize) -> Server {
        Server {
            next_xid: 3,
            completed: 2,
            running: BTreeSet::new(),
            last_value: 1,
            is_called: false,
            writers: (0..writers).map(|_| Writer::default()).collect(),
            locked: BTreeSet::new(),
            versions: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// `(last_value, is_called)`, as a statement reads it.
    pub(crate) fn sequence(&self) -> (u64, bool) {
        (self.last_value, self.is_called)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::with_running(self.completed + 1, self.running.iter().copied())
    }

    /// Gives a number to a transaction that begins.
    pub(crate) fn begin_xid(&mut self) -> u64 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.running.insert(xid);
        xid
    }

    pub(crate) fn end_xid(&mut self, xid: u64) {
        self.running.remove(&xid);
        self.completed = self.completed.max(xid);
    }

    /// A writer gets its number early, before it writes anything.
    pub(crate) fn take_xid(&mut self, writer: usize) {
        if self.writers[writer].xid.is_none() {
            let xid = self.begin_xid();
            self.writers[writer].xid = Some(xid);
        }
    }

    /// A writer enqueues: it owns the key, has its number, and draws from the sequence. Nothing
    /// happens if another writer owns the key, or if the number is drawn only now: between the two
    /// others may act.
    pub(crate) fn enqueue(&mut self, writer: usize, key: u8) {
        if self.locked.contains(&key) && !self.writers[writer].keys.contains(&key) {
            return;
        }
        self.locked.insert(key);
        self.writers[writer].keys.insert(key);
        let Some(xid) = self.writers[writer].xid else {
            self.take_xid(writer);
            return;
        };
        let seq = if self.is_called { self.last_value + 1 } else { self.last_value };
        (self.last_value, self.is_called) = (seq, true);
        let version = self.versions.entry(key).or_default();
        *version += 1;
        let row = Row { drawn: Drawn { xid, seq }, key, version: *version };
        self.writers[writer].rows.push(row);
    }

    pub(crate) fn commit(&mut self, writer: usize) {
        let ended = self.end(writer);
        self.rows.extend(ended.rows.into_iter().map(|row| (row.drawn.seq, row)));
    }

    pub(crate) fn roll_back(&mut self, writer: usize) {
        for row in self.end(writer).rows {
            *self.versions.get_mut(&row.key).unwrap() -= 1;
        }
    }

    fn end(&mut self, writer: usize) -> Writer {
        let ended = std::mem::take(&mut self.writers[writer]);
        for key in &ended.keys {
            self.locked.remove(key);
        }
        if let Some(xid) = ended.xid {
            self.end_xid(xid);
        }
        ended
    }
}
