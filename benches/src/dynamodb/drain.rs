//! `drain`: a backlog through the whole relay, against the same operations from a bare client.

use std::cell::Cell;
use std::sync::Arc;

use super::ours::Ours;
use super::{bare, direct, drop_tables, run_name, server};
use crate::broker::NoopBroker;
use crate::measure::{Contender, take_turns};
use crate::options::{BrokerKind, Options};
use crate::outcome::Outcome;
use crate::{Result, progress, relay};

const ROWS: u64 = 3_000;
const ROUNDS: u32 = 3;
/// Of the bare client's rate, ours at least.
const AIM: f64 = 0.7;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("on DynamoDB `drain` delivers to nobody: it takes no broker".into());
    }
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = server()?;
    let name = run_name();
    let number = Cell::new(0u32);
    // Each round has tables of its own: what one marked stays in them.
    let backlog = || -> Result<Ours> {
        number.set(number.get() + 1);
        progress(format_args!("a backlog of {rows} events"));
        runtime.block_on(async {
            let tables = Ours::create(&server, &format!("{name}-{}", number.get())).await?;
            tables.fill(rows).await?;
            Ok(tables)
        })
    };
    let mut contenders = [
        Contender::new("ours", || {
            let store = Arc::new(backlog()?.store());
            Ok(relay::drain_store(&runtime, store, Arc::new(NoopBroker), rows)?.per_s)
        }),
        Contender::new("bare_client", || {
            let tables = backlog()?;
            runtime.block_on(async {
                let names = tables.connection.names();
                bare::drain(tables.connection.tables().await, names, rows).await
            })
        }),
    ];
    let series = take_turns(rounds, &mut contenders);
    drop(contenders);
    runtime.block_on(async { drop_tables(direct(&server)?.tables().await, &name).await })?;
    let outcome = Outcome::new("drain", "noop", rows, rounds, &series?);
    let ratio = outcome.ratio("bare_client");
    Ok(outcome
        .aim_at_least("ours / bare_client", AIM, ratio)
        .note("rates are an emulator's, which is the narrowest part of both"))
}
