//! After a move to a server that hashes text otherwise: each key in the partition that it has there.
//!
//! Invariant: the new hash is recorded last, and until then no relay opens the store; so what is interrupted
//! is finished by doing it again. Nothing is lost, and what lies above the least floor of a destination's cursors, or
//! above what its ranges have passed, comes again to it: a partition's cursor knows nothing of what was in another. The log below that floor
//! follows the events to their partitions.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::operate::Note;
use postrider_core::snapshot::SnapshotCursor;
use postrider_core::{Cursor, Result};

use super::recount::{self, BUCKET};
use super::{note, rebase, sequence};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, unsigned};

const HASH_SAME: Sql = sql!("operator/hash_same");
const HASH_RECORD: Sql = sql!("operator/hash_record");
const CURSORS: Sql = sql!("operator/cursors");
const LAST_SEQ: Sql = sql!("operator/last_seq");
const REPAIRING: Sql = sql!("operator/repairing");
const ROWS: Sql = sql!("operator/repartition_rows");
const REST: Sql = sql!("operator/repartition_rest");
const LOG: Sql = sql!("operator/repartition_log");
const REQUESTS: Sql = sql!("operator/repartition_requests");

const OPERATION: &str = "repair partitions";

/// Numbers of the outbox that one transaction goes through: far less than its deadline allows.
const STRETCH: u64 = 200_000;

/// Buckets of the log that one transaction goes through.
const BUCKETS: u64 = 64;

impl PostgresStore {
    /// Sends every key to the partition that this server's hash gives it, where the tables were made by a
    /// server with another hash (`PR-1011`). Returns how many events moved; 0 where the hash is the same.
    ///
    /// Every destination begins anew at the least floor of its cursors: what lies above it and was delivered
    /// comes again to that destination, and to no other.
    ///
    /// # Errors
    /// `Busy` if a relay owns a partition.
    pub async fn repair_partitions(&self, note: &Note) -> Result<u64> {
        let note = note::checked(note)?;
        let tx = self.sessions().begin(OPERATION).await?;
        rebase::keep_owners_out(&tx, OPERATION).await?;
        if tx.row(OPERATION, &HASH_SAME, params![]).await?.get(0) {
            tx.commit(OPERATION).await?;
            return Ok(0);
        }
        let begins = Begins::read(&tx).await?;
        for begin in &begins.all {
            for partition in &begin.partitions {
                let of = (&*begin.destination, *partition);
                rebase::place(&tx, OPERATION, of, &begin.cursor()).await?;
            }
        }
        tx.commit(OPERATION).await?;
        let mut moved = self.repartition(&begins).await?;
        for begin in &begins.all {
            self.follow(begin, begins.lowest).await?;
        }
        let tx = self.sessions().begin(OPERATION).await?;
        moved += unsigned(tx.row(OPERATION, &REST, params![]).await?.get(0));
        tx.execute(OPERATION, &REQUESTS, params![]).await?;
        tx.execute(OPERATION, &HASH_RECORD, params![signed(begins.floor)]).await?;
        let subject = format!("{moved} events moved; cursors begin anew at {}", begins.told());
        note::write(&tx, &note, OPERATION, &subject).await?;
        tx.commit(OPERATION).await?;
        Ok(moved)
    }

    async fn repartition(&self, begins: &Begins) -> Result<u64> {
        let tx = self.sessions().begin(OPERATION).await?;
        let bounds = tx.row(OPERATION, &LAST_SEQ, params![]).await?;
        tx.commit(OPERATION).await?;
        let number = |column| bounds.get::<_, Option<i64>>(column).map(unsigned);
        let (Some(first), Some(last)) = (number(0), number(1)) else { return Ok(0) };
        let running = begins.running();
        let (mut moved, mut next) = (0, Some(first.max(begins.lowest + 1)));
        while let Some(from) = next.filter(|from| *from <= last) {
            let through = last.min(from.saturating_add(STRETCH - 1));
            let tx = self.sessions().begin(OPERATION).await?;
            tx.row(OPERATION, &REPAIRING, params![]).await?;
            let values = params![signed(from), signed(through), signed(begins.floor), running];
            moved += tx.execute(OPERATION, &ROWS, values).await?;
            next = sequence::next(&tx, OPERATION, through).await?;
            tx.commit(OPERATION).await?;
        }
        Ok(moved)
    }

    /// Has a destination's log follow its events to the partitions that they are in now, from the bucket of a
    /// number on. A bucket in which log and outbox did not agree has no log any more: the recount sends all of
    /// it again.
    async fn follow(&self, begin: &Begin, from: u64) -> Result<()> {
        let end = (begin.floor + 1) / BUCKET;
        let mut next = Some((from + 1) / BUCKET);
        while let Some(from) = next.filter(|bucket| *bucket < end) {
            let through = (end - 1).min(from + BUCKETS - 1);
            let tx = self.sessions().begin(OPERATION).await?;
            let pages = recount::pages(&tx, &begin.destination, from, through).await?;
            let found = pages.iter().filter(|page| page.seen.count > 0).map(|page| {
                serde_json::json!({
                    "partition": page.partition,
                    "bucket": page.bucket,
                    "count": page.seen.count,
                    "id_sum": page.seen.id_sum.cast_signed(),
                })
            });
            let found = serde_json::Value::Array(found.collect()).to_string();
            let values = params![begin.destination, signed(from), signed(through), found];
            tx.execute(OPERATION, &LOG, values).await?;
            next = recount::next(&tx, &begin.destination, through).await?;
            tx.commit(OPERATION).await?;
        }
        Ok(())
    }
}

/// Where a destination's cursors begin anew.
struct Begin {
    destination: String,
    floor: u64,
    /// Transactions that some of its cursors look for below the floor, each from the least of their floors on.
    running: BTreeMap<u64, u64>,
    partitions: Vec<i16>,
}

impl Begin {
    fn cursor(&self) -> SnapshotCursor {
        rebase::above(self.floor, self.running.iter().map(|(xid, floor)| (*xid, *floor)))
    }
}

/// Where all begin anew.
struct Begins {
    all: Vec<Begin>,
    /// The least of their floors.
    floor: u64,
    /// At or below it no event changes its partition.
    lowest: u64,
}

impl Begins {
    async fn read(tx: &Session) -> Result<Begins> {
        let mut cursors: BTreeMap<String, Vec<(i16, SnapshotCursor)>> = BTreeMap::new();
        for row in tx.rows(OPERATION, &CURSORS, params![]).await? {
            let base: Vec<u8> = row.get(2);
            let cursor = Cursor::new(base.into(), unsigned(row.get(3)));
            let kept_from = unsigned(row.get::<_, Option<i64>>(4).unwrap_or_default());
            let ranges = row.get::<_, Option<i64>>(5).map(unsigned);
            let cursor = rebase::rebased(&SnapshotCursor::decode(&cursor)?, ranges, kept_from);
            cursors.entry(row.get(0)).or_default().push((row.get(1), cursor));
        }
        let all: Vec<Begin> = cursors.into_iter().map(begin).collect();
        let floor = all.iter().map(|begin| begin.floor).min().unwrap_or_default();
        let running = all.iter().flat_map(|begin| begin.running.values().copied());
        let lowest = running.fold(floor, u64::min);
        Ok(Begins { all, floor, lowest })
    }

    /// Every transaction that some destination looks for below its floor.
    fn running(&self) -> Vec<i64> {
        let all: BTreeSet<u64> =
            self.all.iter().flat_map(|begin| begin.running.keys().copied()).collect();
        all.into_iter().map(signed).collect()
    }

    fn told(&self) -> String {
        let told = |begin: &Begin| format!("{} ({})", begin.floor, begin.destination);
        self.all.iter().map(told).collect::<Vec<_>>().join(", ")
    }
}

fn begin((destination, cursors): (String, Vec<(i16, SnapshotCursor)>)) -> Begin {
    let floor = cursors.iter().map(|(_, cursor)| cursor.floor()).min().unwrap_or_default();
    let mut running = BTreeMap::new();
    for pending in cursors.iter().flat_map(|(_, cursor)| cursor.pending()) {
        if pending.floor < floor {
            let least = running.entry(pending.xid).or_insert(pending.floor);
            *least = pending.floor.min(*least);
        }
    }
    let partitions = cursors.iter().map(|(partition, _)| *partition).collect();
    Begin { destination, floor, running, partitions }
}
