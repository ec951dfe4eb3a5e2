//! `live`: producers beside a relay that delivers what they commit, against producers alone.

use std::sync::Arc;

use super::enqueue::{Extra, produce_all};
use super::server::Server;
use crate::broker::{self, Witness};
use crate::measure::{Contender, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::Outcome;
use crate::{Result, relay};

const CLIENTS: u64 = 8;
const ROUNDS: u32 = 5;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    server.batch(&runtime, include_str!("../../sql/postgres/business_tables.sql"))?;
    let mut number = 0u32;
    let mut behind = Vec::new();
    let mut contenders = [
        Contender::new("ours", || {
            number += 1;
            let path = server.beside(&format!("broker-{number}.db"));
            let witness = Arc::new(Witness::new(broker::open(options.broker, &path)?, 0));
            let acknowledged = witness.acknowledged();
            // What was committed without a relay is delivered before anything is measured.
            let handle = relay::start_store(&runtime, Arc::new(server.store()?), witness)?;
            let before = *acknowledged.borrow();
            let (per_s, count) = produce_all(&runtime, &server, CLIENTS, Extra::Event)?;
            behind.push((before + count).saturating_sub(*acknowledged.borrow()));
            let mut acknowledged = acknowledged;
            runtime.block_on(async {
                let all = acknowledged.wait_for(|all| *all >= before + count);
                tokio::time::timeout(relay::PATIENCE, all).await??;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            })?;
            relay::stop(&runtime, handle);
            Ok(per_s)
        }),
        Contender::new("without_relay", || {
            Ok(produce_all(&runtime, &server, CLIENTS, Extra::Event)?.0)
        }),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let outcome = Outcome::new("live", options.broker.as_str(), CLIENTS, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?);
    let ratio = outcome.ratio("without_relay");
    Ok(outcome
        .add("behind_at_the_end", behind)
        .note("`rows` are clients; rates are business transactions with an event each")
        .note("behind_at_the_end: events of each round not delivered when its last commit returned")
        .aim_at_least("ours / without_relay", 0.93, ratio))
}
