//! The recount: what the settled log says of each bucket, against what the outbox has.
//!
//! Independent of the relay's own bookkeeping: it reads events and sums their ids anew. A stretch of
//! buckets is one snapshot; the cursor, the origin, and the beginning of the history are read with
//! each. Memory is bounded by one stretch and the events that are named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use postrider_core::operate::{Difference, Recounted, RowKey, Submission, missing};
use postrider_core::{DestinationId, Event, EventId, PartitionId, Result};
use rusqlite::{Connection, Transaction, params};

use super::delivery::{OpenRequeues, Standing, Taken, standings, taken_by, waits_by};
use super::range;
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
    found: Recounted,
    /// The last bucket there is to look at.
    last: u64,
}

/// Compares all buckets, as far as the cursor reaches.
pub(super) async fn recount(store: &SqliteStore, destination: &DestinationId) -> Result<Recounted> {
    let mut recounted = Recounted::default();
    let (mut from, mut last, mut named) = (0, 0, 0);
    // More than one request can send again is left to the recount after that request.
    while from <= last {
        let (id, through) = (destination.clone(), from + STRETCH - 1);
        let part = store.read("recount", move |tx| compare(tx, &id, from..=through)).await?;
        recounted.not_passed += part.found.not_passed;
        recounted.at_beginning += part.found.at_beginning;
        for difference in part.found.differences {
            named += difference.requeue.len();
            if named > Submission::ROWS_MAX {
                return Ok(recounted);
            }
            recounted.differences.push(difference);
        }
        (from, last) = (through + 1, part.last);
    }
    Ok(recounted)
}

/// How many events a bucket has, and the wrapping sum of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    count: u64,
    id_sum: u64,
}

impl Tally {
    /// What a log that says so much has missed of this; `None` if it says something else altogether.
    fn lacks(self, said: Tally) -> Option<Tally> {
        let count = self.count.checked_sub(said.count).filter(|count| *count > 0)?;
        Some(Tally { count, id_sum: self.id_sum.wrapping_sub(said.id_sum) })
    }
}

/// Compares some buckets.
fn compare(
    connection: &Connection,
    destination: &DestinationId,
    buckets: RangeInclusive<u64>,
) -> Result<Part> {
    let ledger = Ledger::read(connection, destination)?;
    let (said, seen) = (ledger.said(&buckets)?, ledger.seen(&buckets)?);
    let mut found = Recounted { not_passed: ledger.ahead(&buckets)?, ..Recounted::default() };
    for bucket in buckets {
        let of = |tallies: &BTreeMap<u64, Tally>| tallies.get(&bucket).copied().unwrap_or_default();
        let (said, seen) = (of(&said), of(&seen));
        if said == seen {
            continue;
        }
        if !ledger.is_kept(bucket) {
            found.at_beginning += seen.count;
            continue;
        }
        let stretch = ledger.covered(bucket);
        found.differences.push(Difference {
            partition: PartitionId(ledger.standing().partition),
            first: *stretch.start(),
            last: *stretch.end(),
            settled: said.count,
            found: seen.count,
            requeue: ledger.left(bucket, said, seen)?.requeue,
        });
    }
    Ok(Part { found, last: ledger.last()? })
}

/// A bucket of which a requeue sends everything again that the log may have missed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Correction {
    destination: DestinationId,
    bucket: u64,
    covered: RangeInclusive<u64>,
    said: Tally,
    seen: Tally,
    left: Left,
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
    let left = ledger.left(bucket, said, seen)?;
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
        left,
    }))
}

/// Writes a correction, in the transaction of the request: what is missing, where that is known, else that all
/// that is left of the bucket waits. Unless the bucket's log, or what the cursor has passed of it, has changed
/// since it was worked out, and not by the same: then the next recount sees.
pub(super) fn correct(connection: &Connection, correction: &Correction) -> Result<()> {
    let ledger = Ledger::read(connection, &correction.destination)?;
    let one = correction.bucket..=correction.bucket;
    let said = ledger.said(&one)?.remove(&correction.bucket).unwrap_or_default();
    let Correction { seen, left, .. } = correction;
    let gone = left.other_route + left.dropped + left.erased;
    let is_added = left.is_exact && correction.said.count > 0;
    let (as_it_was, count, id_sum, waiting) = if is_added {
        let now = ledger.seen(&one)?.remove(&correction.bucket).unwrap_or_default();
        let lack = seen.lacks(correction.said).unwrap_or_default();
        (now.lacks(said) == Some(lack), now.count, now.id_sum, lack.count)
    } else {
        let covered = ledger.covered(correction.bucket);
        let as_it_was = said == correction.said && covered == correction.covered;
        (as_it_was, seen.count, seen.id_sum, seen.count)
    };
    if !as_it_was {
        return Ok(());
    }
    let row = params![
        correction.destination.as_str(),
        ledger.standing().partition,
        signed(correction.bucket),
        signed(count),
        id_sum.cast_signed(),
        signed(left.other_route),
        signed(left.dropped),
        signed(waiting.saturating_sub(gone)),
        signed(left.erased),
        now(connection)?,
    ];
    let statement = if is_added { sql::RECOUNT_ADD } else { sql::RECOUNT_CORRECT };
    connection.execute(statement, row).map(drop).during("submit")
}

/// A destination's cursor and log, beside the outbox.
struct Ledger<'c> {
    connection: &'c Connection,
    standings: Vec<Standing>,
    index: usize,
    kept_from: u64,
}

/// What of a bucket does not wait.
#[derive(Clone, Debug, Default, PartialEq)]
struct Left {
    /// The sums tell what the log has missed, and this is of that alone.
    is_exact: bool,
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

    /// How many events of some buckets the cursor has not passed.
    fn ahead(&self, buckets: &RangeInclusive<u64>) -> Result<u64> {
        let passed = self.standing().position.max(self.standing().origin);
        let of = params![
            signed((passed + 1).max(first(*buckets.start()))),
            signed(buckets.end() * BUCKET + BUCKET - 1)
        ];
        let ahead =
            value::first(self.connection, "recount", sql::RECOUNT_AHEAD, of, |row| count(row, 0))?;
        Ok(ahead.unwrap_or_default())
    }

    /// The events of a bucket that the log has missed, where the sums tell.
    fn missing(&self, bucket: u64, said: Tally, seen: Tally) -> Result<Option<BTreeSet<u64>>> {
        let Some(lack) = seen.lacks(said) else { return Ok(None) };
        let stretch = self.covered(bucket);
        let of = (signed(*stretch.start()), signed(*stretch.end()));
        let digest = |id: Option<EventId>| id.unwrap_or(EventId::from_u128(0)).digest();
        let rows = value::all(self.connection, "recount", sql::RECOUNT_ROWS, of, |row| {
            (count(row, 0), digest(id(row, 1)))
        })?;
        Ok(missing(&rows, lack.count, lack.id_sum).map(BTreeSet::from_iter))
    }

    /// What of a bucket does not wait, of what is missing if that is known, by what the routes say of it now.
    fn left(&self, bucket: u64, said: Tally, seen: Tally) -> Result<Left> {
        let missing = self.missing(bucket, said, seen)?;
        let stretch = self.covered(bucket);
        let of = params![
            self.standing().definition.id.as_str(),
            signed(*stretch.start()),
            signed(*stretch.end())
        ];
        let rows = value::all(self.connection, "recount", sql::RECOUNT_REQUEUE, of, |row| {
            let mut event = Event::new(EventId::from_u128(0), &shown(row, 2), "", &shown(row, 1));
            event.tenant = text(row, 3).map(Into::into);
            let taken = taken_by(&self.standings, &event)[self.index];
            (count(row, 0), taken, count(row, 4) != 0, shown(row, 5))
        })?;
        let ranges = range::read(self.connection)?;
        let waits = |seq, key: &str, taken| waits_by(&ranges, self.standing(), (key, seq), taken);
        let mut left = Left { is_exact: missing.is_some(), ..Left::default() };
        let is_left = |seq: &u64| missing.as_ref().is_none_or(|missing| missing.contains(seq));
        for (seq, taken, erased, key) in rows.into_iter().filter(|row| is_left(&row.0)) {
            match taken {
                // It is not missing: its owner copies it.
                _ if waits(seq, &key, taken) => {}
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
