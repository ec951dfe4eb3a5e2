//! The recount: what the settled log says of each bucket, against what the outbox has.
//!
//! Independent of the relay's own bookkeeping: it reads events and sums their ids anew. A stretch of
//! buckets is one snapshot; the cursor, the origin, and the beginning of the history are read with
//! each. Memory is bounded by one stretch and the events that are named.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use postrider_core::operate::{Difference, Submission};
use postrider_core::{DestinationId, Event, EventId, PartitionId, Result};
use rusqlite::{Connection, params};

use super::delivery::{Standing, Taken, standings, taken_by};
use super::sql;
use super::value::{self, count, id, not_found, shown, text};
use crate::error::During;
use crate::schema;
use crate::settle::BUCKET;
use crate::store::{SqliteStore, signed};

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
    // More than one request can send again is left to the next recount.
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
    let standings = standings(connection)?;
    let index = standings.iter().position(|standing| standing.definition.id == *destination);
    let index = index.ok_or_else(|| not_found("recount", "destination", destination))?;
    let standing = &standings[index];
    let kept_from = schema::read_number(connection, "history_start")?;
    let logged = logged(connection, standing, &buckets)?;
    let found = counted(connection, standing, &buckets)?;
    let mut differences = Vec::new();
    for bucket in buckets {
        let stretch = covered(standing, bucket);
        // Of a bucket that the history begins in, the log counts what is gone.
        if first(bucket) < kept_from {
            continue;
        }
        let said = logged.get(&bucket).copied().unwrap_or_default();
        let seen = found.get(&bucket).copied().unwrap_or_default();
        if said != seen {
            differences.push(Difference {
                partition: PartitionId(standing.partition),
                first: *stretch.start(),
                last: *stretch.end(),
                settled: said.count,
                found: seen.count,
                requeue: requeue(connection, &standings, index, &stretch)?,
            });
        }
    }
    let last = value::first(
        connection,
        "recount",
        sql::RECOUNT_LAST,
        params![destination.as_str(), standing.partition],
        |row| count(row, 0),
    )?;
    Ok(Part { differences, last: (standing.position / BUCKET).max(last.unwrap_or_default()) })
}

/// The first number of a bucket; there is no event 0.
fn first(bucket: u64) -> u64 {
    (bucket * BUCKET).max(1)
}

/// The numbers of a bucket that the cursor has passed since its origin.
fn covered(standing: &Standing, bucket: u64) -> RangeInclusive<u64> {
    let first = first(bucket).max(standing.origin + 1);
    let last = (bucket * BUCKET + BUCKET - 1).min(standing.position);
    first..=last
}

fn logged(
    connection: &Connection,
    standing: &Standing,
    buckets: &RangeInclusive<u64>,
) -> Result<BTreeMap<u64, Tally>> {
    let of = params![
        standing.definition.id.as_str(),
        standing.partition,
        signed(*buckets.start()),
        signed(*buckets.end())
    ];
    let rows = value::all(connection, "recount", sql::RECOUNT_LOG, of, |row| {
        let id_sum = row.get::<_, i64>(2).unwrap_or_default().cast_unsigned();
        (count(row, 0), Tally { count: count(row, 1), id_sum })
    })?;
    Ok(rows.into_iter().collect())
}

fn counted(
    connection: &Connection,
    standing: &Standing,
    buckets: &RangeInclusive<u64>,
) -> Result<BTreeMap<u64, Tally>> {
    let from = *covered(standing, *buckets.start()).start();
    let through = *covered(standing, *buckets.end()).end();
    let mut tallies: BTreeMap<u64, Tally> = BTreeMap::new();
    let mut statement = connection.prepare_cached(sql::RECOUNT_ROWS).during("recount")?;
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

/// The events of a stretch that the destination should have and that do not wait there: what was let
/// go by an operator, was erased, or belongs elsewhere is not sent again.
fn requeue(
    connection: &Connection,
    standings: &[Standing],
    index: usize,
    stretch: &RangeInclusive<u64>,
) -> Result<Vec<u64>> {
    let of = params![
        standings[index].definition.id.as_str(),
        signed(*stretch.start()),
        signed(*stretch.end())
    ];
    let rows = value::all(connection, "recount", sql::RECOUNT_REQUEUE, of, |row| {
        let id = EventId::from_u128(0);
        let mut event = Event::new(id, &shown(row, 2), "", &shown(row, 1));
        event.tenant = text(row, 3).map(Into::into);
        (count(row, 0), taken_by(standings, &event)[index] == Taken::Delivered)
    })?;
    Ok(rows.into_iter().filter(|(_, taken)| *taken).map(|(seq, _)| seq).collect())
}
