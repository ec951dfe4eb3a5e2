//! What the tables hold: what a person should know who is about to take them back.

use postrider_core::Result;
use tokio_postgres::Row;

use crate::migrate;
use crate::sql::{Sql, sql};
use crate::typed::params;
use crate::{Names, schema};

const HOLDINGS: Sql = sql!("init/holdings");

/// Rows that would go with the tables, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Events in the outbox, delivered or not.
    pub events: u64,
    /// Those of them that some destination has not passed, or for which only a range stands there.
    pub undelivered: u64,
    /// Events that wait: retrying, parked, held, disabled, or dead.
    pub waiting: u64,
    /// Scheduled events.
    pub scheduled: u64,
    /// Rows of the inbox: without them a message that comes again is handled again.
    pub inbox: u64,
}

/// Counts what tables of this program's version hold; nothing where there are none. It reads every row once, for a minute at most.
///
/// # Errors
/// `SchemaTooNew`, `Conflict`, `Corrupt`, `Timeout`, `Unavailable`, `Unauthorized`.
pub async fn holdings(url: &str, names: &Names) -> Result<Holdings> {
    let sessions = migrate::sessions(url, names)?;
    let session = sessions.connect("count").await?;
    if schema::version(&session).await? == 0 {
        return Ok(Holdings::default());
    }
    let row: Row = session.row("count", &HOLDINGS, params![]).await?;
    let count = |at: usize| row.get::<_, i64>(at).unsigned_abs();
    Ok(Holdings {
        events: count(0),
        undelivered: count(1),
        waiting: count(2),
        scheduled: count(3),
        inbox: count(4),
    })
}
