//! `latency`: from the return of a commit to a consumer of the broker, at a steady rate, with nudges and by
//! polling alone; and what the relay's process takes meanwhile.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::OutboxSource;
use postrider_postgres::Nudger;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::bare::Arrivals;
use super::route;
use super::server::{self, Server};
use crate::counted::Counted;
use crate::measure::{Contender, cpu_seconds, peak_memory_kib, percentile, take_turns};
use crate::options::{BrokerKind, Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::postgres::latency::{RATE, pace, summary};
use crate::postgres::{backlog, server::Server as Postgres};
use crate::tuning::Tuning;
use crate::{Result, child, relay};

const EVENTS: u64 = 60_000;
const ROUNDS: u32 = 1;

/// The first events of each round are not counted.
const WARM_UP_EVENTS: usize = 1_000;

/// How long the last event may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the rounds of a contender came to.
#[derive(Default)]
struct Measured {
    micros: Vec<f64>,
    cpu_s_per_100k: f64,
    peak_kib: f64,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let postgres = Postgres::start(&runtime)?;
    let server = Server::start(options.broker)?;
    let measured = RefCell::new([Measured::default(), Measured::default()]);
    let number = RefCell::new(0u32);
    let journey = |which: usize, nudged: bool| -> Result<f64> {
        *number.borrow_mut() += 1;
        let topic = format!("orders-{}", number.borrow());
        runtime.block_on(server.create(&topic, Tuning::default().partitions()))?;
        let start = Instant::now();
        let (micros, report) = travel(&runtime, &postgres, &server, &topic, events, nudged)?;
        let figure = |name: &str| report.get(name).and_then(Value::as_f64).unwrap_or_default();
        let mut measured = measured.borrow_mut();
        measured[which].micros.extend(micros);
        measured[which].cpu_s_per_100k = figure("cpu_seconds") * 100_000.0 / events as f64;
        measured[which].peak_kib = figure("peak_kib");
        Ok(events as f64 / start.elapsed().as_secs_f64())
    };
    let mut contenders = [
        Contender::new("ours", || journey(0, true)),
        Contender::new("polling_alone", || journey(1, false)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [mut nudged, mut polled] = measured.into_inner();
    let [p50, p99] = [50.0, 99.0].map(|percent| percentile(&mut nudged.micros, percent) / 1_000.0);
    let p95 = [&mut nudged, &mut polled].map(|of| rounded(percentile(&mut of.micros, 95.0)));
    Ok(Outcome::new("latency", options.broker.as_str(), events, rounds, &series)
        .on(StoreKind::Postgres, &postgres.version(&runtime)?)
        .add("events_per_s", RATE)
        .add(
            "latency_us",
            json!({ "ours": summary(&mut nudged.micros), "polling_alone": summary(&mut polled.micros) }),
        )
        .add("latency_us_p95", json!({ "ours": p95[0], "polling_alone": p95[1] }))
        .add(
            "relay_cpu_s_per_100k",
            json!({ "ours": rounded(nudged.cpu_s_per_100k), "polling_alone": rounded(polled.cpu_s_per_100k) }),
        )
        .add("relay_peak_kib", json!({ "ours": nudged.peak_kib, "polling_alone": polled.peak_kib }))
        .note("rates are the producers' pace and compare nothing; look at latency_us")
        .aim_at_most("p50 with nudges, ms", 8.0, p50)
        .aim_at_most("p99 with nudges, ms", 40.0, p99))
}

/// From each commit to its event's arrival, in microseconds, and what the relay says of itself.
fn travel(
    runtime: &Runtime,
    postgres: &Postgres,
    server: &Server,
    topic: &str,
    events: u64,
    nudged: bool,
) -> Result<(Vec<f64>, Value)> {
    backlog::rewind(runtime, postgres)?;
    postgres.batch(runtime, &postgres.sql(include_str!("../../sql/postgres/outbox_empty.sql")))?;
    let arrivals = Arrivals::listen(runtime, server, topic, usize::try_from(events)?)?;
    let relay = Running::start(&postgres.url(), server, topic, nudged)?;
    let nudger =
        nudged.then(|| runtime.block_on(async { Nudger::new(&postgres.url()) })).transpose()?;
    let committed = pace(runtime, postgres, events, nudger)?;
    let arrived = runtime.block_on(arrivals.all(PATIENCE))?;
    let report = relay.finish()?;
    let pairs = committed.iter().zip(arrived).skip(WARM_UP_EVENTS.min(committed.len() / 10));
    let micros = pairs.map(|(from, to)| to.saturating_sub(*from) as f64 / 1_000.0).collect();
    Ok((micros, report))
}

/// A relay in a process of its own, as its parent holds it. It ends with its parent at the latest.
struct Running {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts one, and waits until it has nothing to do.
    fn start(url: &str, server: &Server, topic: &str, nudged: bool) -> Result<Running> {
        let kind = match server {
            Server::Kafka(_) => BrokerKind::Kafka,
            Server::Nats(_) => BrokerKind::Nats,
        };
        let nudged = if nudged { "nudged" } else { "polling" };
        let mut process = Command::new(std::env::current_exe()?)
            .args([child::FLAG, "brokered", "relay", url, kind.as_str(), &server.address()])
            .args([topic, nudged])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().ok_or("the relay has no standard output")?;
        let mut running = Running { process, stdin, stdout: BufReader::new(stdout) };
        let mut line = String::new();
        running.stdout.read_line(&mut line)?;
        match line.is_empty() {
            true => Err("the relay ended before it was ready".into()),
            false => Ok(running),
        }
    }

    /// Stops it, and returns what it says of itself.
    fn finish(mut self) -> Result<Value> {
        drop(self.stdin.take());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        self.process.wait()?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only where a round failed before it was finished; an error means that it has ended.
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}

/// The child's side: says that it is ready, and relays until its standard input ends.
pub(super) fn relay(url: &str, kind: &str, address: &str, topic: &str, nudged: bool) -> Result<()> {
    let broker = server::open(BrokerKind::parse(kind)?, address, &Tuning::default())?;
    let runtime = relay::runtime()?;
    let store: Arc<dyn OutboxSource> =
        Arc::new(Counted::new(postrider_postgres::PostgresStore::new(url)?, nudged));
    let handle = relay::start_route(&runtime, store, broker, route(topic, "structured")?)?;
    println!("{}", json!("ready"));
    let before = cpu_seconds();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let spent = cpu_seconds() - before;
    let health = handle.health().borrow().clone();
    relay::stop(&runtime, handle);
    println!(
        "{}",
        json!({
            "cpu_seconds": spent,
            "peak_kib": peak_memory_kib(),
            "batches": health.batches,
            "fetches": health.fetches,
            "settlements": health.settlements,
        })
    );
    Ok(())
}
