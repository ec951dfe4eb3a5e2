//! Where a reading begins: with everything that is pending, and with what waits.

use postrider_core::source::Loaded;
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, KeyHash, Lease, Result};

use super::OwnTable;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{params, partition, unsigned};

const CURSOR: Sql = sql!("load/cursor");
const KEYS: Sql = sql!("load/keys");
const AHEAD: Sql = sql!("own/ahead");
const HEAD: Sql = sql!("own/head");
const HEAD_NUMBERED: Sql = sql!("own/head_numbered");

/// Begins a reading of a destination.
pub(super) async fn load(
    table: &OwnTable,
    lease: &Lease,
    destination: &DestinationId,
) -> Result<Loaded> {
    table.checked().await?;
    let session = table.inner.store.sessions().line(Line::Read, "load").await?;
    let place = (destination.as_str(), partition(lease.partition));
    if session.optional("load", &CURSOR, params![place.0, place.1]).await?.is_none() {
        return Err(Error::new(ErrorKind::NotFound, "load")
            .message("the destination is not there; it was removed, or never added")
            .context("destination", destination));
    }
    let (keys, ahead) = futures_util::future::try_join(
        session.rows("load", &KEYS, params![place.0, place.1]),
        session.rows("load", &AHEAD, params![place.0, place.1]),
    )
    .await?;
    let key = |row: &tokio_postgres::Row| {
        let (hash, count): (i64, i64) = (row.get(0), row.get(1));
        (KeyHash(hash.cast_unsigned()), u32::try_from(count).unwrap_or(u32::MAX))
    };
    Ok(Loaded {
        cursor: table.readings().begin(destination),
        waiting_keys: keys.iter().map(key).collect(),
        waiting_ahead: ahead.iter().map(|row| unsigned(row.get(0))).collect(),
        ranges: None,
        replay_through: 0,
    })
}

/// The end of what is there now: the greatest number, or where rows have none, the next transaction.
pub(super) async fn head(table: &OwnTable) -> Result<Cursor> {
    let statement = if table.is_numbered().await? { &HEAD_NUMBERED } else { &HEAD };
    let session = table.inner.store.sessions().line(Line::Read, "head").await?;
    let row = session.row("head", statement, params![]).await?;
    Ok(Cursor::number(unsigned(row.get(0))))
}
