//! `drain`: a backlog through the whole relay, against a plain read of the same rows and the loops that
//! people write; the same again beside a snapshot that is held elsewhere.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use postrider_relay::Settings;
use serde_json::json;
use tokio::runtime::Runtime;

use super::loops::{self, Settling};
use super::server::Server;
use super::{backlog, plain};
use crate::backlog::{KEYS, PAYLOAD_BYTES};
use crate::measure::{Contender, median, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::relay::Drained;
use crate::{Result, broker, progress, relay};

const ROWS: u64 = 500_000;
const ROUNDS: u32 = 3;

/// The textbook loop sends a statement for each row; more rows would only take longer.
const TEXTBOOK_ROWS_MAX: u64 = 20_000;

/// How long the snapshot is held.
const HOUR: Duration = Duration::from_secs(3_600);

/// How old what a relay knows of the versions is at most: they are counted each 20 seconds, and told with a renewal.
const COUNTED_EVERY: Duration = Duration::from_secs(23);

/// What the better loops run on.
const LOOP_ROWS_MAX: u64 = 200_000;

/// A drain, and what it cost the server.
struct Round {
    drained: Drained,
    log_bytes: u64,
    dead_tuples: i64,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    progress(format_args!("building a backlog of {rows} rows"));
    backlog::build(&runtime, &server, rows)?;
    let number = RefCell::new(0u32);
    let drain = || -> Result<Round> {
        *number.borrow_mut() += 1;
        let path = server.beside(&format!("broker-{}.db", number.borrow()));
        drain_once(&runtime, &server, broker::open(options.broker, &path)?, rows)
    };
    drain()?;
    plain::read(&runtime, &server, rows)?;
    let ours = RefCell::new(Vec::new());
    let log = RefCell::new([0.0; 3]);
    let looped = |rows_max: u64, settling: Settling| -> Result<f64> {
        let count = rows.min(rows_max);
        let done = loops::publish(&runtime, &server, count, settling)?;
        log.borrow_mut()[settling as usize] = rounded(done.log_bytes as f64 / count as f64);
        Ok(done.per_s)
    };
    // A drain beside a snapshot, after so many saves of each cursor beside it.
    let after_an_hour = |saves: u64| -> Result<f64> {
        let held = hold(&runtime, &server)?;
        let hour = include_str!("../../sql/postgres/hour_of_saves.sql");
        let renewals = HOUR.div_duration_f64(Settings::default().heartbeat) as u64;
        let hour = hour.replace("$saves", &saves.to_string());
        let hour = hour.replace("$renewals", &renewals.to_string());
        server.batch(&runtime, &server.sql(&hour))?;
        let per_s = drain()?.drained.per_s;
        drop(held);
        // The next contender has nothing of it.
        for vacuum in [
            include_str!("../../sql/postgres/cursor_vacuum.sql"),
            include_str!("../../sql/postgres/lease_vacuum.sql"),
        ] {
            server.batch(&runtime, &server.sql(vacuum))?;
        }
        Ok(per_s)
    };
    let mut contenders = [
        Contender::new("ours", || {
            let round = drain()?;
            let per_s = round.drained.per_s;
            ours.borrow_mut().push(round);
            Ok(per_s)
        }),
        Contender::new("plain_read", || plain::read(&runtime, &server, rows)),
        Contender::new("held_snapshot", || {
            let _held = hold(&runtime, &server)?;
            Ok(drain()?.drained.per_s)
        }),
        Contender::new("held_for_an_hour", || after_an_hour(saves_of_an_hour())),
        Contender::new("textbook", || looped(TEXTBOOK_ROWS_MAX, Settling::RowByRow)),
        Contender::new("batched_update", || looped(LOOP_ROWS_MAX, Settling::Batched)),
        Contender::new("delete_returning", || looped(LOOP_ROWS_MAX, Settling::Deleting)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let outcome = Outcome::new("drain", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?);
    Ok(describe(outcome, rows, &ours.into_inner(), log.into_inner()))
}

fn describe(outcome: Outcome, rows: u64, ours: &[Round], log: [f64; 3]) -> Outcome {
    let of = |value: fn(&Round) -> f64| median(&ours.iter().map(value).collect::<Vec<_>>());
    let log_ours = of(|round| round.log_bytes as f64) / rows as f64;
    let dead = of(|round| round.dead_tuples as f64) / rows as f64;
    let [read, batched] = ["plain_read", "batched_update"].map(|name| outcome.ratio(name));
    let textbook = outcome.ratio("textbook");
    // Ours of ours: the baselines' ratios are the other way round.
    let [beside, hour] = ["held_snapshot", "held_for_an_hour"].map(|name| {
        let held = outcome.ratio(name);
        if held > 0.0 { 1.0 / held } else { 0.0 }
    });
    outcome
        .add("keys", KEYS)
        .add("payload_bytes", PAYLOAD_BYTES as u64)
        .add(
            "relay",
            json!({
                "fetches": of(|round| round.drained.health.fetches as f64),
                "rows_read": of(|round| round.drained.health.rows_read as f64),
                "batches": of(|round| round.drained.health.batches as f64),
                "settlements": of(|round| round.drained.health.settlements as f64),
            }),
        )
        .add(
            "log_bytes_per_event",
            json!({ "ours": rounded(log_ours), "textbook": log[0], "batched_update": log[1],
                "delete_returning": log[2] }),
        )
        .add("dead_tuples_per_event", rounded(dead))
        .add("saves_of_an_hour", saves_of_an_hour())
        .aim_at_least("ours / plain_read", 0.5, read)
        .aim_at_least("ours / batched_update", 5.0, batched)
        .aim_at_least("ours / textbook", 40.0, textbook)
        .aim_at_least("ours beside a held snapshot / ours", 0.95, beside)
        .aim_at_least("ours after an hour of saves beside one / ours", 0.95, hour)
        .aim_at_most("bytes of the log per settled event", 5.0, log_ours)
        .aim_at_most("dead tuples per settled event", 0.01, dead)
        .note(format!(
            "the loops ran on {} and {} rows of their own and publish to nobody; their rates are taken to \
             hold for {rows}",
            rows.min(TEXTBOOK_ROWS_MAX),
            rows.min(LOOP_ROWS_MAX)
        ))
}

/// How often a relay saves each cursor while a snapshot is held that long, with something to save all the time: by the
/// rules of the store and of the engine.
fn saves_of_an_hour() -> u64 {
    let settings = Settings::default();
    let (mut at, mut saves) = (Duration::ZERO, 0);
    let (mut counted_at, mut counted) = (Duration::ZERO, 0);
    while at < HOUR {
        if at >= counted_at + COUNTED_EVERY {
            (counted_at, counted) = (at, saves);
        }
        at += settings.save_interval(postrider_postgres::saves_apart(counted));
        saves += 1;
    }
    saves
}

/// A transaction that holds a snapshot as long as the value lives.
fn hold(runtime: &Runtime, server: &Server) -> Result<tokio_postgres::Client> {
    runtime.block_on(async {
        let client = server.connect().await?;
        client.batch_execute("begin isolation level repeatable read; select 1").await?;
        Ok(client)
    })
}

fn drain_once(
    runtime: &Runtime,
    server: &Server,
    broker: Arc<dyn postrider_core::Broker>,
    rows: u64,
) -> Result<Round> {
    backlog::rewind(runtime, server)?;
    let before = runtime.block_on(server.log_position())?;
    let drained = relay::drain_store(runtime, Arc::new(server.store()?), broker, rows)?;
    let log_bytes = runtime.block_on(server.log_position())?.saturating_sub(before);
    let dead_tuples = runtime.block_on(async {
        let client = server.connect().await?;
        client.batch_execute("select pg_stat_force_next_flush()").await?;
        let statement = include_str!("../../sql/postgres/dead_tuples.sql");
        let row = client.query_one(statement, &[]).await?;
        Ok::<i64, Box<dyn std::error::Error + Send + Sync>>(row.get(0))
    })?;
    Ok(Round { drained, log_bytes, dead_tuples })
}
