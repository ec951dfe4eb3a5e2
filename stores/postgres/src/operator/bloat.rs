//! Bloat, as the server's statistics have it.
//!
//! Invariant: no table is read, whatever its size.

use std::time::Duration;

use postrider_core::Result;
use postrider_core::operate::Bloat;

use super::value::count;
use crate::PostgresStore;
use crate::sql::{Sql, sql};
use crate::typed::params;

const BLOAT: Sql = sql!("operator/bloat");

pub(super) async fn read(store: &PostgresStore) -> Result<Bloat> {
    let tx = store.sessions().begin_reading("bloat").await?;
    let row = tx.row("bloat", &BLOAT, params![]).await;
    tx.end("bloat").await;
    let row = row?;
    let open = Duration::try_from_secs_f64(row.get(0)).unwrap_or_default();
    let tables = ["outbox", "outbox_waiting", "outbox_cursor", "outbox_renewal"];
    let dead_rows = tables.into_iter().zip(2..).map(|(table, at)| (table, count(&row, at)));
    Ok(Bloat { transaction_open: open, xmin_age: count(&row, 1), dead_rows: dead_rows.collect() })
}
