//! `hot`: a backlog of one key through the whole relay, against the same of ten thousand.

use std::sync::Arc;

use super::backlog;
use super::server::Server;
use crate::backlog::KEYS;
use crate::measure::{Contender, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::Outcome;
use crate::{Result, broker, progress, relay};

const ROWS: u64 = 300_000;
const ROUNDS: u32 = 3;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let (one, many) = (Server::start(&runtime)?, Server::start(&runtime)?);
    progress(format_args!("building two backlogs of {rows} rows"));
    backlog::build_of(&runtime, &one, rows, 1)?;
    backlog::build_of(&runtime, &many, rows, KEYS)?;
    let drain = |server: &Server| -> Result<f64> {
        backlog::rewind(&runtime, server)?;
        let nobody = broker::open(options.broker, &server.beside("broker.db"))?;
        Ok(relay::drain_store(&runtime, Arc::new(server.store()?), nobody, rows)?.per_s)
    };
    drain(&one)?;
    drain(&many)?;
    let mut contenders =
        [Contender::new("ours", || drain(&one)), Contender::new("many_keys", || drain(&many))];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    Ok(Outcome::new("hot", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &one.version(&runtime)?)
        .note("all rows of `ours` have one key, and so stand in one partition of thirty-two"))
}
