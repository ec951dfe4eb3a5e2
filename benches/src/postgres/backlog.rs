//! A backlog on the server: the same events for every contender.

use tokio::runtime::Runtime;

use super::server::Server;
use crate::backlog::KEYS;
use crate::{Result, progress};

/// Rows of one statement while the backlog is built.
const BATCH: u64 = 50_000;

/// Builds a backlog of so many events. Nothing of this is measured.
pub(crate) fn build(runtime: &Runtime, server: &Server, rows: u64) -> Result<()> {
    runtime.block_on(async {
        let client = server.connect().await?;
        client.batch_execute("set synchronous_commit = off").await?;
        let insert = server.sql(include_str!("../../sql/postgres/backlog_build.sql"));
        let insert = client.prepare(&insert).await?;
        let keys = i64::try_from(KEYS)?;
        let mut built = 0;
        while built < rows {
            let (first, last) = (built + 1, rows.min(built + BATCH));
            let numbers = (i64::try_from(first)?, i64::try_from(last)?);
            client.execute(&insert, &[&numbers.0, &numbers.1, &keys]).await?;
            built = last;
            if built % 1_000_000 == 0 {
                progress(format_args!("backlog: {built} of {rows} rows"));
            }
        }
        client.batch_execute(&server.sql("vacuum analyze {outbox}")).await?;
        client.batch_execute("checkpoint").await?;
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
