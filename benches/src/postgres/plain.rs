//! `plain_read`: the same rows, by the same client, with nothing done to them.

use std::hint::black_box;
use std::time::Instant;

use postrider_postgres::Names;
use tokio::runtime::Runtime;
use tokio_postgres::Row;
use uuid::Uuid;

use super::server::{Server, connect};
use crate::Result;
use crate::measure::rate;

/// Rows of one page, as the relay's.
const PAGE: i64 = 1_000;

/// How many partitions the store has.
const PARTITIONS: i16 = 32;

/// A row as a program without any outbox library would hold it.
#[expect(dead_code, reason = "the columns are decoded for what that costs")]
struct PlainRow {
    seq: i64,
    id: Uuid,
    source: Option<String>,
    aggregate_type: String,
    aggregate_id: String,
    key: Option<String>,
    event_type: String,
    event_version: i32,
    payload: Option<String>,
    payload_bytes: Option<Vec<u8>>,
    content_type: String,
    encoding: Option<String>,
    tenant: Option<String>,
    format: i16,
}

/// Reads everything once, page after page, and returns rows per second.
pub(crate) fn read(runtime: &Runtime, server: &Server, rows: u64) -> Result<f64> {
    read_at(runtime, &server.url(), rows)
}

/// The same at an address.
pub(crate) fn read_at(runtime: &Runtime, url: &str, rows: u64) -> Result<f64> {
    let start = Instant::now();
    let statement = Names::default().render(include_str!("../../sql/postgres/plain_read.sql"));
    let found = runtime.block_on(async {
        let client = connect(url).await?;
        let statement = client.prepare(&statement).await?;
        let mut found = 0u64;
        for partition in 0..PARTITIONS {
            let mut after = 0i64;
            loop {
                let page = client.query(&statement, &[&partition, &after, &PAGE]).await?;
                let Some(last) = page.last() else { break };
                after = last.get(0);
                found += page.len() as u64;
                black_box(page.iter().map(decode).collect::<Vec<PlainRow>>());
            }
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(found)
    })?;
    if found != rows {
        return Err(format!("the plain read found {found} of {rows} rows").into());
    }
    Ok(rate(rows, start))
}

fn decode(row: &Row) -> PlainRow {
    PlainRow {
        seq: row.get(0),
        id: row.get(1),
        source: row.get(2),
        aggregate_type: row.get(3),
        aggregate_id: row.get(4),
        key: row.get(5),
        event_type: row.get(6),
        event_version: row.get(7),
        payload: row.get(8),
        payload_bytes: row.get(9),
        content_type: row.get(10),
        encoding: row.get(11),
        tenant: row.get(13),
        format: row.get(14),
    }
}
