//! `latency`: from the return of a commit to the broker's acknowledgement, at a steady rate, with nudges
//! and by polling alone.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{NewEvent, OutboxSource, Payload};
use postrider_postgres::{Nudger, Outbox};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::backlog::rewind;
use super::server::{Server, connect};
use crate::backlog::payload;
use crate::broker::{self, Witness};
use crate::counted::Counted;
use crate::measure::{Contender, now_nanos, percentile, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, relay};

/// Events a second, by so many connections.
pub(crate) const RATE: u64 = 1_000;
const PRODUCERS: u64 = 8;

const EVENTS: u64 = 10_000;
const ROUNDS: u32 = 3;

/// The first events of each round are not counted.
const WARM_UP_EVENTS: usize = 200;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    let spans = RefCell::new([Vec::new(), Vec::new()]);
    let number = RefCell::new(0u32);
    let journey = |which: usize, nudged: bool| -> Result<f64> {
        *number.borrow_mut() += 1;
        let path = server.beside(&format!("broker-{}.db", number.borrow()));
        let broker = broker::open(options.broker, &path)?;
        let (micros, per_s) = travel(&runtime, &server, broker, events, nudged)?;
        spans.borrow_mut()[which].extend(micros);
        Ok(per_s)
    };
    let mut contenders = [
        Contender::new("ours", || journey(0, true)),
        Contender::new("polling_alone", || journey(1, false)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [mut nudged, mut polled] = spans.into_inner();
    let milliseconds = |spans: &mut Vec<f64>| percentile(spans, 50.0) / 1_000.0;
    let (with, without) = (milliseconds(&mut nudged), milliseconds(&mut polled));
    Ok(Outcome::new("latency", options.broker.as_str(), events, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?)
        .add("events_per_s", RATE)
        .add(
            "latency_us",
            json!({ "ours": summary(&mut nudged), "polling_alone": summary(&mut polled) }),
        )
        .note("rates are the producers' pace and compare nothing; look at latency_us")
        .aim_at_most("p50 with nudges, ms", 5.0, with)
        .aim_at_most("p50 by polling alone, ms", 25.0, without))
}

fn travel(
    runtime: &Runtime,
    server: &Server,
    broker: Arc<dyn postrider_core::Broker>,
    events: u64,
    nudged: bool,
) -> Result<(Vec<f64>, f64)> {
    rewind(runtime, server)?;
    let truncate = server.sql(include_str!("../../sql/postgres/outbox_empty.sql"));
    server.batch(runtime, &truncate)?;
    let witness = Arc::new(Witness::new(broker, usize::try_from(events)?));
    let store: Arc<dyn OutboxSource> = Arc::new(Counted::new(server.store()?, nudged));
    let handle = relay::start_store(runtime, store, Arc::clone(&witness) as Arc<_>)?;
    let nudger =
        nudged.then(|| runtime.block_on(async { Nudger::new(&server.url()) })).transpose()?;
    let start = Instant::now();
    let committed = pace(runtime, server, events, nudger)?;
    let mut acknowledged = witness.acknowledged();
    runtime.block_on(async {
        let all = acknowledged.wait_for(|count| *count >= events);
        tokio::time::timeout(relay::PATIENCE, all).await??;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    let per_s = events as f64 / start.elapsed().as_secs_f64();
    relay::stop(runtime, handle);
    let pairs =
        committed.iter().zip(witness.arrivals()).skip(WARM_UP_EVENTS.min(committed.len() / 10));
    let micros = pairs.map(|(from, to)| to.saturating_sub(*from) as f64 / 1_000.0).collect();
    Ok((micros, per_s))
}

/// Commits so many events at [`RATE`], and says when each commit returned.
pub(crate) fn pace(
    runtime: &Runtime,
    server: &Server,
    events: u64,
    nudger: Option<Nudger>,
) -> Result<Vec<u64>> {
    let start = Instant::now();
    let mut tasks = Vec::new();
    for producer in 0..PRODUCERS {
        let (url, nudger) = (server.url(), nudger.clone());
        tasks.push(runtime.spawn(produce(url, producer, events, start, nudger)));
    }
    let mut committed = vec![0u64; usize::try_from(events)?];
    for task in tasks {
        for (number, at) in runtime.block_on(task)?? {
            committed[usize::try_from(number)?] = at;
        }
    }
    Ok(committed)
}

/// Commits every eighth event, each at its moment, and says when each commit returned.
async fn produce(
    url: String,
    producer: u64,
    events: u64,
    start: Instant,
    nudger: Option<Nudger>,
) -> Result<Vec<(u64, u64)>> {
    let mut client = connect(&url).await?;
    let outbox = Outbox::new();
    let mut committed = Vec::new();
    for number in (producer..events).step_by(usize::try_from(PRODUCERS)?) {
        let at = start + Duration::from_micros(number * 1_000_000 / RATE);
        // waits: until it is this event's turn, to keep the pace
        tokio::time::sleep_until(at.into()).await;
        let event = NewEvent::new("order", number.to_string(), "order.placed")
            .payload(Payload::json(payload(number))?, "application/json");
        let tx = client.transaction().await?;
        outbox.enqueue(&tx, &event).await?;
        tx.commit().await?;
        committed.push((number, now_nanos()));
        if let Some(nudger) = &nudger {
            nudger.committed();
        }
    }
    Ok(committed)
}

pub(crate) fn summary(micros: &mut [f64]) -> Value {
    json!({
        "events": micros.len(),
        "p50": rounded(percentile(micros, 50.0)),
        "p90": rounded(percentile(micros, 90.0)),
        "p99": rounded(percentile(micros, 99.0)),
        "max": rounded(percentile(micros, 100.0)),
    })
}
