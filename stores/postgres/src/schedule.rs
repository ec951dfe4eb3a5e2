//! Scheduled events: they enter the outbox, and their key's order, when they are due.

use std::time::Duration;

use postrider_core::source::Admitted;
use postrider_core::{Error, ErrorKind, Lease, Result};
use tokio_postgres::Row;

use crate::gather::Reply;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed, span};

const ADMIT: Sql = sql!("schedule/admit");

const LOOK: Sql = sql!("schedule/look");

/// When the next is due in each partition; zero where something is due already.
async fn look(store: &PostgresStore, group: &[Lease]) -> Vec<Result<Option<Duration>>> {
    let found = async {
        let session = store.sessions().line(Line::Read, "admit").await?;
        let partitions: Vec<i16> = group.iter().map(|lease| partition(lease.partition)).collect();
        let owners: Vec<&str> = group.iter().map(|lease| lease.owner.as_str()).collect();
        let tokens: Vec<i64> = group.iter().map(|lease| signed(lease.token)).collect();
        session.rows("admit", &LOOK, params![partitions, owners, tokens]).await
    };
    match found.await {
        Err(error) => group.iter().map(|_| Err(error.repeated())).collect(),
        Ok(rows) => rows.iter().zip(group).map(|(row, lease)| next_in(row, lease)).collect(),
    }
}

fn next_in(row: &Row, lease: &Lease) -> Result<Option<Duration>> {
    if row.get(1) {
        return Ok(row.get::<_, Option<i64>>(2).map(span));
    }
    Err(Error::new(ErrorKind::Fenced, "admit")
        .message("the lease was taken over; nothing was moved")
        .context("partition", lease.partition)
        .context("token", lease.token))
}

/// Moves what is due, in the order (due, seq), in one fenced statement.
pub(crate) async fn admit(store: &PostgresStore, lease: &Lease, rows_max: u32) -> Result<Admitted> {
    // Most calls find nothing: they lock nothing, and share a statement.
    let asker = store.clone();
    let next_in = store.inner.schedules.ask("admit", lease.clone(), move |group| {
        let store = asker.clone();
        async move { look(&store, &group).await.into_iter().map(Reply::Is).collect() }
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
