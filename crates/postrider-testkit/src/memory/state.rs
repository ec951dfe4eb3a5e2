//! Everything the server of the memory store holds, and the log of committed rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::range::Range;
use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::Malformed;
use postrider_core::waiting::{Passed, Reason, RowRef};
use postrider_core::{
    Cursor, DestinationId, DestinationRow, Error, ErrorKind, Event, EventId, HandlerName, InboxKey,
    KeyHash, RelayId, Result, Timestamp,
};

use super::fence::Lock;
use super::inbox::InboxRow;
use super::kind::Kind;
use super::lag::Lag;
use super::lease::{LeaseRow, RelayRow};
use super::ledger::Ledger;
use super::request::Request;
use super::schedule::Scheduled;
use super::server::Server;
use super::store::CommittedRow;
use super::waiting::Stored;
use super::xid::Xids;

/// Everything the server holds.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) kind: Kind,
    pub(super) server: Server,
    pub(super) lag: Lag,
    pub(super) ledger: Ledger,
    /// Lease rows that are locked over round trips, which only somebody who is wrong does.
    pub(super) locks: BTreeMap<u16, Lock>,
    pub(super) xids: Xids,
    /// The last number drawn. Goes back only where one writer at a time gives its numbers back.
    pub(super) seq_last: u64,
    /// The last place given in the commit order.
    pub(super) position_last: u64,
    /// Numbers that are drawn by transactions that are still open.
    pub(super) open: BTreeSet<u64>,
    /// Committed rows, by partition, ascending in position.
    pub(super) log: Vec<Vec<LogRow>>,
    /// The position of each committed number, by partition.
    pub(super) by_seq: Vec<BTreeMap<u64, u64>>,
    /// How many events each key ever had.
    pub(super) heads: BTreeMap<Arc<str>, u64>,
    /// Every id that was ever committed: ids are unique.
    pub(super) ids: BTreeSet<EventId>,
    pub(super) scheduled: BTreeMap<(Timestamp, u64), Scheduled>,
    pub(super) leases: Vec<LeaseRow>,
    pub(super) relays: BTreeMap<RelayId, RelayRow>,
    pub(super) definitions: u64,
    pub(super) destinations: BTreeMap<DestinationId, DestinationRow>,
    /// The saved cursors of each destination, by partition. Of no meaning where rows say themselves
    /// whether they are pending.
    pub(super) cursors: BTreeMap<DestinationId, Vec<Cursor>>,
    /// The same as what they mean, where a cursor is a snapshot.
    pub(super) snapshots: BTreeMap<DestinationId, Vec<SnapshotCursor>>,
    /// The numbers of each destination's pending rows, by partition, where rows say so.
    pub(super) pending: BTreeMap<DestinationId, Vec<BTreeSet<u64>>>,
    /// What waits, by destination and partition, by number.
    pub(super) waiting: BTreeMap<(DestinationId, u16), BTreeMap<u64, Stored>>,
    /// The ranges of each destination in a partition.
    pub(super) ranges: BTreeMap<(DestinationId, u16), Vec<Range>>,
    pub(super) settled: BTreeMap<DestinationId, Vec<(RowRef, Passed)>>,
    /// Endpoints that are disabled, with what they answered.
    pub(super) endpoints: BTreeMap<(DestinationId, Box<str>), String>,
    /// How far apart it wants saves of cursors.
    pub(super) saves_apart: Duration,
    /// Partitions that an operator paused.
    pub(super) paused: BTreeSet<u16>,
    /// Up to which number events are sent again, because a destination was rewound.
    pub(super) replay: BTreeMap<(DestinationId, u16), u64>,
    /// What operators asked for, oldest first.
    pub(super) requests: Vec<Request>,
    /// Those of them that are not done.
    pub(super) unfinished: BTreeSet<usize>,
    /// What retention has deleted, for checkers.
    pub(super) retired: Vec<LogRow>,
    /// When the youngest event was created that retention has deleted.
    pub(super) retired_at: Option<Timestamp>,
    pub(super) inbox: BTreeMap<InboxKey, InboxRow>,
    /// For how long messages of each handler may come again, as its consumer said.
    pub(super) horizons: BTreeMap<HandlerName, Duration>,
    /// Markers of transactions that are open: whoever wants the same one has to wait.
    pub(super) accepting: BTreeSet<InboxKey>,
    pub(super) effects: Vec<InboxKey>,
    /// What an operator had forgotten, so that it happens again.
    pub(super) forgotten: Vec<InboxKey>,
    /// Rows that are no events, so far.
    malformed: u64,
    /// Grows when what was committed reads otherwise than before.
    pub(super) version: u64,
}

/// A committed row.
#[derive(Clone, Debug)]
pub(super) struct LogRow {
    pub(super) position: u64,
    pub(super) row: RowRef,
    /// The transaction that wrote it.
    pub(super) xid: u64,
    /// The version of its columns.
    pub(super) format: u16,
    /// When an index or a stream names it that lags, by the store's clock.
    pub(super) found_at: Duration,
    pub(super) key_hash: KeyHash,
    pub(super) key: Arc<str>,
    pub(super) event: Result<Arc<Event>, Malformed>,
}

/// What a row is before it has a place in the log.
#[derive(Debug)]
pub(super) struct NewRow {
    pub(super) seq: u64,
    pub(super) xid: u64,
    pub(super) format: u16,
    pub(super) event: Event,
}

/// The partition of a key: its hash modulo P, as every store computes it.
pub(super) fn partition_of(key_hash: KeyHash, partitions: usize) -> u16 {
    u16::try_from(key_hash.0 % partitions.max(1) as u64).expect("invariant: less than a u16")
}

impl LogRow {
    pub(super) fn view(&self, partition: u16) -> CommittedRow {
        CommittedRow {
            position: self.position,
            partition,
            row: self.row,
            format: self.format,
            key: Arc::clone(&self.key),
            event: self.event.as_ref().ok().cloned(),
        }
    }
}

impl State {
    pub(super) fn new(kind: Kind, partitions: u16) -> State {
        let partitions = usize::from(partitions);
        State {
            kind,
            log: vec![Vec::new(); partitions],
            by_seq: vec![BTreeMap::new(); partitions],
            leases: vec![LeaseRow::default(); partitions],
            ..State::default()
        }
    }

    /// All partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.log.len()).unwrap_or(u16::MAX)
    }

    /// The partition of a key.
    pub(super) fn home(&self, key_hash: KeyHash) -> u16 {
        partition_of(key_hash, self.log.len())
    }

    /// Draws the next number. A number that is not used is a gap for ever, unless one writer at a
    /// time gives it back.
    pub(super) fn draw_seq(&mut self) -> u64 {
        self.seq_last += 1;
        self.seq_last
    }

    /// Makes a row visible at the end of the commit order.
    pub(super) fn append(&mut self, new: NewRow, now: Duration) -> RowRef {
        let NewRow { seq, xid, format, event } = new;
        let row = RowRef { seq, id: event.id };
        let log_row = LogRow {
            position: 0,
            row,
            xid,
            format,
            found_at: now,
            key_hash: event.key_hash(),
            key: Arc::from(event.key()),
            event: Ok(Arc::new(event)),
        };
        self.push(log_row);
        row
    }

    /// Commits a row that is no event.
    pub(super) fn insert_malformed(&mut self, now: Duration) -> RowRef {
        /// Far from every id that a test counts.
        const IDS: u128 = 0xBAD << 64;
        self.malformed += 1;
        let xid = self.xids.begin();
        let id = EventId::from_u128(IDS + u128::from(self.malformed));
        let row = RowRef { seq: self.draw_seq(), id };
        let malformed = Malformed {
            reason: Reason::Malformed,
            detail: "headers: not a JSON object".to_owned(),
            event: None,
        };
        let key = "order/malformed";
        self.push(LogRow {
            position: 0,
            row,
            xid,
            format: 1,
            found_at: now,
            key_hash: KeyHash::of(key),
            key: Arc::from(key),
            event: Err(malformed),
        });
        self.xids.end(xid, true);
        row
    }

    fn push(&mut self, mut row: LogRow) {
        self.position_last += 1;
        self.version += 1;
        row.position = self.position_last;
        if self.kind == Kind::Keyed {
            row.found_at += self.lag.of(self.position_last);
        }
        let partition = usize::from(self.home(row.key_hash));
        self.by_seq[partition].insert(row.row.seq, row.position);
        *self.heads.entry(Arc::clone(&row.key)).or_default() += 1;
        for pending in self.pending.values_mut() {
            pending[partition].insert(row.row.seq);
        }
        self.log[partition].push(row);
    }

    /// The committed row of a number.
    pub(super) fn row_of(&self, partition: u16, seq: u64) -> Option<&LogRow> {
        let position = self.by_seq.get(usize::from(partition))?.get(&seq)?;
        let log = self.log.get(usize::from(partition))?;
        let index = log.binary_search_by_key(position, |row| row.position).ok()?;
        Some(&log[index])
    }

    /// The rows of a partition, in commit order.
    pub(super) fn rows(&self, partition: u16) -> Result<&[LogRow]> {
        self.log.get(usize::from(partition)).map(Vec::as_slice).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "read outbox")
                .message("no such partition")
                .context("partition", partition)
        })
    }

    /// Loses everything committed and starts numbering anew.
    pub(super) fn rewind(&mut self) {
        self.log.iter_mut().for_each(Vec::clear);
        self.by_seq.iter_mut().for_each(BTreeMap::clear);
        self.pending.values_mut().flatten().for_each(BTreeSet::clear);
        self.retired.clear();
        self.heads.clear();
        self.version += 1;
        self.position_last = 0;
        self.seq_last = 0;
    }
}
