//! Where a destination stands in a partition, and what waits there.

use postrider_core::range::Range;
use postrider_core::snapshot::{Snapshot, SnapshotCursor, Verdict};
use postrider_core::source::Loaded;
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, KeyHash, Lease, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::tick::{judge, life};
use crate::typed::{params, partition, unsigned};

const CURSOR: Sql = sql!("load/cursor");
const KEYS: Sql = sql!("load/keys");
const RANGES: Sql = sql!("load/ranges");
const AHEAD: Sql = sql!("load/ahead");
const NOW: Sql = sql!("load/now");

/// Reads a cursor, and the waiting rows and the ranges it has to know of. The statements need no common snapshot:
/// whoever had the lease before is fenced, and the asker itself writes nothing meanwhile.
pub(crate) async fn load(
    store: &PostgresStore,
    lease: &Lease,
    destination: &DestinationId,
) -> Result<Loaded> {
    let session = store.sessions().line(Line::Read, "load").await?;
    let place = (destination.as_str(), partition(lease.partition));
    let row = session.optional("load", &CURSOR, params![place.0, place.1]).await?;
    let row = row.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "load")
            .message(
                "the destination has no cursor in this partition; it was removed, or never added",
            )
            .context("destination", destination)
    })?;
    let seen = match row.get::<_, Option<Uuid>>(3).map(life) {
        Some(seen) => seen,
        None => store.plant(&session).await?,
    };
    let known = store.remembered().begin(lease, seen);
    if judge(known, Some(seen)) != Verdict::Keep {
        return Err(store.other_life(&session, "load", Some(seen)).await);
    }
    let cursor = read(&row, 0).map_err(|e| e.context("destination", destination))?;
    let (keys, ahead, ranges) = futures_util::future::try_join3(
        session.rows("load", &KEYS, params![place.0, place.1]),
        session.rows("load", &AHEAD, params![place.0, place.1]),
        session.rows("load", &RANGES, params![place.0, place.1]),
    )
    .await?;
    let key = |row: &Row| {
        let (hash, count): (i64, i64) = (row.get(0), row.get(1));
        (KeyHash(hash.cast_unsigned()), u32::try_from(count).unwrap_or(u32::MAX))
    };
    let ranges = ranges.iter().map(range).collect::<Result<_>>();
    let ranges = ranges.map_err(|e| e.context("destination", destination))?;
    Ok(Loaded {
        cursor,
        waiting_keys: keys.iter().map(key).collect(),
        waiting_ahead: ahead.iter().map(|row| unsigned(row.get(0))).collect(),
        ranges: Some(ranges),
        replay_through: unsigned(row.get(2)),
    })
}

/// A cursor in two columns, its base and its position. One that cannot be read is found here, and not by the first fetch.
fn read(row: &Row, column: usize) -> Result<Cursor> {
    let base: Vec<u8> = row.get(column);
    let cursor = Cursor::new(base.into(), unsigned(row.get(column + 1)));
    SnapshotCursor::decode(&cursor).map(|_| cursor)
}

fn range(row: &Row) -> Result<Range> {
    let key: &str = row.get(1);
    Ok(Range {
        key_hash: KeyHash(row.get::<_, i64>(0).cast_unsigned()),
        cursor: read(row, 2).map_err(|e| e.context("range", key.escape_debug()))?,
        key: key.into(),
        version: unsigned(row.get(4)),
    })
}

/// A cursor behind everything that is committed now.
pub(crate) async fn head(store: &PostgresStore, lease: &Lease) -> Result<Cursor> {
    let session = store.sessions().line(Line::Read, "head").await?;
    store.tick(&session).await?;
    let known = store.life_of(lease);
    let row = session.row("head", &NOW, params![]).await?;
    let seen = row.get::<_, Option<Uuid>>(1).map(life);
    let (Verdict::Keep, Some(seen)) = (judge(known, seen), seen) else {
        return Err(store.other_life(&session, "head", seen).await);
    };
    let now: Snapshot = row.get::<_, &str>(0).parse()?;
    let floor = store.remembered().ticks.floor_for(&now, seen);
    SnapshotCursor::at(&now, floor.unwrap_or_default(), 0).encode()
}
