//! `interval`: what the longest time between two polls costs: how long an event that comes into an idle outbox waits,
//! and what idleness costs the server, by one interval after the other. Nothing wakes the relay.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{NewEvent, OutboxSource, Payload};
use postrider_postgres::Outbox;
use postrider_relay::{Relay, Settings};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::backlog::rewind;
use super::idle::{SETTLE, look, settled_in};
use super::latency::summary;
use super::server::Server;
use crate::backlog::payload;
use crate::broker::{NoopBroker, Witness};
use crate::counted::Counted;
use crate::measure::{Series, cpu_seconds, now_nanos};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, progress, relay};

/// From a twentieth of the default ([`Settings::poll_max`]) to ten times as long.
const INTERVALS_MS: [u64; 6] = [25, 100, 250, 500, 1_000, 5_000];

/// Events of each interval: each has the relay slow down first, so they take most of the time.
const EVENTS: u64 = 40;
const IDLE_SECONDS: u64 = 20;

/// What a relay that polls at each interval costs.
struct Cost {
    transactions: f64,
    cpu: f64,
    micros: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    let seconds = options.idle_seconds.unwrap_or(IDLE_SECONDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    let alone = look(&runtime, &server, "nobody", seconds, SETTLE)?;
    let usual = Settings::default().poll_max;
    let (mut intervals, mut ours) = (Map::new(), 0.0);
    for interval in INTERVALS_MS.map(Duration::from_millis) {
        let mut cost = measure(&runtime, &server, interval, events, seconds)?;
        let transactions = (cost.transactions - alone).max(0.0);
        if interval == usual {
            ours = transactions;
        }
        let said: Value = json!({
            "idle_transactions_per_s": rounded(transactions),
            "idle_cpu_seconds_per_minute": rounded(cost.cpu),
            "latency_us": summary(&mut cost.micros),
        });
        intervals.insert(format!("{interval:?}"), said);
    }
    let series =
        [Series { name: "ours", rates: vec![ours] }, Series { name: "nobody", rates: vec![alone] }];
    Ok(Outcome::new("interval", "noop", events, 1, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?)
        .add("intervals", intervals)
        .note("rates are transactions of the idle server a second: ours at the default interval, without nobody's"))
}

fn measure(
    runtime: &Runtime,
    server: &Server,
    interval: Duration,
    events: u64,
    seconds: u64,
) -> Result<Cost> {
    rewind(runtime, server)?;
    server.batch(runtime, &server.sql(include_str!("../../sql/postgres/outbox_empty.sql")))?;
    let witness = Arc::new(Witness::new(Arc::new(NoopBroker), usize::try_from(events)?));
    let store: Arc<dyn OutboxSource> = Arc::new(Counted::new(server.store()?, false));
    let mut settings = Settings::default();
    settings.poll_max = interval;
    settings.poll_min = settings.poll_min.min(interval);
    // The server writes down what it counted some seconds later.
    let slowing = settled_in(interval).max(SETTLE);
    let (route, broker) = (relay::everywhere()?, Arc::clone(&witness) as Arc<_>);
    let builder = Relay::builder(store).destination(relay::destination("bench", route)?, broker);
    let handle = runtime.block_on(async {
        let relay = builder.settings(settings).start().await?;
        relay::ready(relay).await
    })?;
    let before = cpu_seconds();
    let transactions = look(runtime, server, &format!("{interval:?}"), seconds, slowing)?;
    let over = slowing + Duration::from_secs(seconds);
    let cpu = (cpu_seconds() - before) * 60.0 / over.as_secs_f64();
    progress(format_args!("{interval:?}: {events} events into an idle outbox"));
    let committed = runtime.block_on(sparse(server, &witness, interval, events))?;
    relay::stop(runtime, handle);
    let spans = committed.iter().zip(witness.arrivals());
    let micros = spans.map(|(from, to)| to.saturating_sub(*from) as f64 / 1_000.0).collect();
    Ok(Cost { transactions, cpu, micros })
}

/// Commits events one after the other, each into an outbox that has been idle for long, at all moments between two polls
/// alike; and says when each commit returned.
async fn sparse(
    server: &Server,
    witness: &Witness,
    interval: Duration,
    events: u64,
) -> Result<Vec<u64>> {
    /// The fractions of its multiples are spread evenly, however many there are.
    const GOLDEN: f64 = 0.618_033_988_75;
    let mut client = server.connect().await?;
    let (outbox, mut acknowledged) = (Outbox::new(), witness.acknowledged());
    let mut committed = Vec::new();
    for number in 0..events {
        let moment = interval.mul_f64((number as f64 * GOLDEN).fract());
        // waits: until the relay has slowed down, and then for this event's moment between two polls
        tokio::time::sleep(settled_in(interval) + moment).await;
        let event = NewEvent::new("order", number.to_string(), "order.placed")
            .payload(Payload::json(payload(number))?, "application/json");
        let tx = client.transaction().await?;
        outbox.enqueue(&tx, &event).await?;
        tx.commit().await?;
        committed.push(now_nanos());
        let arrived = acknowledged.wait_for(|count| *count > number);
        tokio::time::timeout(relay::PATIENCE, arrived).await??;
    }
    Ok(committed)
}
