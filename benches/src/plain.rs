//! The baseline of a drain: read the same rows, decode every column, and do nothing with them.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use postrider_sqlite::connect;
use rusqlite::Row;

use crate::measure::rate;
use crate::{Result, sql};

/// Rows of one page, as the relay's.
const PAGE: u32 = 1_000;

/// A row as a program without any outbox library would hold it: text stays text.
#[expect(dead_code, reason = "the columns are decoded for what that costs")]
struct PlainRow {
    seq: i64,
    id: String,
    source: Option<String>,
    aggregate_type: String,
    aggregate_id: String,
    key: Option<String>,
    event_type: String,
    event_version: i64,
    payload: Option<String>,
    payload_bytes: Option<Vec<u8>>,
    content_type: String,
    encoding: Option<String>,
    headers: String,
    tenant: Option<String>,
    format: i64,
    occurred_at: String,
    created_at: String,
    erased_at: Option<String>,
}

/// Reads everything once, and returns rows per second.
pub(crate) fn read(path: &Path, rows: u64) -> Result<f64> {
    let start = Instant::now();
    let connection = connect(path)?;
    let mut statement = connection.prepare(sql::PLAIN_READ)?;
    let (mut after, mut found) = (0, 0);
    loop {
        let page: Vec<PlainRow> =
            statement.query_map((after, PAGE), decode)?.collect::<rusqlite::Result<_>>()?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        found += page.len() as u64;
        black_box(page);
    }
    if found != rows {
        return Err(format!("the plain read found {found} of {rows} rows").into());
    }
    Ok(rate(rows, start))
}

fn decode(row: &Row<'_>) -> rusqlite::Result<PlainRow> {
    Ok(PlainRow {
        seq: row.get(0)?,
        id: row.get(1)?,
        source: row.get(2)?,
        aggregate_type: row.get(3)?,
        aggregate_id: row.get(4)?,
        key: row.get(5)?,
        event_type: row.get(6)?,
        event_version: row.get(7)?,
        payload: row.get(8)?,
        payload_bytes: row.get(9)?,
        content_type: row.get(10)?,
        encoding: row.get(11)?,
        headers: row.get(12)?,
        tenant: row.get(13)?,
        format: row.get(14)?,
        occurred_at: row.get(15)?,
        created_at: row.get(16)?,
        erased_at: row.get(17)?,
    })
}
