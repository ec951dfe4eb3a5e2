//! The recount: what the settled log says of each bucket, against what the outbox has.
//!
//! Independent of the relay's own bookkeeping: it reads events and sums their ids anew. A stretch of
//! buckets is one statement and so one snapshot: cursors, origins, and log are read with the events.
//! Memory is bounded by one stretch and the events that are named.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::operate::{Difference, Recounted, RowKey, Submission, missing};
use postrider_core::{DestinationId, Event, EventId, KeyHash, PartitionId, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use super::delivery::{Standing, Taken, standings, taken_by};
use super::value::{count, not_found};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, unsigned};

const RECOUNT: Sql = sql!("operator/recount");
const RECOUNT_BOUNDS: Sql = sql!("operator/recount_bounds");
const RECOUNT_NEXT: Sql = sql!("operator/recount_next");
const RECOUNT_LEFT: Sql = sql!("operator/recount_left");
const REQUEUE_OPEN: Sql = sql!("operator/requeue_open");

/// Numbers of a bucket of the settled log.
pub(super) const BUCKET: u64 = 4_096;

/// Buckets of one reading: a quarter of a million events, some tenths of a second.
const STRETCH: u64 = 64;

/// Buckets that one request corrects. Of more, the next recount tells what is left.
const CORRECTED_MAX: usize = 1_000;

/// Compares all buckets, as far as the cursors reach.
pub(super) async fn recount(
    store: &PostgresStore,
    destination: &DestinationId,
) -> Result<Recounted> {
    // A session of its own: it takes as long as there are events.
    let session = store.sessions().connect("recount").await?;
    let ledger = Ledger::read(&session, destination).await?;
    let mut recounted = Recounted::default();
    let (mut from, mut named) = (ledger.kept_from / BUCKET, 0);
    let mut last = ledger.last;
    while from <= last {
        let through = from + STRETCH - 1;
        let pages = ledger.pages(from, through).await?;
        let empty = pages.is_empty();
        for page in pages {
            if page.seen.count > 0 {
                // What was passed may lie beyond the floors that the bounds were read from.
                last = last.max(page.bucket + 1);
            }
            recounted.not_passed += page.ahead;
            if page.said == page.seen {
                continue;
            }
            if !ledger.is_kept(page.bucket) {
                recounted.at_beginning += page.seen.count;
                continue;
            }
            let difference = ledger.difference(&page).await?;
            named += difference.requeue.len();
            // More than one request can send again is left to the recount after that request.
            if named > Submission::ROWS_MAX {
                return Ok(recounted);
            }
            recounted.differences.push(difference);
        }
        from = match empty {
            // The sequence may have leapt over a trillion numbers.
            true => next(&session, destination.as_str(), through).await?.unwrap_or(last + 1),
            false => through + 1,
        };
    }
    Ok(recounted)
}

/// What log and outbox have of some buckets of a destination.
pub(super) async fn pages(
    session: &Session,
    destination: &str,
    from: u64,
    through: u64,
) -> Result<Vec<Page>> {
    let values = params![destination, signed(from), signed(through)];
    let rows = session.rows("recount", &RECOUNT, values).await?;
    Ok(rows.iter().map(Page::read).collect())
}

/// The first bucket behind one of which there is anything.
pub(super) async fn next(session: &Session, destination: &str, bucket: u64) -> Result<Option<u64>> {
    let row = session.row("recount", &RECOUNT_NEXT, params![destination, signed(bucket)]).await?;
    Ok(row.get::<_, Option<i64>>(0).map(unsigned))
}

/// How many events a bucket has, and the wrapping sum of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) id_sum: u64,
}

/// A bucket of a partition.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) partition: i16,
    pub(super) bucket: u64,
    pub(super) said: Tally,
    pub(super) seen: Tally,
    /// Events that the cursor has not passed.
    ahead: u64,
    /// The events that the log has missed, where the sums tell.
    missing: Option<BTreeSet<u64>>,
    /// The last number of it that the cursor covers.
    last: u64,
}

impl Page {
    fn read(row: &Row) -> Page {
        let bucket = unsigned(row.get(1));
        let ids: Vec<Uuid> = row.get(4);
        let digest = |id: &Uuid| EventId::from_u128(id.as_u128()).digest();
        let seen = Tally {
            count: ids.len() as u64,
            id_sum: ids.iter().fold(0, |sum, id| sum.wrapping_add(digest(id))),
        };
        let said =
            Tally { count: unsigned(row.get(2)), id_sum: row.get::<_, i64>(3).cast_unsigned() };
        let missing = (said != seen).then(|| {
            let places: Vec<i16> = row.get(7);
            let seq = |place: &i16| bucket * BUCKET + u64::from(place.unsigned_abs());
            let mut rows: Vec<(u64, u64)> =
                places.iter().map(seq).zip(ids.iter().map(digest)).collect();
            rows.sort_unstable();
            seen.lacks(said).and_then(|lack| missing(&rows, lack.count, lack.id_sum))
        });
        let end = bucket * BUCKET + BUCKET - 1;
        let ground = unsigned(row.get::<_, Option<i64>>(6).unwrap_or_default());
        let last = row.get::<_, Option<i64>>(5).map(unsigned);
        Page {
            partition: row.get(0),
            bucket,
            said,
            seen,
            ahead: unsigned(row.get(8)),
            missing: missing.flatten().map(BTreeSet::from_iter),
            last: if ground >= end { end } else { last.unwrap_or(end) },
        }
    }
}

impl Tally {
    /// What a log that says so much has missed of this; `None` if it says something else altogether.
    fn lacks(self, said: Tally) -> Option<Tally> {
        let count = self.count.checked_sub(said.count).filter(|count| *count > 0)?;
        Some(Tally { count, id_sum: self.id_sum.wrapping_sub(said.id_sum) })
    }
}

/// A bucket of which a requeue sends everything again that the log may have missed.
#[derive(Clone, Debug)]
pub(super) struct Correction {
    destination: DestinationId,
    page: Page,
    left: Left,
}

impl Correction {
    /// As the statement of the request reads them. Where it is known what is missing, that is added to the
    /// log; else all that is left of the bucket waits, or will.
    pub(super) fn to_json(corrections: &[Correction]) -> String {
        let rows = corrections.iter().map(|Correction { destination, page, left }| {
            let gone = left.other_route + left.dropped + left.erased;
            let lack = page.seen.lacks(page.said).unwrap_or_default();
            let waits = page.missing.as_ref().map_or(page.seen.count, |_| lack.count);
            serde_json::json!({
                "destination": destination.as_str(),
                "partition": page.partition,
                "bucket": page.bucket,
                "is_added": page.missing.is_some() && page.said.count > 0,
                "said": page.said.count,
                "said_sum": page.said.id_sum.cast_signed(),
                "seen": page.seen.count,
                "seen_sum": page.seen.id_sum.cast_signed(),
                "lack_sum": lack.id_sum.cast_signed(),
                "other_route": left.other_route,
                "dropped": left.dropped,
                "waiting": waits.saturating_sub(gone),
                "erased": left.erased,
            })
        });
        serde_json::Value::Array(rows.collect()).to_string()
    }
}

/// The buckets that differ and of which all that is missing is among the rows of a requeue, or of one
/// that is still open. Their log is corrected with the request: what was missing is about to wait, and
/// the next recount finds nothing.
pub(super) async fn corrections(session: &Session, rows: &[RowKey]) -> Result<Vec<Correction>> {
    let mut buckets: BTreeMap<&DestinationId, BTreeMap<u64, BTreeSet<u64>>> = BTreeMap::new();
    for row in rows {
        let of = buckets.entry(&row.destination).or_default();
        of.entry(row.seq / BUCKET).or_default().insert(row.seq);
    }
    let mut corrections = Vec::new();
    let mut room = CORRECTED_MAX;
    for (destination, buckets) in buckets {
        let ledger = Ledger::read(session, destination).await?;
        for (bucket, asked) in buckets.into_iter().take(room) {
            room -= 1;
            for page in ledger.pages(bucket, bucket).await? {
                if page.said != page.seen && ledger.is_kept(bucket) {
                    corrections.extend(ledger.correction(page, &asked).await?);
                }
            }
        }
    }
    Ok(corrections)
}

/// What of a bucket does not wait.
#[derive(Clone, Debug, Default)]
struct Left {
    /// What the destination should have: what was let go by an operator waits, in its way.
    requeue: Vec<u64>,
    other_route: u64,
    dropped: u64,
    erased: u64,
}

/// A destination's log, beside the outbox.
struct Ledger<'a> {
    session: &'a Session,
    destination: &'a DestinationId,
    standings: Vec<Standing>,
    index: usize,
    kept_from: u64,
    /// The last bucket that log or cursors speak of.
    last: u64,
}

impl<'a> Ledger<'a> {
    async fn read(session: &'a Session, destination: &'a DestinationId) -> Result<Ledger<'a>> {
        let standings = standings(session).await?;
        let index = standings.iter().position(|standing| standing.definition.id == *destination);
        let index = index.ok_or_else(|| not_found("recount", "destination", destination))?;
        let named = params![destination.as_str()];
        let row = session.row("recount", &RECOUNT_BOUNDS, named).await?;
        let (kept_from, last) = (count(&row, 0), count(&row, 1));
        Ok(Ledger { session, destination, standings, index, kept_from, last })
    }

    /// Whether all of a bucket is kept. Of one that the history begins in, the log counts what is
    /// gone.
    fn is_kept(&self, bucket: u64) -> bool {
        first(bucket) >= self.kept_from
    }

    async fn pages(&self, from: u64, through: u64) -> Result<Vec<Page>> {
        pages(self.session, self.destination.as_str(), from, through).await
    }

    async fn difference(&self, page: &Page) -> Result<Difference> {
        Ok(Difference {
            partition: PartitionId(u16::try_from(page.partition).unwrap_or_default()),
            first: first(page.bucket),
            last: page.last,
            settled: page.said.count,
            found: page.seen.count,
            requeue: self.left(page).await?.requeue,
        })
    }

    /// How a bucket's log is corrected by a requeue of some of its events; `None` unless all that is
    /// missing is among them, or on its way.
    async fn correction(&self, page: Page, asked: &BTreeSet<u64>) -> Result<Option<Correction>> {
        let left = self.left(&page).await?;
        let rest: Vec<i64> = left
            .requeue
            .iter()
            .filter(|seq| !asked.contains(seq))
            .map(|seq| signed(*seq))
            .collect();
        let values = params![page.partition, self.destination.as_str(), rest];
        let open = self.session.rows("submit", &REQUEUE_OPEN, values).await?;
        let open: BTreeSet<i64> = open.iter().map(|row| row.get(0)).collect();
        let all = rest.iter().all(|seq| open.contains(seq));
        Ok(all.then(|| Correction { destination: self.destination.clone(), page, left }))
    }

    /// What of a bucket does not wait, of what is missing if that is known, by what the routes say of it now.
    async fn left(&self, page: &Page) -> Result<Left> {
        let values = params![self.destination.as_str(), page.partition, signed(page.bucket)];
        let rows = self.session.rows("recount", &RECOUNT_LEFT, values).await?;
        let mut left = Left::default();
        for row in rows {
            let seq = unsigned(row.get(0));
            if page.missing.as_ref().is_some_and(|missing| !missing.contains(&seq)) {
                continue;
            }
            let mut event = Event::new(EventId::from_u128(0), row.get(2), "", row.get(1));
            event.tenant = row.get::<_, Option<&str>>(3).map(Into::into);
            let taken = taken_by(&self.standings, &event)[self.index];
            if self.waits_by_range(&row, taken) {
                continue;
            }
            match taken {
                Taken::No => left.other_route += 1,
                Taken::Dropped => left.dropped += 1,
                Taken::Delivered if row.get(4) => left.erased += 1,
                Taken::Delivered => left.requeue.push(seq),
            }
        }
        Ok(left)
    }

    /// Whether a range stands for a row: then it waits, and is not missing.
    fn waits_by_range(&self, row: &Row, taken: Taken) -> bool {
        let (hashes, versions): (Vec<i64>, Vec<i64>) = (row.get(6), row.get(7));
        if hashes.is_empty() {
            return false;
        }
        let hash = KeyHash::of(row.get(5)).0.cast_signed();
        let mut ranges = hashes.into_iter().zip(versions).filter(|(of, _)| *of == hash);
        ranges.any(|(_, version)| self.standings[self.index].waits(unsigned(version), taken))
    }
}

/// The first number of a bucket; there is no event 0.
fn first(bucket: u64) -> u64 {
    (bucket * BUCKET).max(1)
}
