//! Cursors for a server whose numbers were set back.
//!
//! Invariants: nothing is passed that was not passed before, and nothing that a range stands for, so nothing is lost; what lies
//! above a cursor's floor, or above what its ranges have passed, comes again, and the ranges end; the log begins anew with the cursor, so that it counts nothing twice, and at a
//! bucket's first number unless what is below is recounted; and nobody owns a partition meanwhile, or it is the owner who sets
//! it back: an owner knows how far it has read.

use postrider_core::snapshot::{Pending, Snapshot, SnapshotCursor};
use postrider_core::{Cursor, Error, ErrorKind, Result};

use super::recount::{self, BUCKET};
use crate::cursor::Columns;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, span, unsigned};

const LEASES_LOCK: Sql = sql!("operator/leases_lock");
const CURSORS: Sql = sql!("operator/cursors");
const LOG_TRIM: Sql = sql!("operator/log_trim");
const CURSOR_PLACE: Sql = sql!("operator/cursor_place");

/// Keeps every partition without an owner until the transaction ends.
///
/// # Errors
/// `Busy` if a relay owns one.
pub(super) async fn keep_owners_out(tx: &Session, operation: &'static str) -> Result<()> {
    for row in tx.rows(operation, &LEASES_LOCK, params![]).await? {
        if row.get(1) {
            let left = span(row.get(2)).as_millis();
            return Err(Error::new(ErrorKind::Busy, operation)
                .message("a relay owns a partition; stop it first. Nothing was changed")
                .context("owner", row.get::<_, String>(0))
                .context("lease_left", format!("{left} ms")));
        }
    }
    Ok(())
}

/// Rebases every cursor; returns how many there are.
pub(super) async fn all(tx: &Session, operation: &'static str) -> Result<usize> {
    let rows = tx.rows(operation, &CURSORS, params![]).await?;
    for row in &rows {
        let (destination, partition): (&str, i16) = (row.get(0), row.get(1));
        let base: Vec<u8> = row.get(2);
        let cursor = Cursor::new(base.into(), unsigned(row.get(3)));
        let kept_from = unsigned(row.get::<_, Option<i64>>(4).unwrap_or_default());
        let ranges = row.get::<_, Option<i64>>(5).map(unsigned);
        let cursor = SnapshotCursor::decode(&cursor)
            .map_err(|e| e.context("destination", destination).context("partition", partition))?;
        let of = (destination, partition);
        let from = begins(&cursor, ranges);
        match counted(tx, of, from).await? {
            true => stay(tx, operation, of, &at(&cursor, from)).await?,
            false => place(tx, operation, of, &rebased(&cursor, ranges, kept_from)).await?,
        }
    }
    Ok(rows.len())
}

/// Whether log and outbox agree in the bucket that a number stands in the middle of.
async fn counted(tx: &Session, of: (&str, i16), number: u64) -> Result<bool> {
    let bucket = (number + 1) / BUCKET;
    let pages = recount::pages(tx, of.0, bucket, bucket).await?;
    Ok(pages.iter().all(|page| page.partition != of.1 || page.said == page.seen))
}

/// Puts a cursor where it begins anew, in the middle of a bucket, whose log begins anew with what the cursor still
/// covers. So nothing below comes again, nor what a destination that began at `now` is not owed.
async fn stay(
    tx: &Session,
    operation: &'static str,
    of: (&str, i16),
    cursor: &SnapshotCursor,
) -> Result<()> {
    let bucket = (cursor.floor() + 1) / BUCKET;
    place_above(tx, operation, of, cursor, bucket + 1).await?;
    let pages = recount::pages(tx, of.0, bucket, bucket).await?;
    let seen = pages.iter().find(|page| page.partition == of.1).map(|page| page.seen);
    let seen = seen.unwrap_or_default();
    let (count, id_sum) = (signed(seen.count), seen.id_sum.cast_signed());
    let values = params![of.0, of.1, signed(bucket), count, id_sum];
    tx.execute(operation, &LOG_TRIM, values).await.map(drop)
}

/// Puts a cursor somewhere else, at the end of a bucket.
pub(super) async fn place(
    tx: &Session,
    operation: &'static str,
    of: (&str, i16),
    cursor: &SnapshotCursor,
) -> Result<()> {
    place_above(tx, operation, of, cursor, (cursor.floor() + 1) / BUCKET).await
}

/// The same, with a log that is kept below a bucket.
async fn place_above(
    tx: &Session,
    operation: &'static str,
    (destination, partition): (&str, i16),
    cursor: &SnapshotCursor,
    bucket: u64,
) -> Result<()> {
    let row = Columns::of(&cursor.encode()?)?;
    let bucket = signed(bucket);
    let values = params![
        destination,
        partition,
        row.base,
        row.base_xmax,
        row.floor,
        row.pending_xids,
        row.pending_floors,
        row.ground,
        bucket
    ];
    tx.execute(operation, &CURSOR_PLACE, values).await.map(drop)
}

/// How far a cursor and its ranges have passed everything: below it only pending transactions are looked for. `ranges`: the least
/// number at or below which they stand for nothing. What a range has not passed above its own ground lies above that one.
fn begins(cursor: &SnapshotCursor, ranges: Option<u64>) -> u64 {
    let drained = cursor.target().is_some() && cursor.position() > cursor.ground();
    let from = if drained { cursor.ground() } else { cursor.floor() };
    ranges.map_or(from, |ground| ground.min(from))
}

/// Where a cursor begins anew if log and outbox do not agree: at the end of the last bucket that it has passed whole, or before the kept
/// history, if it has come that far: where rows are retired and not tables, the history begins behind what is
/// gone of one partition, and others may still have events below it to pass. Where a part of a target was
/// drained below the floor, that part is in the log already, so the buckets it is of begin anew as well.
pub(super) fn rebased(
    cursor: &SnapshotCursor,
    ranges: Option<u64>,
    kept_from: u64,
) -> SnapshotCursor {
    let from = begins(cursor, ranges);
    let gone = Some(kept_from.saturating_sub(1)).filter(|gone| *gone <= from);
    at(cursor, bucket_end(from).max(gone.unwrap_or_default()))
}

/// A cursor that is set back to before `target`: at the beginning of a bucket of the settled log, because the log above it is
/// written again.
///
/// An open transaction costs nothing, of whatever database it is. **Nothing is missed** (INV-1): let the new floor `f` lie at
/// or below the floor `F` that the cursor stands at. What lies above `f` comes, whoever wrote it. Of what lies at or
/// below `f`, let a row not be passed where the cursor stands. Its transaction is not one that was finished there; nor one of
/// those that are not known there, for they write above `F`, and so above `f`. So it is pending there, and the row
/// lies above that floor of its own, which is therefore below `f`: the transaction stays pending, at that floor or below, and
/// the row comes. ∎
///
/// **Nothing is booked twice.** At or below `f` only rows of such transactions come. Where the target that is just drained
/// saw one of them as finished, some of its rows may be booked, in buckets that would stay: then it goes back to the floor of
/// that one, and all of them come again.
///
/// **Nothing is missed that a range stands for.** `f` lies at or below the ground of each, `ranges`, and at or below its ground
/// a range has passed everything, whoever wrote it. So what it stands for lies above `f`. ∎ The history that is gone does not
/// bound that: a range keeps what lies behind it in its partition, wherever the history of others begins.
pub(crate) fn back(
    stands: &SnapshotCursor,
    ranges: Option<u64>,
    target: u64,
    history_start: u64,
) -> SnapshotCursor {
    let is_booked = |pending: &&Pending| {
        let seen = stands.target().is_some_and(|target| target.sees(pending.xid));
        seen && pending.floor < stands.position()
    };
    let booked = stands.pending().iter().filter(is_booked).map(|pending| pending.floor);
    let from = booked.chain(ranges).fold(stands.floor(), u64::min);
    at(stands, floor_of(target, from, history_start))
}

/// The number before a bucket, at or below which `from` and the target are, or before the kept history.
fn floor_of(target: u64, from: u64, history_start: u64) -> u64 {
    let first = target.min(from.saturating_add(1)) / BUCKET * BUCKET;
    let first =
        if history_start <= from.saturating_add(1) { first.max(history_start) } else { first };
    first.saturating_sub(1)
}

/// A cursor that begins anew at a number that it has passed.
fn at(cursor: &SnapshotCursor, floor: u64) -> SnapshotCursor {
    let running = cursor.pending().iter().filter(|pending| pending.floor < floor);
    above(floor, running.map(|pending| (pending.xid, pending.floor)))
}

/// The last number of the last bucket that ends at or before a number; 0 if there is none.
pub(super) fn bucket_end(number: u64) -> u64 {
    ((number + 1) / BUCKET * BUCKET).saturating_sub(1)
}

/// A cursor that sees no transaction as finished, with some whose rows are looked for below its floor.
pub(super) fn above(floor: u64, running: impl Iterator<Item = (u64, u64)>) -> SnapshotCursor {
    let (xids, floors): (Vec<u64>, Vec<u64>) = running.unzip();
    let (Some(highest), Some(least)) = (xids.iter().max(), floors.iter().min()) else {
        return SnapshotCursor::above(floor);
    };
    SnapshotCursor::at(&Snapshot::with_running(highest + 1, xids.clone()), floor, *least).rebased()
}

#[cfg(test)]
mod tests {
    use postrider_core::snapshot::Drawn;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_begins_anew_at_the_end_of_a_bucket() {
        for (floor, end) in [(0, 0), (4_094, 0), (4_095, 4_095), (4_096, 4_095), (9_000, 8_191)] {
            assert_eq!(bucket_end(floor), end);
            let base: Snapshot = "10:20:".parse().unwrap();
            let rebased = rebased(&SnapshotCursor::at(&base, floor, 0), None, 1);
            assert_eq!((rebased.floor(), rebased.xmax(), rebased.ground()), (end, 0, end));
        }
        let kept = rebased(&SnapshotCursor::above(3_500), None, 3_000);
        assert_eq!(kept.floor(), 2_999, "what was retired does not come again");
        let behind = rebased(&SnapshotCursor::above(10), None, 3_000);
        assert_eq!(behind.floor(), 0, "what another partition retired was not passed here");
    }

    #[test]
    fn a_cursor_goes_back_to_a_bucket_and_not_above_where_it_stands() {
        assert_eq!(floor_of(9_000, 10_000, 0), 8_191);
        assert_eq!(floor_of(9_000, 8_000, 0), 4_095);
        assert_eq!(floor_of(9_000, 10_000, 8_500), 8_499);
        assert_eq!(floor_of(9_000, 0, 8_500), 0, "what may be on its way counts more");
        assert_eq!(floor_of(0, 10_000, 0), 0);
    }

    #[test]
    fn an_open_transaction_costs_a_rewind_nothing() {
        let base: Snapshot = "10:20:10".parse().unwrap();
        let stands = SnapshotCursor::at(&base, 30_010, 5);
        let set_back = back(&stands, None, 30_001, 0);
        assert_eq!((set_back.floor(), set_back.ground()), (28_671, 5));
        assert!(!set_back.has_passed(Drawn { xid: 10, seq: 6 }), "it is still looked for");
        assert!(set_back.has_passed(Drawn { xid: 11, seq: 6 }));
        let draining = stands.toward("10:30:10".parse().unwrap(), Some(31_000)).unwrap();
        assert_eq!(
            back(&draining.at_position(30_500), None, 30_001, 0),
            set_back,
            "it was open all the while"
        );
        let seen = stands.toward("30:30:".parse().unwrap(), Some(31_000)).unwrap();
        let again = back(&seen.at_position(30_500), None, 30_001, 0);
        assert_eq!((again.floor(), again.ground()), (0, 0), "what it wrote is booked");
        // One that ended costs as much as lies above its own floor; what is open still costs nothing.
        let both = SnapshotCursor::at(&"10:20:10".parse().unwrap(), 20_000, 5)
            .toward("10:40:10,35".parse().unwrap(), Some(30_010))
            .unwrap()
            .drained();
        let one = both.toward("10:50:10".parse().unwrap(), None).unwrap().at_position(30_500);
        let again = back(&one, None, 30_001, 0);
        assert_eq!((again.floor(), again.ground()), (16_383, 5), "35 has the floor 20,000");
    }

    fn some_cursor() -> impl Strategy<Value = SnapshotCursor> {
        let running = || proptest::collection::vec(1u64..40, 0..6);
        (running(), 0u64..30_000, 0u64..30_000, proptest::option::of((running(), 0u64..30_000)))
            .prop_map(|(base, floor, least, target)| {
                let cursor =
                    SnapshotCursor::at(&Snapshot::with_running(30, base.clone()), floor, least);
                let Some((running, position)) = target else { return cursor };
                // Nobody is listed anew below the base's end.
                let running = running.into_iter().filter(|xid| *xid >= 30 || base.contains(xid));
                let target = Snapshot::with_running(45, running);
                match cursor.toward(target, None) {
                    Ok(cursor) => cursor.at_position(position),
                    Err(_) => cursor,
                }
            })
    }

    fn wrote(cursor: &SnapshotCursor, row: Drawn) -> bool {
        let own = cursor.pending().iter().find(|pending| pending.xid == row.xid);
        own.is_none_or(|pending| row.seq > pending.floor)
    }

    proptest! {
        /// INV-1: whatever a cursor or a range of it had not passed, the rebased one has not passed.
        #[test]
        fn nothing_is_passed_that_was_not(
            cursor in some_cursor(),
            xid in 1u64..60,
            seq in 1u64..32_000,
            kept_from in 1u64..32_000,
            range in proptest::option::of(some_cursor()),
        ) {
            let row = Drawn { xid, seq };
            let ground = range.as_ref().map(SnapshotCursor::ground);
            for after in [rebased(&cursor, ground, kept_from), at(&cursor, begins(&cursor, ground))] {
                prop_assert_eq!(after.xmax(), 0);
                if after.has_passed(row) {
                    prop_assert!(cursor.has_passed(row), "{cursor:?} {after:?}");
                    let stands_for = range.as_ref().is_some_and(|range| !range.has_passed(row));
                    prop_assert!(!stands_for, "{range:?} {after:?}");
                }
            }
        }

        /// INV-1: the same of a cursor that is set back; and nothing that its log keeps, below the bucket that it begins at,
        /// is booked again.
        #[test]
        fn a_cursor_that_is_set_back_misses_nothing(
            cursor in some_cursor(),
            xid in 1u64..60,
            seq in 1u64..32_000,
            target in 1u64..32_000,
            kept_from in 1u64..32_000,
            range in proptest::option::of(some_cursor()),
        ) {
            let row = Drawn { xid, seq };
            let after = back(&cursor, range.as_ref().map(SnapshotCursor::ground), target, kept_from);
            prop_assert_eq!(after.xmax(), 0);
            prop_assert!(after.floor() <= cursor.floor());
            if after.has_passed(row) {
                prop_assert!(cursor.has_passed(row), "{cursor:?} {after:?}");
                let stands_for = range.as_ref().is_some_and(|range| !range.has_passed(row));
                prop_assert!(!stands_for, "{range:?} {after:?}");
            }
            // What a pending transaction wrote below its own floor is another matter: it has written nothing there.
            if wrote(&cursor, row) && cursor.has_passed(row) && seq <= after.floor() {
                prop_assert!(after.has_passed(row), "{cursor:?} {after:?}");
            }
        }
    }
}
