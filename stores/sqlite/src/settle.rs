//! Recording outcomes: cursor, settled log, waiting events, and ranges, in one transaction.
//!
//! Invariants: a cursor moves only from where the relay believed it to be; what it passes is
//! counted once, however often the settlement is sent; and an event that waits is written in the
//! transaction of the cursor that passes it.

use std::collections::BTreeMap;

use postrider_core::waiting::{Passed, RowRef, Settlement, SettlementPart};
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Lease, PartitionId, Result};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::During;
use crate::store::{now, signed, unsigned};
use crate::{endpoint, lease, range, sql, waiting};

/// How many sequence numbers share a row of the settled log.
pub(crate) const BUCKET: u64 = 4_096;

/// Writes a settlement, if its lease stands.
pub(crate) fn settle(connection: &Connection, settlement: &Settlement) -> Result<()> {
    lease::fence(connection, &settlement.lease, "settle")?;
    let now = now(connection)?;
    for part in &settlement.parts {
        settle_part(connection, &settlement.lease, part, now)
            .map_err(|error| error.context("destination", &part.destination))?;
    }
    Ok(())
}

fn settle_part(
    connection: &Connection,
    lease: &Lease,
    part: &SettlementPart,
    now: i64,
) -> Result<()> {
    let stored = position(connection, &part.destination, lease.partition).during("settle")?;
    let Some((stored, _)) = stored else {
        return Ok(());
    };
    endpoint::disable(connection, part, now)?;
    let place = waiting::Place { destination: &part.destination, partition: lease.partition, now };
    waiting::enter(connection, place, &part.waiting)?;
    waiting::change(connection, place, &part.changes)?;
    range::change(connection, place, &part.ranges)?;
    match &part.cursor {
        Some((from, to)) => advance(connection, lease, part, stored, (from, to), now),
        None => Ok(()),
    }
}

/// Where a destination stands, and up to where it is sent again. One that was removed meanwhile stands
/// nowhere and takes nothing; to refuse the others of the partition for it would have them deliver
/// again what is settled.
pub(crate) fn position(
    connection: &Connection,
    destination: &DestinationId,
    partition: PartitionId,
) -> rusqlite::Result<Option<(u64, u64)>> {
    connection
        .prepare_cached(sql::SETTLE_POSITION)?
        .query_row(params![destination.as_str(), partition.0], |row| {
            Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)))
        })
        .optional()
}

fn advance(
    connection: &Connection,
    lease: &Lease,
    part: &SettlementPart,
    stored: u64,
    (from, to): (&Cursor, &Cursor),
    now: i64,
) -> Result<()> {
    if stored == to.position() {
        // Sent before, and its answer was lost: it is counted already.
        return Ok(());
    }
    if stored != from.position() {
        return Err(Error::new(ErrorKind::Conflict, "settle")
            .message("the saved cursor is not where the relay left it; nothing was written")
            .context("stored", stored)
            .context("from", from.position())
            .context("to", to.position()));
    }
    connection
        .prepare_cached(sql::SETTLE_ADVANCE)
        .and_then(|mut statement| {
            statement.execute(params![
                part.destination.as_str(),
                lease.partition.0,
                signed(to.position()),
                now
            ])
        })
        .during("settle")?;
    log(connection, lease, part, now)
}

/// What is added to one row of the settled log.
#[derive(Default)]
struct Bucket {
    id_sum: u64,
    count: i64,
    acked: i64,
    other_route: i64,
    dropped: i64,
    waiting: i64,
    erased: i64,
}

impl Bucket {
    fn add(&mut self, row: RowRef, passed: Passed) {
        self.id_sum = self.id_sum.wrapping_add(row.id.digest());
        self.count += 1;
        *match passed {
            Passed::Acked => &mut self.acked,
            Passed::OtherRoute => &mut self.other_route,
            Passed::Dropped => &mut self.dropped,
            Passed::Waiting => &mut self.waiting,
            Passed::Erased => &mut self.erased,
        } += 1;
    }
}

fn log(connection: &Connection, lease: &Lease, part: &SettlementPart, now: i64) -> Result<()> {
    let mut buckets: BTreeMap<u64, Bucket> = BTreeMap::new();
    for (row, passed) in &part.passed {
        let bucket = buckets.entry(row.seq / BUCKET).or_default();
        bucket.add(*row, *passed);
    }
    for (number, bucket) in &buckets {
        add_bucket(connection, lease, part, (signed(*number), bucket), now).during("settle")?;
    }
    Ok(())
}

fn add_bucket(
    connection: &Connection,
    lease: &Lease,
    part: &SettlementPart,
    (number, bucket): (i64, &Bucket),
    now: i64,
) -> rusqlite::Result<()> {
    let (destination, partition) = (part.destination.as_str(), lease.partition.0);
    // The sum wraps, which SQLite's own addition does not.
    let sum: Option<i64> = connection
        .prepare_cached(sql::SETTLE_BUCKET_SUM)?
        .query_row(params![destination, partition, number], |row| row.get(0))
        .optional()?;
    let sum = sum.unwrap_or_default().wrapping_add(bucket.id_sum.cast_signed());
    connection.prepare_cached(sql::SETTLE_BUCKET_ADD)?.execute(params![
        destination,
        partition,
        number,
        sum,
        bucket.count,
        bucket.acked,
        bucket.other_route,
        bucket.dropped,
        bucket.waiting,
        bucket.erased,
        lease.owner.as_str(),
        now
    ])?;
    Ok(())
}
