//! `drain`: a backlog through the whole relay, against the same operations from a bare client.

use std::sync::Arc;

use super::emulator::Emulator;
use super::ours::Ours;
use super::{RUN, bare};
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
    let backlog = || -> Result<(Emulator, Ours)> {
        progress(format_args!("a fresh emulator, and a backlog of {rows} events"));
        let emulator = Emulator::start(&runtime)?;
        let tables = runtime.block_on(async {
            let tables = Ours::create(&emulator.url, RUN).await?;
            tables.fill(rows).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(tables)
        })?;
        Ok((emulator, tables))
    };
    let mut contenders = [
        Contender::new("ours", || {
            let (_emulator, tables) = backlog()?;
            let store = Arc::new(tables.store());
            Ok(relay::drain_store(&runtime, store, Arc::new(NoopBroker), rows)?.per_s)
        }),
        Contender::new("bare_client", || {
            let (_emulator, tables) = backlog()?;
            runtime.block_on(async {
                let names = tables.connection.names();
                bare::drain(tables.connection.tables().await, names, rows).await
            })
        }),
    ];
    let series = take_turns(rounds, &mut contenders);
    let outcome = Outcome::new("drain", "noop", rows, rounds, &series?);
    let ratio = outcome.ratio("bare_client");
    Ok(outcome
        .aim_at_least("ours / bare_client", AIM, ratio)
        .note("rates are an emulator's, which is the narrowest part of both"))
}
