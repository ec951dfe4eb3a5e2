//! `units`: what a thousand events cost in units and calls, and an idle minute beside many that were published,
//! against the design of the articles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use serde_json::json;
use tokio::runtime::Runtime;

use super::emulator::Emulator;
use super::meter::{Meter, Reading};
use super::ours::Ours;
use super::textbook::Textbook;
use super::{RUN, direct};
use crate::broker::{NoopBroker, Witness};
use crate::measure::{Series, ratio};
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
const LOOK: Duration = Duration::from_millis(20);

/// What was read of a contender.
#[derive(Debug, Default)]
struct Bill {
    /// While events came, in a table with nothing else.
    alone: Reading,
    /// While events came, beside what was published before.
    beside: Reading,
    /// While none came, beside it too.
    idle: Reading,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    let seconds = options.idle_seconds.unwrap_or(IDLE_SECONDS);
    let runtime = relay::runtime()?;
    progress(format_args!("the textbook: {events} events, twice"));
    let textbook = {
        let emulator = Emulator::start(&runtime)?;
        runtime.block_on(textbook(&emulator.url, events, seconds))?
    };
    progress(format_args!("ours: the same"));
    let ours = ours(&runtime, &Emulator::start(&runtime)?.url, events, seconds)?;
    Ok(describe(events, seconds, &textbook, &ours))
}

async fn textbook(server: &str, events: u64, seconds: u64) -> Result<Bill> {
    let meter = Meter::start(server).await?;
    let metered = direct(&meter.url)?;
    let (tables, streams) = (metered.tables().await.clone(), metered.streams().await.clone());
    let book = Arc::new(Textbook::create(tables, streams, RUN).await?);
    let mut bill = Bill::default();
    for retained in [0, RETAINED] {
        book.retain(direct(server)?.tables().await, retained).await?;
        let (stop, marked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        meter.take();
        let relay = {
            let (book, marked, stop) = (Arc::clone(&book), Arc::clone(&marked), Arc::clone(&stop));
            // A stream that is read all along is at its end where the relay begins anew.
            let from = match retained {
                0 => ShardIteratorType::TrimHorizon,
                _ => ShardIteratorType::Latest,
            };
            tokio::spawn(async move { book.relay(from, &marked, &stop).await })
        };
        paced(events, |number| book.order(retained + number)).await?;
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
            tokio::time::sleep(LOOK).await; // waits: its loops say nothing
        }
        let busy = meter.take();
        if retained == 0 {
            bill.alone = busy;
        } else {
            bill.beside = busy;
            tokio::time::sleep(Duration::from_secs(seconds)).await; // waits: this is what is measured
            bill.idle = meter.take();
        }
        stop.store(true, Ordering::Relaxed);
        relay.await??;
    }
    Ok(bill)
}

fn ours(runtime: &Runtime, server: &str, events: u64, seconds: u64) -> Result<Bill> {
    let meter = runtime.block_on(Meter::start(server))?;
    let tables = runtime.block_on(Ours::create(&meter.url, RUN))?;
    let past = tables.at(server)?;
    let mut bill = Bill::default();
    for retained in [0, RETAINED] {
        // While no relay runs: an emulator needs many minutes to tell a reader of the stream of so many items.
        runtime.block_on(async { tables.retain(past.tables().await, retained).await })?;
        let witness = Arc::new(Witness::new(Arc::new(NoopBroker), 0));
        let mut acknowledged = witness.acknowledged();
        meter.take();
        let handle = tables.relay(runtime, witness)?;
        let busy = runtime.block_on(async {
            paced(events, |number| tables.order(retained + number)).await?;
            tokio::time::timeout(PATIENCE, acknowledged.wait_for(|all| *all >= events)).await??;
            let deadline = Instant::now() + PATIENCE;
            while tables.pending(past.tables().await).await? > 0 {
                if Instant::now() > deadline {
                    return Err("what was published was not marked".into());
                }
                tokio::time::sleep(LOOK).await; // waits: nobody tells of marks
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(meter.take())
        })?;
        if retained == 0 {
            bill.alone = busy;
        } else {
            bill.beside = busy;
            bill.idle = runtime.block_on(async {
                tokio::time::sleep(Duration::from_secs(seconds)).await; // waits: this is what is measured
                meter.take()
            });
        }
        relay::stop(runtime, handle);
    }
    Ok(bill)
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
    let busy = |reading: &Reading| reading.units() * 1_000.0 / events as f64;
    let calls = |reading: &Reading| reading.all_calls() as f64 * 1_000.0 / events as f64;
    let idle = |bill: &Bill| bill.idle.units() * 60.0 / seconds as f64;
    let series = [
        Series { name: "ours", rates: vec![busy(&ours.beside)] },
        Series { name: "textbook", rates: vec![busy(&textbook.beside)] },
    ];
    let outcome = Outcome::new("units", "noop", events, 1, &series);
    let beside = outcome.ratio("textbook");
    let alone = ratio(busy(&ours.alone), busy(&textbook.alone));
    let idle_ratio = ratio(idle(ours), idle(textbook));
    let pair = |of: &dyn Fn(&Bill) -> f64| json!({ "ours": rounded(of(ours)), "textbook": rounded(of(textbook)) });
    outcome
        .add("alone", json!({ "ours": ours.alone, "textbook": textbook.alone }))
        .add("beside", json!({ "ours": ours.beside, "textbook": textbook.beside }))
        .add("idle", json!({ "ours": ours.idle, "textbook": textbook.idle }))
        .add("units_for_a_thousand_events_alone", pair(&|bill| busy(&bill.alone)))
        .add("units_in_an_idle_minute", pair(&idle))
        .add("calls_for_a_thousand_events_alone", pair(&|bill| calls(&bill.alone)))
        .add("calls_for_a_thousand_events", pair(&|bill| calls(&bill.beside)))
        .note("the figures are units for a thousand events, reads and writes together, not rates")
        .note(format!("{RATE} orders a second, alone in the table, and beside {RETAINED} published items"))
        .note("the emulator scans so slowly that the textbook's scans come less often than they should")
        .aim_at_most("units busy alone, ours / textbook", AIM_BUSY, alone)
        .aim_at_most("units busy beside what was published, ours / textbook", AIM_BUSY, beside)
        .aim_at_most("units idle, ours / textbook", AIM_IDLE, idle_ratio)
}
