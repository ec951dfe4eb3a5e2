//! The audit table: who changed what, and why. Rows are written by [`note`](super::note), each in the
//! transaction of its change; nothing deletes from the table.

use postrider_core::Result;
use postrider_core::operate::{AuditEntry, Listed, PageRequest};
use tokio_postgres::Row;

use super::value::{count, invalid, shown, time};
use crate::PostgresStore;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::params;

const AUDIT: Sql = sql!("operator/audit");

/// A page of the table, newest first.
pub(super) async fn list(store: &PostgresStore, page: &PageRequest) -> Result<Listed<AuditEntry>> {
    let limit = page.check()?;
    let before = match &page.after {
        None => i64::MAX,
        Some(after) => after.parse().map_err(|_| {
            invalid("audit", "the page does not begin where a page ended; begin at the first page")
                .context("after", after.escape_debug())
        })?,
    };
    // One more than is shown, to know whether there is another page.
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let session = store.sessions().line(Line::Read, "audit").await?;
    let found = session.rows("audit", &AUDIT, params![before, wanted]).await?;
    let mut rows: Vec<AuditEntry> = found.iter().map(entry).collect();
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.number.to_string());
    Ok(Listed { rows, next })
}

fn entry(row: &Row) -> AuditEntry {
    AuditEntry {
        number: count(row, 0),
        at: time(row, 1).unwrap_or_default(),
        who: shown(row, 2),
        why: shown(row, 3),
        what: shown(row, 4),
        subject: shown(row, 5),
    }
}
