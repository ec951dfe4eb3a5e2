//! The loops that people write: claim with SKIP LOCKED, publish to nobody, mark.

use std::hint::black_box;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::server::Server;
use crate::Result;
use crate::measure::rate;

/// Rows of one transaction.
const BATCH: i64 = 1_000;

const TABLE: &str = include_str!("../../sql/postgres/textbook_table.sql");
const BUILD: &str = include_str!("../../sql/postgres/textbook_build.sql");
const SELECT: &str = include_str!("../../sql/postgres/textbook_select.sql");
const MARK: &str = include_str!("../../sql/postgres/textbook_mark.sql");
const MARK_MANY: &str = include_str!("../../sql/postgres/textbook_mark_many.sql");
const DELETE: &str = include_str!("../../sql/postgres/textbook_delete.sql");

/// How a page is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    /// One UPDATE for each row.
    RowByRow,
    /// One UPDATE for all of them.
    Batched,
    /// DELETE … RETURNING instead of reading and marking.
    Deleting,
}

/// What a loop came to.
pub(crate) struct Looped {
    pub(crate) per_s: f64,
    pub(crate) log_bytes: u64,
}

/// Builds the table anew, with so many rows that are pending.
pub(super) async fn build(server: &Server, rows: u64) -> Result<Client> {
    let client = server.connect().await?;
    client.batch_execute("drop table if exists textbook").await?;
    client.batch_execute(TABLE).await?;
    client.execute(BUILD, &[&i64::try_from(rows)?]).await?;
    client.batch_execute("vacuum analyze textbook").await?;
    client.batch_execute("checkpoint").await?;
    Ok(client)
}

/// Publishes so many rows of a fresh table to nobody.
pub(crate) fn publish(
    runtime: &Runtime,
    server: &Server,
    rows: u64,
    settling: Settling,
) -> Result<Looped> {
    runtime.block_on(async {
        let mut client = build(server, rows).await?;
        let (select, mark) = (client.prepare(SELECT).await?, client.prepare(MARK).await?);
        let (many, delete) = (client.prepare(MARK_MANY).await?, client.prepare(DELETE).await?);
        let before = server.log_position().await?;
        let start = Instant::now();
        let mut done = 0u64;
        loop {
            let tx = client.transaction().await?;
            let statement = if settling == Settling::Deleting { &delete } else { &select };
            let page = tx.query(statement, &[&BATCH]).await?;
            if page.is_empty() {
                break;
            }
            black_box(page.iter().map(decode).collect::<Vec<_>>());
            done += page.len() as u64;
            let numbers: Vec<i64> = page.iter().map(|row| row.get(0)).collect();
            match settling {
                Settling::RowByRow => {
                    for number in numbers {
                        tx.execute(&mark, &[&number]).await?;
                    }
                }
                Settling::Batched => drop(tx.execute(&many, &[&numbers]).await?),
                Settling::Deleting => {}
            }
            tx.commit().await?;
        }
        let per_s = rate(rows, start);
        if done != rows {
            return Err(format!("the loop published {done} of {rows} rows").into());
        }
        let log_bytes = server.log_position().await?.saturating_sub(before);
        Ok(Looped { per_s, log_bytes })
    })
}

fn decode(row: &Row) -> (i64, Uuid, String, String, String, String) {
    (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))
}
