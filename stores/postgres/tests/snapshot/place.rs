//! What a row of a test's outbox is, and the facts that tests gather about all of them.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::EventId;
use postrider_history::{Commit, History, Record, Verdict, check};
use uuid::Uuid;

/// The one destination of all tests.
pub(crate) const HERE: &str = "a";

/// What became of the events of a transaction, as its writer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    RolledBack,
    /// The server went away before it answered.
    Unknown,
}

/// One row that is there at the end.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: Uuid,
    pub(crate) key: String,
    /// Its place in the key's order, as the owner of the key's lock drew it.
    pub(crate) n: i32,
}

/// One event as a relay read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) partition: u16,
    pub(crate) seq: u64,
    pub(crate) id: Uuid,
}

pub(crate) fn event_id(id: Uuid) -> EventId {
    EventId::from_u128(id.as_u128())
}

/// Judges what was read against what is there: nothing lost, no ghost, each key in order.
pub(crate) fn judge(rows: &[Row], fates: &BTreeMap<Uuid, Fate>, read: &[Read]) -> Verdict {
    let mut history = History::new();
    for row in rows {
        history.push(Record::Commit(Commit {
            id: event_id(row.id),
            source: String::new(),
            key: row.key.clone(),
            order: u64::try_from(row.n).unwrap_or_default(),
            destinations: Some(BTreeSet::from([HERE.to_owned()])),
            unserialised: false,
        }));
    }
    for (id, fate) in fates {
        if *fate == Fate::RolledBack {
            history.roll_back(event_id(*id));
        }
    }
    for read in read {
        history.deliver(HERE, event_id(read.id));
    }
    check(&history)
}

/// How often each was read beyond the first time.
pub(crate) fn repeats(read: &[Read]) -> BTreeMap<Uuid, usize> {
    let mut counts: BTreeMap<Uuid, usize> = BTreeMap::new();
    for read in read {
        *counts.entry(read.id).or_default() += 1;
    }
    counts.retain(|_, count| {
        *count -= 1;
        *count > 0
    });
    counts
}

/// How many were read after one of a higher number of their partition: what a cursor that is a number
/// would have lost.
pub(crate) fn read_late(read: &[Read]) -> usize {
    let mut highest: BTreeMap<u16, u64> = BTreeMap::new();
    let mut late = 0;
    let mut seen = BTreeSet::new();
    for read in read.iter().filter(|read| seen.insert(read.id)) {
        let highest = highest.entry(read.partition).or_default();
        late += usize::from(read.seq < *highest);
        *highest = read.seq.max(*highest);
    }
    late
}
