//! `memory`: the peak memory of a relay's process, with small and large backlogs, and with large payloads.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::backlog;
use super::server::Server;
use crate::measure::{Contender, cpu_seconds, median, peak_memory_kib, take_turns};
use crate::options::{BrokerKind, Options, StoreKind};
use crate::outcome::Outcome;
use crate::{Result, broker, child, progress, relay};

const ROWS: u64 = 1_000_000;
const SMALL_ROWS: u64 = 10_000;
const LARGE_PAYLOADS: u64 = 300;
const LARGE_PAYLOAD_BYTES: u64 = 1_000_000;
const ROUNDS: u32 = 1;

/// What a relay's process may take, in KiB.
const AIM: f64 = 65_536.0;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let (small_rows, payloads) = (SMALL_ROWS.min(rows), LARGE_PAYLOADS.min(rows));
    let runtime = relay::runtime()?;
    let servers = [Server::start(&runtime)?, Server::start(&runtime)?, Server::start(&runtime)?];
    let [many, few, large] = &servers;
    progress(format_args!("building backlogs of {rows}, {small_rows}, and {payloads} large rows"));
    backlog::append_millions(&runtime, many, rows)?;
    backlog::append(&runtime, few, small_rows)?;
    build_large(&runtime, large, payloads)?;
    let peaks = RefCell::new([Vec::new(), Vec::new(), Vec::new()]);
    let drain = |server: &Server, rows: u64, which: usize| -> Result<f64> {
        backlog::rewind(&runtime, server)?;
        let path = server.beside(&format!("broker-{}.db", peaks.borrow()[which].len()));
        let (rows, path) = (rows.to_string(), path.to_string_lossy().into_owned());
        let kind = options.broker.as_str();
        let answer = child::ask(&["drain-postgres", &server.url(), &rows, kind, &path])?;
        let number = |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or_default();
        peaks.borrow_mut()[which].push(number("peak_kib"));
        Ok(number("per_s"))
    };
    let mut contenders = [
        Contender::new("ours", || drain(many, rows, 0)),
        Contender::new("small_backlog", || drain(few, small_rows, 1)),
        Contender::new("large_payloads", || drain(large, payloads, 2)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [many_peak, few_peak, large_peak] = peaks.into_inner().map(|all| median(&all));
    Ok(Outcome::new("memory", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &many.version(&runtime)?)
        .add("small_rows", small_rows)
        .add("large_payloads", payloads)
        .add("large_payload_bytes", LARGE_PAYLOAD_BYTES)
        .add(
            "peak_rss_kib",
            json!({ "backlog": many_peak, "small": few_peak, "large_payloads": large_peak }),
        )
        .note(
            "rates are of the children, each with the start of its relay: a small backlog is slow",
        )
        .aim_at_most("peak memory in KiB, small backlog", AIM, few_peak)
        .aim_at_most("peak memory in KiB, large backlog", AIM, many_peak)
        .aim_at_most("peak memory in KiB, payloads of 1 MB", AIM, large_peak))
}

fn build_large(runtime: &Runtime, server: &Server, rows: u64) -> Result<()> {
    let statement = server.sql(include_str!("../../sql/postgres/backlog_large.sql"));
    let values = (i64::try_from(rows)?, i32::try_from(LARGE_PAYLOAD_BYTES)?);
    runtime.block_on(async {
        server.connect().await?.execute(&statement, &[&values.0, &values.1]).await?;
        Ok(())
    })
}

/// The child's side: a relay in a process of its own.
pub(crate) fn drain(url: &str, rows: u64, kind: &str, path: &Path) -> Result<Value> {
    let broker = broker::open(BrokerKind::parse(kind)?, path)?;
    let store = Arc::new(postrider_postgres::PostgresStore::new(url)?);
    let start = Instant::now();
    let drained = relay::drain_store(&relay::runtime()?, store, broker, rows)?;
    Ok(json!({
        "per_s": drained.per_s,
        "seconds_with_start": start.elapsed().as_secs_f64(),
        "cpu_seconds": cpu_seconds(),
        "peak_kib": peak_memory_kib(),
    }))
}
