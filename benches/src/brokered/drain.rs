//! `drain`: a backlog through the whole relay to a broker, against the broker's own client beside a plain read,
//! and against the same relay to nobody.

use std::cell::RefCell;
use std::collections::BTreeMap;

use postrider_core::Route;
use serde_json::{Value, json};

use super::server::{self, Server};
use super::{ask, store};
use crate::backlog::KEYS;
use crate::measure::{Contender, cpu_seconds, median, peak_memory_kib, take_turns};
use crate::options::{BrokerKind, Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::postgres::{backlog, server::Server as Postgres};
use crate::tuning::Tuning;
use crate::{Result, progress, relay};

const ROWS: u64 = 300_000;
const ROUNDS: u32 = 3;

/// How long a payload is.
pub(super) const PAYLOAD_BYTES: usize = 512;

/// What the narrower of the two baselines should be reached by.
const AIM: f64 = 0.7;

/// Processor seconds per 100,000 events and peak memory, by round.
#[derive(Default)]
struct Costs {
    client: Vec<f64>,
    server: Vec<f64>,
    peak_kib: Vec<f64>,
    batches: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let postgres = Postgres::start(&runtime)?;
    let server = Server::start(options.broker)?;
    progress(format_args!("building a backlog of {rows} rows"));
    backlog::append_sized(&runtime, &postgres, rows, i32::try_from(PAYLOAD_BYTES)?)?;
    let costs = RefCell::new(BTreeMap::<&'static str, Costs>::new());
    let number = RefCell::new(0u32);
    let (url, address, kind) = (postgres.url(), server.address(), options.broker.as_str());
    let (count, tuning) = (rows.to_string(), options.tuning.text.as_str());
    let round = |name: &'static str| -> Result<f64> {
        *number.borrow_mut() += 1;
        let topic = format!("orders-{}", number.borrow());
        backlog::rewind(&runtime, &postgres)?;
        runtime.block_on(server.create(&topic, options.tuning.partitions()))?;
        let before = server.cpu_seconds();
        let answer = match name {
            "client_producer" => ask(&["produce", &url, &count, kind, &address, &topic])?,
            "noop" => ask(&["drain", &url, &count, "noop", "-", &topic, "structured", tuning])?,
            "ours_debezium" => {
                ask(&["drain", &url, &count, kind, &address, &topic, "debezium", tuning])?
            }
            "ours_binary" => {
                ask(&["drain", &url, &count, kind, &address, &topic, "binary", tuning])?
            }
            _ => ask(&["drain", &url, &count, kind, &address, &topic, "structured", tuning])?,
        };
        let mut costs = costs.borrow_mut();
        let costs = costs.entry(name).or_default();
        let per_100k = 100_000.0 / rows as f64;
        costs.client.push(answer("cpu_seconds") * per_100k);
        costs.server.push((server.cpu_seconds() - before) * per_100k);
        costs.peak_kib.push(answer("peak_kib"));
        costs.batches.push(answer("batches"));
        runtime.block_on(server.delete(&topic))?;
        Ok(answer("per_s"))
    };
    // A server that is warm serves everybody alike.
    round("client_producer")?;
    costs.borrow_mut().clear();
    let mut contenders = ["ours", "client_producer", "noop", "ours_binary", "ours_debezium"]
        .map(|name| Contender::new(name, move || round(name)));
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let outcome = Outcome::new("drain", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &postgres.version(&runtime)?);
    Ok(describe(outcome, tuning, &costs.into_inner()))
}

fn describe(outcome: Outcome, tuning: &str, costs: &BTreeMap<&'static str, Costs>) -> Outcome {
    let of = |value: fn(&Costs) -> &Vec<f64>| -> Value {
        let pairs = costs.iter().map(|(name, costs)| (*name, rounded(median(value(costs)))));
        json!(pairs.collect::<BTreeMap<_, _>>())
    };
    let [client, noop] = ["client_producer", "noop"].map(|name| outcome.ratio(name));
    outcome
        .add("keys", KEYS)
        .add("tuning", tuning)
        .add("payload_bytes", PAYLOAD_BYTES as u64)
        .add("cpu_s_per_100k", of(|costs| &costs.client))
        .add("broker_cpu_s_per_100k", of(|costs| &costs.server))
        .add("peak_kib", of(|costs| &costs.peak_kib))
        .add("batches", of(|costs| &costs.batches))
        .aim_at_least("ours / the narrower of client_producer and noop", AIM, client.max(noop))
        .note(
            "client_producer sends payload and key alone; ours a CloudEvent, structured, or binary in \
             ours_binary; ours_debezium the payload with an id",
        )
}

/// The child's side: a relay in a process of its own.
pub(super) fn relay(
    url: &str,
    rows: u64,
    (kind, address): (&str, &str),
    route: Route,
    tuning: &Tuning,
) -> Result<Value> {
    let broker = server::open(BrokerKind::parse(kind)?, address, tuning)?;
    let runtime = relay::runtime()?;
    let drained =
        relay::drain_route(&runtime, store(url)?, broker, rows, route, tuning.settings())?;
    Ok(json!({
        "per_s": drained.per_s,
        "cpu_seconds": cpu_seconds(),
        "peak_kib": peak_memory_kib(),
        "batches": drained.health.batches,
        "fetches": drained.health.fetches,
        "settlements": drained.health.settlements,
    }))
}
