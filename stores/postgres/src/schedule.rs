//! Scheduled events: they enter the outbox, and their key's order, when they are due.

use std::time::Duration;

use postrider_core::source::Admitted;
use postrider_core::{Lease, Result};

use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed, span};

const ADMIT: Sql = sql!("schedule/admit");

const LOOK: Sql = sql!("schedule/look");

/// When the next is due in each partition; zero where something is due already.
async fn look(store: &PostgresStore, group: &[i16]) -> Vec<Result<Option<Duration>>> {
    let found = async {
        let session = store.sessions().line(Line::Read, "admit").await?;
        session.rows("admit", &LOOK, params![group.to_vec()]).await
    };
    match found.await {
        Err(error) => group.iter().map(|_| Err(error.repeated())).collect(),
        Ok(rows) => rows.iter().map(|row| Ok(row.get::<_, Option<i64>>(1).map(span))).collect(),
    }
}

/// Moves what is due, in the order (due, seq), in one fenced statement.
pub(crate) async fn admit(store: &PostgresStore, lease: &Lease, rows_max: u32) -> Result<Admitted> {
    // Most calls find nothing: they lock nothing, and share a statement.
    let asker = store.clone();
    let next_in = store.inner.schedules.ask("admit", partition(lease.partition), move |group| {
        let store = asker.clone();
        async move { look(&store, &group).await }
    });
    match next_in.await? {
        Some(next_in) if next_in.is_zero() => {}
        next_in => return Ok(Admitted { moved: 0, next_in }),
    }
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
