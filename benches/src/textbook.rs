//! The outbox as textbooks have it, for comparison: a status column and a loop.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use postrider_core::EventId;
use postrider_sqlite::connect;
use rusqlite::{Connection, TransactionBehavior};

use crate::backlog::{KEYS, checkpoint, payload};
use crate::measure::{rate, written_bytes};
use crate::{Result, sql};

/// How the rows of a page are marked as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    /// Each by itself, as soon as it is published.
    RowByRow,
    /// All hundred in one transaction: what a careful author does.
    PageByPage,
}

/// What a loop came to.
pub(crate) struct Published {
    pub(crate) per_s: f64,
    pub(crate) written_bytes: u64,
}

/// Fills a table of its own with so many rows, then publishes them to nobody.
pub(crate) fn publish(path: &Path, rows: u64, marking: Marking) -> Result<Published> {
    let mut connection = connect(path)?;
    fill(&mut connection, rows)?;
    let written = written_bytes();
    let start = Instant::now();
    let mut published = 0;
    loop {
        let page = unpublished(&connection)?;
        if page.is_empty() {
            break;
        }
        published += page.len() as u64;
        match marking {
            Marking::RowByRow => mark(&connection, &page)?,
            Marking::PageByPage => {
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                mark(&tx, &page)?;
                tx.commit()?;
            }
        }
    }
    if published != rows {
        return Err(format!("the textbook loop published {published} of {rows} rows").into());
    }
    let per_s = rate(rows, start);
    Ok(Published { per_s, written_bytes: written_bytes().saturating_sub(written) })
}

/// One row in memory.
type Textbook = (i64, [String; 6]);

fn unpublished(connection: &Connection) -> Result<Vec<Textbook>> {
    let mut statement = connection.prepare_cached(sql::TEXTBOOK_SELECT)?;
    let rows = statement.query_map((), |row| {
        let text = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
        Ok((row.get(0)?, text))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn mark(connection: &Connection, page: &[Textbook]) -> Result<()> {
    let mut statement = connection.prepare_cached(sql::TEXTBOOK_MARK)?;
    for (seq, text) in page {
        black_box(text);
        statement.execute([seq])?;
    }
    Ok(())
}

fn fill(connection: &mut Connection, rows: u64) -> Result<()> {
    connection.execute_batch(sql::TEXTBOOK_TABLE)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut statement = tx.prepare(sql::TEXTBOOK_INSERT)?;
        for number in 0..rows {
            let id = EventId::mint().to_string();
            let key = (number % KEYS).to_string();
            statement.execute((id, "order", key, "order.placed", payload(number)))?;
        }
    }
    tx.commit()?;
    checkpoint(connection)
}
