//! A backlog on the server: the same events for every contender.

use tokio::runtime::Runtime;

use super::server::Server;
use crate::backlog::KEYS;
use crate::{Result, progress};

/// Rows of one statement while the backlog is built.
const BATCH: u64 = 50_000;

const BULK_SESSION: &str = include_str!("../../sql/postgres/bulk_session.sql");
const BUILD: &str = include_str!("../../sql/postgres/backlog_build.sql");

/// Builds a backlog of so many events. Nothing of this is measured.
pub(crate) fn build(runtime: &Runtime, server: &Server, rows: u64) -> Result<()> {
    build_of(runtime, server, rows, KEYS)
}

/// The same of so many keys.
pub(crate) fn build_of(runtime: &Runtime, server: &Server, rows: u64, keys: u64) -> Result<()> {
    insert(runtime, server, (rows, keys), "set synchronous_commit = off", BUILD, None)?;
    server.batch(runtime, &server.sql("vacuum analyze {outbox}"))?;
    server.batch(runtime, "checkpoint")
}

/// Adds events behind those that are there. Nothing of this is measured.
pub(crate) fn append(runtime: &Runtime, server: &Server, rows: u64) -> Result<()> {
    insert(runtime, server, (rows, KEYS), "set synchronous_commit = off", BUILD, None)?;
    server.batch(runtime, "checkpoint")
}

/// The same for millions: the table's rules are not asked.
pub(crate) fn append_millions(runtime: &Runtime, server: &Server, rows: u64) -> Result<()> {
    let statement = include_str!("../../sql/postgres/backlog_bulk.sql");
    insert(runtime, server, (rows, KEYS), BULK_SESSION, statement, None)?;
    server.batch(runtime, &server.sql("vacuum analyze {outbox}"))?;
    server.batch(runtime, "checkpoint")
}

/// The same with payloads of so many bytes.
#[cfg(feature = "brokers")]
pub(crate) fn append_sized(
    runtime: &Runtime,
    server: &Server,
    rows: u64,
    payload_bytes: i32,
) -> Result<()> {
    let statement = include_str!("../../sql/postgres/backlog_sized.sql");
    insert(runtime, server, (rows, KEYS), BULK_SESSION, statement, Some(payload_bytes))?;
    server.batch(runtime, &server.sql("vacuum analyze {outbox}"))?;
    server.batch(runtime, "checkpoint")
}

fn insert(
    runtime: &Runtime,
    server: &Server,
    (rows, keys): (u64, u64),
    session: &str,
    statement: &str,
    payload_bytes: Option<i32>,
) -> Result<()> {
    runtime.block_on(async {
        let client = server.connect().await?;
        client.batch_execute(session).await?;
        let ahead = server.sql(include_str!("../../sql/postgres/tables_ahead.sql"));
        let insert = client.prepare(&server.sql(statement)).await?;
        let keys = i64::try_from(keys)?;
        let mut built = 0;
        while built < rows {
            client.batch_execute(&ahead).await?;
            let (first, last) = (built + 1, rows.min(built + BATCH));
            let numbers = (i64::try_from(first)?, i64::try_from(last)?);
            match &payload_bytes {
                Some(bytes) => {
                    client.execute(&insert, &[&numbers.0, &numbers.1, &keys, bytes]).await?
                }
                None => client.execute(&insert, &[&numbers.0, &numbers.1, &keys]).await?,
            };
            built = last;
            if built % 1_000_000 == 0 {
                progress(format_args!("backlog: {built} of {rows} rows"));
            }
        }
        Ok(())
    })
}

/// Forgets what was delivered, so that the next contender finds the same work.
pub(crate) fn rewind(runtime: &Runtime, server: &Server) -> Result<()> {
    let rewind = server.sql(include_str!("../../sql/postgres/backlog_rewind.sql"));
    runtime.block_on(async {
        let client = server.connect().await?;
        client.batch_execute(&rewind).await?;
        client.batch_execute("checkpoint").await?;
        Ok(())
    })
}
