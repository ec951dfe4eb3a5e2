//! `memory`: the peak memory of a relay's process before a small and a large backlog (INV-6).

use std::cell::RefCell;

use serde_json::json;

use super::ask;
use super::server::Server;
use crate::measure::{Contender, median, ratio, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::postgres::{backlog, server::Server as Postgres};
use crate::{Result, progress, relay};

const ROWS: u64 = 1_000_000;
const SMALL_ROWS: u64 = 10_000;
const ROUNDS: u32 = 1;
const PAYLOAD_BYTES: i32 = 1_024;

/// What a relay's process may take, in KiB.
const AIM: f64 = 131_072.0;

/// How much more memory the large backlog may take.
const AIM_RATIO: f64 = 1.2;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let small_rows = SMALL_ROWS.min(rows);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let [many, few] = [Postgres::start(&runtime)?, Postgres::start(&runtime)?];
    let server = Server::start(options.broker)?;
    progress(format_args!("building backlogs of {rows} and {small_rows} rows"));
    backlog::append_sized(&runtime, &many, rows, PAYLOAD_BYTES)?;
    backlog::append_sized(&runtime, &few, small_rows, PAYLOAD_BYTES)?;
    let peaks = RefCell::new([Vec::new(), Vec::new()]);
    let number = RefCell::new(0u32);
    let (address, kind) = (server.address(), options.broker.as_str());
    let tuning = options.tuning.text.as_str();
    let drain = |postgres: &Postgres, rows: u64, which: usize| -> Result<f64> {
        *number.borrow_mut() += 1;
        let topic = format!("orders-{}", number.borrow());
        backlog::rewind(&runtime, postgres)?;
        runtime.block_on(server.create(&topic, options.tuning.partitions()))?;
        let (url, rows) = (postgres.url(), rows.to_string());
        let answer = ask(&["drain", &url, &rows, kind, &address, &topic, "structured", tuning])?;
        runtime.block_on(server.delete(&topic))?;
        peaks.borrow_mut()[which].push(answer("peak_kib"));
        Ok(answer("per_s"))
    };
    let mut contenders = [
        Contender::new("ours", || drain(&many, rows, 0)),
        Contender::new("small_backlog", || drain(&few, small_rows, 1)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [large_peak, small_peak] = peaks.into_inner().map(|all| median(&all));
    let times = ratio(large_peak, small_peak);
    Ok(Outcome::new("memory", kind, rows, rounds, &series)
        .on(StoreKind::Postgres, &many.version(&runtime)?)
        .add("small_rows", small_rows)
        .add("payload_bytes", PAYLOAD_BYTES)
        .add("tuning", tuning)
        .add("peak_rss_kib", json!({ "large": large_peak, "small": small_peak }))
        .add("peak_rss_ratio", rounded(times))
        .note(
            "rates are of the children, each with the start of its relay: a small backlog is slow",
        )
        .aim_at_most("peak memory in KiB, small backlog", AIM, small_peak)
        .aim_at_most("peak memory in KiB, large backlog", AIM, large_peak)
        .aim_at_most("peak memory, large / small", AIM_RATIO, times))
}
