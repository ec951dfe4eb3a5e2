//! `settled`: a drain beside millions of settled rows in the same table, against one in an empty table.

use std::sync::Arc;

use tokio::runtime::Runtime;

use super::backlog::{append, append_millions};
use super::server::Server;
use crate::measure::{Contender, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::Outcome;
use crate::{Result, broker, progress, relay};

/// Settled rows.
const ROWS: u64 = 10_000_000;

/// Rows to drain in each round: some seconds, so that what a relay does once at its start hides nothing.
const FRESH: u64 = 500_000;

const ROUNDS: u32 = 3;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let fresh = FRESH.min(rows);
    let runtime = relay::runtime()?;
    let (full, empty) = (Server::start(&runtime)?, Server::start(&runtime)?);
    progress(format_args!("building {rows} rows that are settled"));
    append_millions(&runtime, &full, rows)?;
    drain(&runtime, &full, options, rows)?;
    if rows > fresh {
        numbers_after(&runtime, &empty, rows - fresh)?;
    }
    append(&runtime, &empty, fresh)?;
    drain(&runtime, &empty, options, fresh)?;
    let mut contenders = [
        Contender::new("ours", || {
            append(&runtime, &full, fresh)?;
            drain(&runtime, &full, options, fresh)
        }),
        Contender::new("empty_table", || {
            // The cursors stand where the last drain ended, as those of the other do.
            let truncate = empty.sql(include_str!("../../sql/postgres/outbox_empty.sql"));
            empty.batch(&runtime, &truncate)?;
            append(&runtime, &empty, fresh)?;
            drain(&runtime, &empty, options, fresh)
        }),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let outcome = Outcome::new("settled", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &full.version(&runtime)?);
    let ratio = outcome.ratio("empty_table");
    Ok(outcome
        .add("drained_rows", fresh)
        .note("`rows` are settled and stand in the table; each round drains `drained_rows` behind them")
        .aim_at_least("ours / empty_table", 0.95, ratio))
}

fn drain(runtime: &Runtime, server: &Server, options: &Options, rows: u64) -> Result<f64> {
    let broker = broker::open(options.broker, &server.beside("broker.db"))?;
    Ok(relay::drain_store(runtime, Arc::new(server.store()?), broker, rows)?.per_s)
}

/// Lets the empty table's numbers go on where those of the other do. Each of the outbox's tables holds a range of
/// numbers, and a relay that starts reads the new rows of the one where its cursors stand: how many that are
/// depends on where the range ends, and is to be the same for both.
fn numbers_after(runtime: &Runtime, server: &Server, last: u64) -> Result<()> {
    runtime.block_on(async {
        let client = server.connect().await?;
        let statement = server.sql(include_str!("../../sql/postgres/numbers_after.sql"));
        client.query_one(&statement, &[&i64::try_from(last)?]).await?;
        Ok(())
    })
}
