//! `units`: what a thousand events cost in units and calls, and an idle minute beside many that were published,
//! against the design of the articles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;

use super::meter::{Meter, Reading};
use super::ours::Ours;
use super::textbook::Textbook;
use super::{direct, drop_tables, run_name, server};
use crate::broker::{NoopBroker, Witness};
use crate::measure::Series;
use crate::options::Options;
use crate::outcome::{Outcome, rounded};
use crate::{Result, progress, relay};

const EVENTS: u64 = 1_000;
/// Published items that stand in the table while nothing happens.
const RETAINED: u64 = 100_000;
/// Orders a second while it is busy.
const RATE: f64 = 100.0;
/// How long an idle relay is looked at, in seconds: several scans, and a backstop.
const IDLE_SECONDS: u64 = 60;
/// Of the textbook's, ours at most.
const AIM_BUSY: f64 = 1.0;
const AIM_IDLE: f64 = 0.1;
const PATIENCE: Duration = Duration::from_secs(120);

/// What was read while it was busy, and while it was idle.
#[derive(Debug, Default)]
struct Bill {
    busy: Reading,
    idle: Reading,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    let seconds = options.idle_seconds.unwrap_or(IDLE_SECONDS);
    let runtime = relay::runtime()?;
    let server = server()?;
    let name = run_name();
    let bills = bill(&runtime, &server, &name, events, seconds);
    let cleaned =
        runtime.block_on(async { drop_tables(direct(&server)?.tables().await, &name).await });
    let (textbook, ours) = bills?;
    cleaned?;
    Ok(describe(events, seconds, &textbook, &ours))
}

fn bill(
    runtime: &Runtime,
    server: &str,
    name: &str,
    events: u64,
    seconds: u64,
) -> Result<(Bill, Bill)> {
    let meter = runtime.block_on(Meter::start(server))?;
    progress(format_args!("the textbook: {events} events, then {RETAINED} that were published"));
    let textbook = runtime.block_on(textbook(&meter, server, name, events, seconds))?;
    progress(format_args!("ours: the same"));
    let ours = ours(runtime, &meter, server, name, events, seconds)?;
    Ok((textbook, ours))
}

async fn textbook(
    meter: &Meter,
    server: &str,
    name: &str,
    events: u64,
    seconds: u64,
) -> Result<Bill> {
    let metered = direct(&meter.url)?;
    let (tables, streams) = (metered.tables().await.clone(), metered.streams().await.clone());
    let book = Arc::new(Textbook::create(tables, streams, name).await?);
    let marked = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    meter.take();
    let relay = {
        let (book, marked, stop) = (Arc::clone(&book), Arc::clone(&marked), Arc::clone(&stop));
        tokio::spawn(async move { book.relay(marked, stop).await })
    };
    paced(events, |number| book.order(number)).await?;
    let deadline = Instant::now() + PATIENCE;
    while marked.load(Ordering::Relaxed) < events {
        if relay.is_finished() {
            relay.await??;
            return Err("the textbook's relay ended".into());
        }
        if Instant::now() > deadline {
            let marked = marked.load(Ordering::Relaxed);
            return Err(format!("the textbook marked {marked} of {events} events").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // waits: its loops say nothing
    }
    let busy = meter.take();
    book.retain(direct(server)?.tables().await, RETAINED).await?;
    meter.take();
    tokio::time::sleep(Duration::from_secs(seconds)).await; // waits: this is what is measured
    let idle = meter.take();
    stop.store(true, Ordering::Relaxed);
    relay.await??;
    Ok(Bill { busy, idle })
}

fn ours(
    runtime: &Runtime,
    meter: &Meter,
    server: &str,
    name: &str,
    events: u64,
    seconds: u64,
) -> Result<Bill> {
    let tables = runtime.block_on(Ours::create(&meter.url, name))?;
    // Before its relay begins, also of the busy part: what was published costs it nothing, and an emulator needs many
    // minutes to tell a reader of the stream of so many items.
    runtime.block_on(async { tables.retain(tables.at(server)?.tables().await, RETAINED).await })?;
    let witness = Arc::new(Witness::new(Arc::new(NoopBroker), 0));
    let mut acknowledged = witness.acknowledged();
    let handle = tables.relay(runtime, witness)?;
    meter.take();
    let health = handle.health();
    let busy = runtime.block_on(async {
        paced(events, |number| tables.order(number)).await?;
        tokio::time::timeout(PATIENCE, acknowledged.wait_for(|all| *all >= events)).await??;
        let mut health = health.clone();
        let settled = health.wait_for(|health| health.state == postrider_relay::State::Empty);
        tokio::time::timeout(PATIENCE, settled).await??;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(meter.take())
    })?;
    let idle = runtime.block_on(async {
        tokio::time::sleep(Duration::from_secs(seconds)).await; // waits: this is what is measured
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(meter.take())
    })?;
    relay::stop(runtime, handle);
    Ok(Bill { busy, idle })
}

/// Places orders at the rate, one after the other.
async fn paced<F: Future<Output = Result<()>>>(
    events: u64,
    order: impl Fn(u64) -> F,
) -> Result<()> {
    let began = tokio::time::Instant::now();
    for number in 0..events {
        tokio::time::sleep_until(began + Duration::from_secs_f64(number as f64 / RATE)).await; // waits: the rate
        order(number).await?;
    }
    Ok(())
}

fn describe(events: u64, seconds: u64, textbook: &Bill, ours: &Bill) -> Outcome {
    let busy = |bill: &Bill| bill.busy.units() * 1_000.0 / events as f64;
    let idle = |bill: &Bill| bill.idle.units() * 60.0 / seconds as f64;
    let series = [
        Series { name: "ours", rates: vec![busy(ours)] },
        Series { name: "textbook", rates: vec![busy(textbook)] },
    ];
    let idle_ratio = idle(ours) / idle(textbook).max(f64::MIN_POSITIVE);
    let outcome = Outcome::new("units", "noop", events, 1, &series);
    let busy_ratio = outcome.ratio("textbook");
    outcome
        .add("busy", json!({ "ours": ours.busy, "textbook": textbook.busy }))
        .add("idle", json!({ "ours": ours.idle, "textbook": textbook.idle }))
        .add(
            "units_in_an_idle_minute",
            json!({ "ours": rounded(idle(ours)), "textbook": rounded(idle(textbook)) }),
        )
        .add(
            "calls_for_a_thousand_events",
            json!({
                "ours": rounded(ours.busy.all_calls() as f64 * 1_000.0 / events as f64),
                "textbook": rounded(textbook.busy.all_calls() as f64 * 1_000.0 / events as f64),
            }),
        )
        .note("the figures are units for a thousand events, reads and writes together, not rates")
        .note(format!("{RATE} orders a second; idle beside {RETAINED} published items"))
        .aim_at_most("units busy, ours / textbook", AIM_BUSY, busy_ratio)
        .aim_at_most("units idle, ours / textbook", AIM_IDLE, idle_ratio)
}
