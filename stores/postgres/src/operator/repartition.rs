//! After a move to a server that hashes text otherwise: each key in the partition that it has there.
//!
//! Invariant: the new hash is recorded last, and until then no relay opens the store; so what is interrupted
//! is finished by doing it again. Nothing is lost, and what lies above the least floor of all cursors comes
//! again: a partition's cursor knows nothing of what was in another.

use std::collections::BTreeMap;

use postrider_core::operate::Note;
use postrider_core::snapshot::SnapshotCursor;
use postrider_core::{Cursor, Result};

use super::{note, rebase};
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
const REQUESTS: Sql = sql!("operator/repartition_requests");

const OPERATION: &str = "repair partitions";

/// Numbers of the outbox that one transaction goes through: far less than its deadline allows.
const STRETCH: u64 = 200_000;

impl PostgresStore {
    /// Sends every key to the partition that this server's hash gives it, where the tables were made by a
    /// server with another hash (`PR-1011`). Returns how many events moved; 0 where the hash is the same.
    ///
    /// Every destination begins anew at the least floor of all partitions: what lies above it and was
    /// delivered comes again. A destination that is far behind makes that much: let it catch up first.
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
        for (destination, partition) in &begins.places {
            rebase::place(&tx, OPERATION, (destination, *partition), &begins.cursor()).await?;
        }
        tx.commit(OPERATION).await?;
        let mut moved = self.repartition(&begins).await?;
        let tx = self.sessions().begin(OPERATION).await?;
        moved += unsigned(tx.row(OPERATION, &REST, params![]).await?.get(0));
        tx.execute(OPERATION, &REQUESTS, params![]).await?;
        tx.execute(OPERATION, &HASH_RECORD, params![]).await?;
        let subject = format!("{moved} events moved; cursors begin anew at {}", begins.floor);
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
        let running: Vec<i64> = begins.running.keys().map(|xid| signed(*xid)).collect();
        let (mut moved, mut from) = (0, first.max(begins.lowest() + 1));
        while from <= last {
            let through = last.min(from.saturating_add(STRETCH - 1));
            let tx = self.sessions().begin(OPERATION).await?;
            tx.row(OPERATION, &REPAIRING, params![]).await?;
            let values = params![signed(from), signed(through), signed(begins.floor), running];
            moved += tx.execute(OPERATION, &ROWS, values).await?;
            tx.commit(OPERATION).await?;
            from = through + 1;
        }
        Ok(moved)
    }
}

/// Where every cursor begins anew.
struct Begins {
    floor: u64,
    /// Transactions that some cursor looks for below the floor, each from the least of their floors on.
    running: BTreeMap<u64, u64>,
    places: Vec<(String, i16)>,
}

impl Begins {
    async fn read(tx: &Session) -> Result<Begins> {
        let (mut cursors, mut places) = (Vec::new(), Vec::new());
        for row in tx.rows(OPERATION, &CURSORS, params![]).await? {
            let base: Vec<u8> = row.get(2);
            let cursor = Cursor::new(base.into(), unsigned(row.get(3)));
            let kept_from = unsigned(row.get::<_, Option<i64>>(4).unwrap_or_default());
            cursors.push(rebase::rebased(&SnapshotCursor::decode(&cursor)?, kept_from));
            places.push((row.get(0), row.get(1)));
        }
        let floor = cursors.iter().map(SnapshotCursor::floor).min().unwrap_or_default();
        let mut running = BTreeMap::new();
        for pending in cursors.iter().flat_map(|cursor| cursor.pending()) {
            if pending.floor < floor {
                let least = running.entry(pending.xid).or_insert(pending.floor);
                *least = pending.floor.min(*least);
            }
        }
        Ok(Begins { floor, running, places })
    }

    fn cursor(&self) -> SnapshotCursor {
        rebase::above(self.floor, self.running.iter().map(|(xid, floor)| (*xid, *floor)))
    }

    /// At or below it no event changes its partition.
    fn lowest(&self) -> u64 {
        self.running.values().copied().fold(self.floor, u64::min)
    }
}
