//! `writer`: events at a steady rate, then a backlog, beside a transaction that has written and stays open,
//! against the same without it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::backlog::{append, rewind};
use super::latency::{RATE, pace, summary};
use super::server::Server;
use crate::broker::{self, Witness};
use crate::measure::{Contender, median, rate, ratio, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, progress, relay};

/// How long events come.
const SECONDS: u64 = 120;

/// What is drained while the transaction is still open.
const BACKLOG: u64 = 200_000;

const ROUNDS: u32 = 1;

/// What a stream and a drain came to.
struct Found {
    /// From each commit to its acknowledgement, in microseconds.
    micros: Vec<f64>,
    /// The longest time without any acknowledgement.
    gap_micros: f64,
    drain_per_s: f64,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let seconds = options.seconds.unwrap_or(SECONDS);
    let backlog = options.rows.unwrap_or(BACKLOG);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    server.batch(&runtime, include_str!("../../sql/postgres/business_tables.sql"))?;
    let found = RefCell::new([Vec::new(), Vec::new()]);
    let look = |with_writer: bool| -> Result<f64> {
        progress(format_args!("{seconds} s of events, open transaction: {with_writer}"));
        let (per_s, one) = stream(&runtime, &server, options, (seconds, backlog), with_writer)?;
        found.borrow_mut()[usize::from(!with_writer)].push(one);
        Ok(per_s)
    };
    let mut contenders =
        [Contender::new("ours", || look(true)), Contender::new("without", || look(false))];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [mut beside, mut without] = found.into_inner();
    let drains = |all: &[Found]| median(&all.iter().map(|one| one.drain_per_s).collect::<Vec<_>>());
    let (drain, drain_without) = (drains(&beside), drains(&without));
    let gap = beside.iter().map(|one| one.gap_micros).fold(0.0, f64::max) / 1_000.0;
    let outcome = Outcome::new("writer", options.broker.as_str(), backlog, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?);
    let streamed = outcome.ratio("without");
    Ok(outcome
        .add("seconds", seconds)
        .add("events_per_s", RATE)
        .add("latency_us", json!({ "ours": shown(&mut beside), "without": shown(&mut without) }))
        .add(
            "drain_per_s",
            json!({ "ours": rounded(drain), "without": rounded(drain_without),
                "ratio": rounded(ratio(drain, drain_without)) }),
        )
        .note("rates are of the stream, whose pace is the producers'; `rows` are drained after it")
        .aim_at_least("stream beside an open transaction / without", 0.95, streamed)
        .aim_at_least("drain beside it / without", 0.95, ratio(drain, drain_without))
        .aim_at_most("longest time without an event, ms", 1_000.0, gap))
}

/// Latencies of all rounds, and how long nothing came.
fn shown(all: &mut [Found]) -> Value {
    let gap = all.iter().map(|one| one.gap_micros).fold(0.0, f64::max);
    let mut micros: Vec<f64> = all.iter_mut().flat_map(|one| one.micros.drain(..)).collect();
    let mut summary = summary(&mut micros);
    summary["longest_gap"] = rounded(gap).into();
    summary
}

/// A relay, a stream of events, and a backlog at its end; the transaction that is open all the while commits
/// last, and its event must come.
fn stream(
    runtime: &Runtime,
    server: &Server,
    options: &Options,
    (seconds, backlog): (u64, u64),
    with_writer: bool,
) -> Result<(f64, Found)> {
    rewind(runtime, server)?;
    server.batch(runtime, &server.sql(include_str!("../../sql/postgres/outbox_empty.sql")))?;
    let writer = if with_writer { Some(open(runtime, server)?) } else { None };
    let events = seconds * RATE;
    let broker = broker::open(options.broker, &server.beside(&format!("broker-{with_writer}.db")))?;
    let witness = Arc::new(Witness::new(broker, usize::try_from(events)?));
    let handle =
        relay::start_store(runtime, Arc::new(server.store()?), Arc::clone(&witness) as Arc<_>)?;
    let start = Instant::now();
    let committed = pace(runtime, server, events, None)?;
    wait(runtime, &witness, events)?;
    let per_s = rate(events, start);
    let mut arrivals = witness.arrivals();
    let micros = committed.iter().zip(&arrivals);
    let micros = micros.map(|(from, to)| to.saturating_sub(*from) as f64 / 1_000.0).collect();
    arrivals.sort_unstable();
    let gaps = arrivals.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1_000.0);
    let gap_micros = gaps.fold(0.0, f64::max);
    relay::stop(runtime, handle);
    let drain_per_s = drain(runtime, server, options, backlog)?;
    if let Some(writer) = writer {
        runtime.block_on(writer.batch_execute("commit"))?;
        let broker = broker::open(options.broker, &server.beside("broker-last.db"))?;
        relay::drain_store(runtime, Arc::new(server.store()?), broker, 1)?;
    }
    Ok((per_s, Found { micros, gap_micros, drain_per_s }))
}

fn open(runtime: &Runtime, server: &Server) -> Result<Client> {
    let statements = server.sql(include_str!("../../sql/postgres/open_writer.sql"));
    runtime.block_on(async {
        let client = server.connect().await?;
        client.batch_execute(&statements).await?;
        Ok(client)
    })
}

fn wait(runtime: &Runtime, witness: &Witness, count: u64) -> Result<()> {
    let mut acknowledged = witness.acknowledged();
    runtime.block_on(async {
        let all = acknowledged.wait_for(|all| *all >= count);
        tokio::time::timeout(relay::PATIENCE, all).await??;
        Ok(())
    })
}

/// A backlog that nobody reads while it is made, drained by a relay that ends.
fn drain(runtime: &Runtime, server: &Server, options: &Options, rows: u64) -> Result<f64> {
    append(runtime, server, rows)?;
    let broker = broker::open(options.broker, &server.beside("broker-again.db"))?;
    Ok(relay::drain_store(runtime, Arc::new(server.store()?), broker, rows)?.per_s)
}
