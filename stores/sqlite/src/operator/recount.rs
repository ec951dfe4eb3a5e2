//! The recount: what the settled log says of each bucket, against what the outbox has.
//!
//! Independent of the relay's own bookkeeping: it reads events and sums their ids anew. A stretch of
//! buckets is one snapshot; the cursor, the origin, and the beginning of the history are read with
//! each. Memory is bounded by one stretch and the events that are named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use postrider_core::operate::{Difference, RowKey, Submission};
use postrider_core::{DestinationId, Event, EventId, PartitionId, Result};
use rusqlite::{Connection, Transaction, params};

use super::delivery::{OpenRequeues, Standing, Taken, standings, taken_by};
use super::sql;
use super::value::{self, count, id, not_found, shown, text};
use crate::error::During;
use crate::schema;
use crate::settle::BUCKET;
use crate::store::{SqliteStore, now, signed};

/// Buckets of one reading: a quarter of a million events, some tenths of a second.
const STRETCH: u64 = 64;

/// What one reading found.
struct Part {
    differences: Vec<Difference>,
    /// The last bucket there is to look at.
    last: u64,
}

/// Compares all buckets, as far as the cursor reaches.
pub(super) async fn recount(
    store: &SqliteStore,
    destination: &DestinationId,
) -> Result<Vec<Difference>> {
    let mut differences: Vec<Difference> = Vec::new();
    let (mut from, mut last, mut named) = (0, 0, 0);
    // More than one request can send again is left to the recount after that request.
    while from <= last {
        let (id, through) = (destination.clone(), from + STRETCH - 1);
        let part = store.read("recount", move |tx| compare(tx, &id, from..=through)).await?;
        for difference in part.differences {
            named += difference.requeue.len();
            if named > Submission::ROWS_MAX {
                return Ok(differences);
            }
            differences.push(difference);
        }
        (from, last) = (through + 1, part.last);
    }
    Ok(differences)
}

/// How many events a bucket has, and the wrapping sum of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    count: u64,
    id_sum: u64,
}

/// Compares some buckets.
fn compare(
    connection: &Connection,
    destination: &DestinationId,
    buckets: RangeInclusive<u64>,
) -> Result<Part> {
    let ledger = Ledger::read(connection, destination)?;
    let (said, seen) = (ledger.said(&buckets)?, ledger.seen(&buckets)?);
    let mut differences = Vec::new();
    for bucket in buckets.filter(|bucket| ledger.is_kept(*bucket)) {
        let of = |tallies: &BTreeMap<u64, Tally>| tallies.get(&bucket).copied().unwrap_or_default();
        let (said, seen) = (of(&said), of(&seen));
        if said != seen {
            let stretch = ledger.covered(bucket);
            differences.push(Difference {
                partition: PartitionId(ledger.standing().partition),
                first: *stretch.start(),
                last: *stretch.end(),
                settled: said.count,
                found: seen.count,
                requeue: ledger.left(bucket)?.requeue,
            });
        }
    }
    Ok(Part { differences, last: ledger.last()? })
}

/// A bucket of which a requeue sends everything again that the log may have missed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Correction {
    destination: DestinationId,
    bucket: u64,
    covered: RangeInclusive<u64>,
    said: Tally,
    seen: Tally,
    other_route: u64,
    dropped: u64,
    erased: u64,
}

/// The buckets that differ and of which all that is missing is among the rows of a requeue, or of one
/// that is still open. Their log is corrected with the request ([`correct`]): what was missing is
/// about to wait, and the next recount finds nothing.
pub(super) async fn corrections(store: &SqliteStore, rows: &[RowKey]) -> Result<Vec<Correction>> {
    let mut buckets: BTreeMap<(DestinationId, u64), BTreeSet<u64>> = BTreeMap::new();
    for row in rows {
        let bucket = (row.destination.clone(), row.seq / BUCKET);
        buckets.entry(bucket).or_default().insert(row.seq);
    }
    let mut corrections = Vec::new();
    for ((destination, bucket), seqs) in buckets {
        let examine = move |tx: &Transaction<'_>| examine(tx, &destination, bucket, &seqs);
        corrections.extend(store.read("submit", examine).await?);
    }
    Ok(corrections)
}

fn examine(
    connection: &Connection,
    destination: &DestinationId,
    bucket: u64,
    asked: &BTreeSet<u64>,
) -> Result<Option<Correction>> {
    // Whether there is such a destination is told by the submission itself.
    let known =
        value::first(connection, "submit", sql::DESTINATION, [destination.as_str()], |_| ());
    if known?.is_none() {
        return Ok(None);
    }
    let ledger = Ledger::read(connection, destination)?;
    let one = bucket..=bucket;
    let said = ledger.said(&one)?.remove(&bucket).unwrap_or_default();
    let seen = ledger.seen(&one)?.remove(&bucket).unwrap_or_default();
    if said == seen || !ledger.is_kept(bucket) {
        return Ok(None);
    }
    let left = ledger.left(bucket)?;
    let open = OpenRequeues::read(connection)?;
    for seq in left.requeue.iter().filter(|seq| !asked.contains(seq)) {
        if !open.has(connection, destination, ledger.standing().partition, *seq)? {
            return Ok(None);
        }
    }
    Ok(Some(Correction {
        destination: destination.clone(),
        bucket,
        covered: ledger.covered(bucket),
        said,
        seen,
        other_route: left.other_route,
        dropped: left.dropped,
        erased: left.erased,
    }))
}

/// Writes a correction, in the transaction of the request, unless the bucket's log, or what the cursor
/// has passed of it, has changed since it was worked out: then the next recount sees. A cursor that
/// moves elsewhere is nothing to it.
pub(super) fn correct(connection: &Connection, correction: &Correction) -> Result<()> {
    let ledger = Ledger::read(connection, &correction.destination)?;
    let one = correction.bucket..=correction.bucket;
    let said = ledger.said(&one)?.remove(&correction.bucket).unwrap_or_default();
    let standing = ledger.standing();
    if said != correction.said || ledger.covered(correction.bucket) != correction.covered {
        return Ok(());
    }
    let Correction { seen, other_route, dropped, erased, .. } = correction;
    let waiting = seen.count.saturating_sub(other_route + dropped + erased);
    let row = params![
        correction.destination.as_str(),
        standing.partition,
        signed(correction.bucket),
        signed(seen.count),
        seen.id_sum.cast_signed(),
        signed(*other_route),
        signed(*dropped),
        signed(waiting),
        signed(*erased),
        now(connection)?,
    ];
    connection.execute(sql::RECOUNT_CORRECT, row).map(drop).during("submit")
}

/// A destination's cursor and log, beside the outbox.
struct Ledger<'c> {
    connection: &'c Connection,
    standings: Vec<Standing>,
    index: usize,
    kept_from: u64,
}

/// What of a bucket does not wait.
#[derive(Default)]
struct Left {
    /// What the destination should have: what was let go by an operator waits, in its way.
    requeue: Vec<u64>,
    other_route: u64,
    dropped: u64,
    erased: u64,
}

impl Ledger<'_> {
    fn read<'c>(connection: &'c Connection, destination: &DestinationId) -> Result<Ledger<'c>> {
        let standings = standings(connection)?;
        let index = standings.iter().position(|standing| standing.definition.id == *destination);
        let index = index.ok_or_else(|| not_found("recount", "destination", destination))?;
        let kept_from = schema::read_number(connection, "history_start")?;
        Ok(Ledger { connection, standings, index, kept_from })
    }

    fn standing(&self) -> &Standing {
        &self.standings[self.index]
    }

    /// Whether all of a bucket is kept. Of one that the history begins in, the log counts what is
    /// gone.
    fn is_kept(&self, bucket: u64) -> bool {
        first(bucket) >= self.kept_from
    }

    /// The numbers of a bucket that the cursor has passed since its origin.
    fn covered(&self, bucket: u64) -> RangeInclusive<u64> {
        let first = first(bucket).max(self.standing().origin + 1);
        let last = (bucket * BUCKET + BUCKET - 1).min(self.standing().position);
        first..=last
    }

    /// The last bucket there is to look at.
    fn last(&self) -> Result<u64> {
        let standing = self.standing();
        let of = params![standing.definition.id.as_str(), standing.partition];
        let last =
            value::first(self.connection, "recount", sql::RECOUNT_LAST, of, |row| count(row, 0))?;
        Ok((standing.position / BUCKET).max(last.unwrap_or_default()))
    }

    /// What the log says.
    fn said(&self, buckets: &RangeInclusive<u64>) -> Result<BTreeMap<u64, Tally>> {
        let standing = self.standing();
        let of = params![
            standing.definition.id.as_str(),
            standing.partition,
            signed(*buckets.start()),
            signed(*buckets.end())
        ];
        let rows = value::all(self.connection, "recount", sql::RECOUNT_LOG, of, |row| {
            let id_sum = row.get::<_, i64>(2).unwrap_or_default().cast_unsigned();
            (count(row, 0), Tally { count: count(row, 1), id_sum })
        })?;
        Ok(rows.into_iter().collect())
    }

    /// What the outbox has.
    fn seen(&self, buckets: &RangeInclusive<u64>) -> Result<BTreeMap<u64, Tally>> {
        let from = *self.covered(*buckets.start()).start();
        let through = *self.covered(*buckets.end()).end();
        let mut tallies: BTreeMap<u64, Tally> = BTreeMap::new();
        let mut statement = self.connection.prepare_cached(sql::RECOUNT_ROWS).during("recount")?;
        let mut rows = statement.query((signed(from), signed(through))).during("recount")?;
        while let Some(row) = rows.next().during("recount")? {
            // What is no id counts as the relay counted it.
            let id = id(row, 1).unwrap_or(EventId::from_u128(0));
            let tally = tallies.entry(count(row, 0) / BUCKET).or_default();
            tally.count += 1;
            tally.id_sum = tally.id_sum.wrapping_add(id.digest());
        }
        Ok(tallies)
    }

    /// What of a bucket does not wait, by what the routes say of it now.
    fn left(&self, bucket: u64) -> Result<Left> {
        let stretch = self.covered(bucket);
        let of = params![
            self.standing().definition.id.as_str(),
            signed(*stretch.start()),
            signed(*stretch.end())
        ];
        let rows = value::all(self.connection, "recount", sql::RECOUNT_REQUEUE, of, |row| {
            let mut event = Event::new(EventId::from_u128(0), &shown(row, 2), "", &shown(row, 1));
            event.tenant = text(row, 3).map(Into::into);
            (count(row, 0), taken_by(&self.standings, &event)[self.index], count(row, 4) != 0)
        })?;
        let mut left = Left::default();
        for (seq, taken, erased) in rows {
            match taken {
                Taken::No => left.other_route += 1,
                Taken::Dropped => left.dropped += 1,
                Taken::Delivered if erased => left.erased += 1,
                Taken::Delivered => left.requeue.push(seq),
            }
        }
        Ok(left)
    }
}

/// The first number of a bucket; there is no event 0.
fn first(bucket: u64) -> u64 {
    (bucket * BUCKET).max(1)
}
