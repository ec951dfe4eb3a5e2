//! Scheduled events: they enter the outbox, and their key's order, when they are due.

use postrider_core::source::Admitted;
use postrider_core::{Lease, Result};

use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed, span};

const ADMIT: Sql = sql!("schedule/admit");

/// Moves what is due, in the order (due, seq), in one fenced statement.
pub(crate) async fn admit(store: &PostgresStore, lease: &Lease, rows_max: u32) -> Result<Admitted> {
    let session = store.sessions().line(Line::Write, "admit").await?;
    let rows_max = i32::try_from(rows_max.max(1)).unwrap_or(i32::MAX);
    let of =
        params![partition(lease.partition), lease.owner.as_str(), signed(lease.token), rows_max];
    let row = session.row("admit", &ADMIT, of).await?;
    let next: Option<i64> = row.get(1);
    Ok(Admitted {
        moved: u32::try_from(row.get::<_, i32>(0)).unwrap_or_default(),
        next_in: next.map(span),
    })
}
