//! `dead`: a destination beside one whose broker answers nothing but errors, against the same alone.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use postrider_core::{BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Outcome, Outgoing};
use tokio::runtime::Runtime;

use super::backlog;
use super::server::Server;
use crate::broker::{self, NoopBroker, Witness};
use crate::measure::{Contender, rate, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::rounded;
use crate::{Result, outcome, progress, relay};

const ROWS: u64 = 200_000;
const ROUNDS: u32 = 5;

/// Nobody answers there.
struct DeadBroker;

impl Broker for DeadBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        NoopBroker.capabilities()
    }

    fn publish<'a>(
        &'a self,
        _: &'a [Outgoing],
    ) -> BoxFuture<'a, postrider_core::Result<Vec<Outcome>>> {
        Box::pin(async move {
            Err(Error::new(ErrorKind::Unavailable, "publish").message("nobody answers there"))
        })
    }
}

pub(crate) fn run(options: &Options) -> Result<outcome::Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    progress(format_args!("building a backlog of {rows} rows"));
    backlog::build(&runtime, &server, rows)?;
    let read = Cell::new(0_u64);
    let drain = |with_dead: bool| {
        let (per_s, rows_read) = deliver(&runtime, &server, options, rows, with_dead)?;
        read.set(if with_dead { read.get().max(rows_read) } else { read.get() });
        Ok(per_s)
    };
    drain(false)?;
    let mut contenders =
        [Contender::new("ours", || drain(true)), Contender::new("alone", || drain(false))];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let found = outcome::Outcome::new("dead", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?);
    let ratio = found.ratio("alone");
    Ok(found
        .add("rows_read_per_event", rounded(read.get() as f64 / rows as f64))
        .note("rates are of the destination that is well, in a relay that runs on, from its start to the last event")
        .aim_at_least("ours / alone", 0.95, ratio))
}

/// The rate of the destination that is well, and the rows that were read for both.
fn deliver(
    runtime: &Runtime,
    server: &Server,
    options: &Options,
    rows: u64,
    with_dead: bool,
) -> Result<(f64, u64)> {
    backlog::rewind(runtime, server)?;
    let broker = broker::open(options.broker, &server.beside("broker.db"))?;
    let witness = Arc::new(Witness::new(broker, 0));
    let mut acknowledged = witness.acknowledged();
    let mut destinations: Vec<(&str, Arc<dyn Broker>)> = vec![("well", witness)];
    if with_dead {
        destinations.push(("dead", Arc::new(DeadBroker)));
    }
    let start = Instant::now();
    let handle = relay::start_destinations(runtime, Arc::new(server.store()?), destinations)?;
    runtime.block_on(async {
        let all = acknowledged.wait_for(|all| *all >= rows);
        tokio::time::timeout(relay::PATIENCE, all).await??;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    let per_s = rate(rows, start);
    let rows_read = handle.health().borrow().rows_read;
    relay::stop(runtime, handle);
    Ok((per_s, rows_read))
}
