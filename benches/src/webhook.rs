//! `webhook`: deliveries over HTTP through the whole path, against the bare HTTP client.
//!
//! Ours opens the store, takes the lease, reads, orders by key, writes each event as JSON, signs it,
//! posts it, and records what was acknowledged. The baseline posts.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use postrider_core::{Broker, Destination, DestinationId, NewEvent, Route, Template};
use postrider_relay::{Health, Relay};
use postrider_sqlite::SqliteStore;
use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::backlog::{self, Backlog};
use crate::bare_client::{self, Prepared};
use crate::broker::OneByOne;
use crate::measure::{Contender, Series, cpu_seconds, median, rate, ratio, take_turns};
use crate::options::{BrokerKind, Options};
use crate::outcome::{Outcome, rounded};
use crate::receiver::Receiver;
use crate::{Result, child, progress, relay};

const ROWS: u64 = 20_000;
const ROUNDS: u32 = 5;

/// Requests under way at once.
const CONNECTIONS: usize = 64;

/// Endpoints of the second variant.
const ENDPOINTS: u64 = 64;

const AIM: f64 = 0.7;

/// Who delivers, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// All to one endpoint.
    One,
    /// By tenant, to endpoints on hosts (ports) of their own.
    Hosts,
    /// By tenant, to endpoints of one host, each with a path of its own.
    Paths,
}

/// What a child found in one round.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Round {
    per_s: f64,
    /// Processor time of whoever sends, in microseconds a delivery.
    client_us: f64,
    /// And of the receiver.
    receiver_us: f64,
    connections: u64,
    /// What the relay says of itself; zero of the baseline.
    settlements: u64,
    rows_read: u64,
}

/// Contenders by the name that a child is given.
const CONTENDERS: [&str; 6] = [
    "ours",
    "bare_client",
    "ours_64_hosts",
    "bare_client_64_hosts",
    "ours_64_paths",
    "ours_without_http",
];

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("`webhook` has a broker of its own: it takes none".into());
    }
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    progress(format_args!("building two backlogs of {rows} rows"));
    // A store keeps the destination that it began with, so each has its own.
    let (to_one, by_tenant) = (Backlog::build_of(rows, event)?, Backlog::build_of(rows, event)?);
    let found: [RefCell<Vec<Round>>; 6] = Default::default();
    let measure = |which: usize| {
        let name = CONTENDERS[which];
        let backlog =
            if matches!(name, "ours" | "ours_without_http") { &to_one } else { &by_tenant };
        backlog.rewind()?;
        let path = backlog.path();
        let answer = child::ask(&["webhook", name, &path.to_string_lossy(), &rows.to_string()])?;
        let round: Round = serde_json::from_value(answer)?;
        let per_s = round.per_s;
        found[which].borrow_mut().push(round);
        Ok(per_s)
    };
    let mut contenders =
        [0, 1, 2, 3, 4, 5].map(|which| Contender::new(CONTENDERS[which], move || measure(which)));
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    Ok(describe(rows, rounds, &series, &found.map(RefCell::into_inner)))
}

fn describe(rows: u64, rounds: u32, series: &[Series], found: &[Vec<Round>; 6]) -> Outcome {
    let of = |which: usize, value: fn(&Round) -> f64| {
        median(&found[which].iter().map(value).collect::<Vec<_>>())
    };
    let per_delivery = |which: usize| {
        json!({
            "client": rounded(of(which, |round| round.client_us)),
            "receiver": rounded(of(which, |round| round.receiver_us)),
            "connections": of(which, |round| round.connections as f64),
        })
    };
    let cost: Map<String, Value> = CONTENDERS
        .iter()
        .enumerate()
        .map(|(which, name)| ((*name).to_owned(), per_delivery(which)))
        .collect();
    let whole = |which| of(which, |round| round.client_us + round.receiver_us);
    let outcome = Outcome::new("webhook", "webhook", rows, rounds, &series[..2]);
    let one = outcome.ratio("bare_client");
    let hosts = ratio(series[2].median(), series[3].median());
    outcome
        .add("in_flight", CONNECTIONS as u64)
        .add("payload_bytes", backlog::PAYLOAD_BYTES as u64)
        .add(
            "endpoints_64",
            json!({
                "hosts_per_s": rounded(series[2].median()),
                "bare_client_per_s": rounded(series[3].median()),
                "hosts_ratio": rounded(hosts),
                "hosts_ratio_range": series[2].ratio_range(&series[3]).map(rounded),
                "paths_per_s": rounded(series[4].median()),
                "paths_ratio": rounded(ratio(series[4].median(), series[1].median())),
                "paths_ratio_range": series[4].ratio_range(&series[1]).map(rounded),
            }),
        )
        .add("cpu_us_per_delivery", Value::Object(cost))
        .add("cpu_ratio", rounded(ratio(whole(1), whole(0))))
        .add("cpu_ratio_64_hosts", rounded(ratio(whole(3), whole(2))))
        .add("settlements", of(0, |round| round.settlements as f64))
        .add("rows_read", of(0, |round| round.rows_read as f64))
        .add("without_http_per_s", rounded(series[5].median()))
        .note("the baseline has no store, no order, no JSON to write, no signature, no deadline")
        .note("cpu_ratio is of the processor time a delivery, client and receiver together")
        .aim_at_least("ours / bare_client, one endpoint", AIM, one)
        .aim_at_least("ours / bare_client, 64 endpoints", AIM, hosts)
}

/// The child's side: one round of a contender.
pub(crate) fn round(name: &str, path: &Path, rows: u64) -> Result<Value> {
    let runtime = relay::runtime()?;
    let round = match name {
        "ours" => deliver(&runtime, path, rows, Variant::One)?,
        "ours_64_hosts" => deliver(&runtime, path, rows, Variant::Hosts)?,
        "ours_without_http" => deliver_nowhere(&runtime, path, rows)?,
        "ours_64_paths" => deliver(&runtime, path, rows, Variant::Paths)?,
        "bare_client" => post(&runtime, rows, Variant::One)?,
        "bare_client_64_hosts" => post(&runtime, rows, Variant::Hosts)?,
        other => return Err(format!("there is no contender `{other}`").into()),
    };
    Ok(serde_json::to_value(round)?)
}

/// The event of a number: as everywhere, and of one of the tenants.
pub(crate) fn event(number: u64) -> Result<NewEvent> {
    Ok(backlog::event(number)?.tenant(&format!("partner-{}", number % ENDPOINTS)))
}

/// The URLs that the tenants are called at, in their order; one for all.
fn urls(variant: Variant, receiver: &Receiver) -> Vec<String> {
    let first = &receiver.addresses[0];
    match variant {
        Variant::One => vec![format!("http://{first}/hook")],
        Variant::Hosts => {
            receiver.addresses.iter().map(|address| format!("http://{address}/hook")).collect()
        }
        Variant::Paths => (0..ENDPOINTS).map(|n| format!("http://{first}/hook/{n}")).collect(),
    }
}

fn receiver(variant: Variant) -> Result<Receiver> {
    Receiver::start(if variant == Variant::Hosts { ENDPOINTS as usize } else { 1 })
}

/// The baseline's round.
fn post(runtime: &Runtime, rows: u64, variant: Variant) -> Result<Round> {
    let prepared = Arc::new(Prepared::new(rows)?);
    let receiver = receiver(variant)?;
    let before = cpu_seconds();
    let per_s = bare_client::post(runtime, &prepared, &urls(variant, &receiver), CONNECTIONS)?;
    finish(receiver, rows, cpu_seconds() - before, Round { per_s, ..Round::default() })
}

/// Our round: from opening the store to letting the lease go.
fn deliver(runtime: &Runtime, path: &Path, rows: u64, variant: Variant) -> Result<Round> {
    let receiver = receiver(variant)?;
    let urls = urls(variant, &receiver);
    let (before, start) = (cpu_seconds(), Instant::now());
    let broker: Arc<dyn Broker> = Arc::new(broker(variant, &urls)?);
    let health = run_through(runtime, path, rows, variant, broker)?;
    let round = Round::of(rate(rows, start), &health);
    finish(receiver, rows, cpu_seconds() - before, round)
}

/// The same without a request: what the engine and the store cost when events go one by one.
fn deliver_nowhere(runtime: &Runtime, path: &Path, rows: u64) -> Result<Round> {
    let (before, start) = (cpu_seconds(), Instant::now());
    let broker = Arc::new(OneByOne(CONNECTIONS as u32));
    let health = run_through(runtime, path, rows, Variant::One, broker)?;
    let round = Round::of(rate(rows, start), &health);
    Ok(Round { client_us: (cpu_seconds() - before) * 1e6 / rows as f64, ..round })
}

/// Delivers everything with a relay as production has it, and stops it.
fn run_through(
    runtime: &Runtime,
    path: &Path,
    rows: u64,
    variant: Variant,
    broker: Arc<dyn Broker>,
) -> Result<Health> {
    let health = runtime.block_on(async {
        let relay = Relay::builder(Arc::new(SqliteStore::new(path)?))
            .destination(destination(variant)?, broker)
            .start()
            .await?;
        let mut health = relay.health();
        let all = health.wait_for(|health| health.delivered >= rows);
        tokio::time::timeout(relay::PATIENCE, all).await??;
        relay.drain();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(relay.stopped().await.health)
    })?;
    if health.delivered != rows || health.dead > 0 || health.window_rows > 0 {
        return Err(format!("not everything was delivered and saved: {health:?}").into());
    }
    Ok(health)
}

impl Round {
    fn of(per_s: f64, health: &Health) -> Round {
        let (settlements, rows_read) = (health.settlements, health.rows_read);
        Round { per_s, settlements, rows_read, ..Round::default() }
    }
}

/// Stops the receiver, and checks that it saw each event once.
fn finish(receiver: Receiver, rows: u64, client_seconds: f64, round: Round) -> Result<Round> {
    let received = receiver.finish()?;
    if received.requests != rows || received.signed != rows {
        return Err(format!("the receiver got {received:?}, not {rows} requests").into());
    }
    Ok(Round {
        client_us: client_seconds * 1e6 / rows as f64,
        receiver_us: received.cpu_seconds * 1e6 / rows as f64,
        connections: received.connections,
        ..round
    })
}

fn broker(variant: Variant, urls: &[String]) -> Result<WebhookBroker> {
    let mut settings = WebhookSettings {
        allow_private: true,
        connections: CONNECTIONS as u32,
        ..WebhookSettings::default()
    };
    if variant == Variant::One {
        settings.connections_per_endpoint = CONNECTIONS as u32;
    }
    for (number, url) in urls.iter().enumerate() {
        let endpoint = Endpoint::new(url).key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?);
        settings = settings.endpoint(&format!("partner-{number}"), endpoint);
    }
    Ok(WebhookBroker::new(&settings)?)
}

fn destination(variant: Variant) -> Result<Destination> {
    let (id, topic) = match variant {
        Variant::One => ("one", "partner-0"),
        Variant::Hosts | Variant::Paths => ("by-tenant", "{tenant}"),
    };
    let routes = vec![Route::all(topic.parse::<Template>()?)];
    Ok(Destination::new(DestinationId::new(id)?, "webhook", routes))
}
