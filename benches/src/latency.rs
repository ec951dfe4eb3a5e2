//! `latency`: from the return of a commit to the arrival at the broker, and what an idle relay asks.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::backlog::application;
use crate::broker::{self, Witness};
use crate::measure::{Contender, percentile, take_turns};
use crate::options::Options;
use crate::outcome::{Outcome, rounded};
use crate::producer::{RATE, produce};
use crate::{Result, child, poll, progress, relay};

/// Events of one round: five seconds of them.
const EVENTS: u64 = 1_000;

/// The most events of one round: five minutes of them.
const EVENTS_MAX: u64 = 60_000;
const ROUNDS: u32 = 3;

/// The first events of each round are not counted: caches are cold, files are created.
const WARM_UP_EVENTS: usize = 50;

/// How long an idle relay is looked at, in seconds, unless the command line says otherwise.
const IDLE_SECONDS: u64 = 10;

/// How long a relay has to slow down before its idleness is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// When each event was committed, and when it arrived.
struct Journey {
    committed: Vec<u64>,
    arrived: Vec<u64>,
}

impl Journey {
    /// Events that arrived per second.
    fn per_s(&self) -> f64 {
        let first = self.committed.first().copied().unwrap_or_default();
        let last = self.arrived.iter().max().copied().unwrap_or_default();
        self.committed.len() as f64 * 1e9 / (last.saturating_sub(first).max(1)) as f64
    }

    /// Microseconds of each event after the warm-up. An event can arrive before its commit has
    /// returned to its producer: that is no time at all.
    fn micros(&self) -> Vec<f64> {
        let skip = WARM_UP_EVENTS.min(self.committed.len() / 10);
        let pairs = self.committed.iter().zip(&self.arrived).skip(skip);
        pairs.map(|(from, to)| to.saturating_sub(*from) as f64 / 1_000.0).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    if events > EVENTS_MAX {
        return Err(format!("`latency` takes {EVENTS_MAX} rows at most, at {RATE} a second").into());
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let spans = RefCell::new([Vec::new(), Vec::new(), Vec::new()]);
    let note = |which: usize, journey: Journey| -> Result<f64> {
        if journey.arrived.contains(&0) || journey.arrived.len() != journey.committed.len() {
            return Err("an event did not arrive".into());
        }
        spans.borrow_mut()[which].extend(journey.micros());
        Ok(journey.per_s())
    };
    let mut contenders = [
        Contender::new("ours", || note(0, relayed(&runtime, options, events, Origin::Here)?)),
        Contender::new("poll_20ms", || note(1, polled(events)?)),
        Contender::new("other_process", || {
            note(2, relayed(&runtime, options, events, Origin::OtherProcess)?)
        }),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [mut here, mut polling, mut elsewhere] = spans.into_inner();
    let idle = idle(&runtime, options)?;
    let outcome = Outcome::new("latency", options.broker.as_str(), events, rounds, &series[..2])
        .add("events_per_s", RATE)
        .add(
            "latency_ratios",
            json!({
                "p50": rounded(percentile(&mut here, 50.0) / percentile(&mut polling, 50.0).max(1.0)),
                "p99": rounded(percentile(&mut here, 99.0) / percentile(&mut polling, 99.0).max(1.0)),
            }),
        )
        .add(
            "latency_us",
            json!({
                "ours": summary(&mut here),
                "ours_other_process": summary(&mut elsewhere),
                "poll_20ms": summary(&mut polling),
            }),
        )
        .add("idle", idle)
        .note("rates are the producer's pace and compare nothing; look at latency_us")
        .note("latency counts from the return of the commit, over all rounds, without the first events");
    Ok(outcome)
}

/// Where the producer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// In the relay's process, on a connection of its own, with a nudge before each commit.
    Here,
    /// In another process, which knows nothing of the relay.
    OtherProcess,
}

/// A shop's database in a folder of its own.
fn shop() -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    application(&path, "FULL")?;
    Ok((folder, path))
}

fn witness(options: &Options, folder: &Path, events: u64) -> Result<Arc<Witness>> {
    let broker = broker::open(options.broker, &folder.join("broker.db"))?;
    Ok(Arc::new(Witness::new(broker, usize::try_from(events)?)))
}

fn relayed(runtime: &Runtime, options: &Options, events: u64, origin: Origin) -> Result<Journey> {
    let (folder, path) = shop()?;
    let witness = witness(options, folder.path(), events)?;
    let relay = relay::start(runtime, &path, Arc::clone(&witness) as Arc<_>)?;
    let committed: Vec<u64> = match origin {
        Origin::Here => produce(&path, events, || relay.nudge())?,
        Origin::OtherProcess => {
            let answer = child::ask(&["produce", &path.to_string_lossy(), &events.to_string()])?;
            serde_json::from_value(answer)?
        }
    };
    let mut acknowledged = witness.acknowledged();
    runtime.block_on(async {
        let all = acknowledged.wait_for(|count| *count >= events);
        tokio::time::timeout(relay::PATIENCE, all).await??;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    relay::stop(runtime, relay);
    Ok(Journey { committed, arrived: witness.arrivals() })
}

fn polled(events: u64) -> Result<Journey> {
    let (_folder, path) = shop()?;
    let wanted = usize::try_from(events)?;
    let longest = Duration::from_secs(events / RATE + 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| poll::watch(&path, wanted, longest));
        let committed = produce(&path, events, || {})?;
        let arrived = reader.join().map_err(|_| "the polling loop panicked")??;
        Ok(Journey { committed, arrived })
    })
}

/// What a relay asks the store while nothing happens.
fn idle(runtime: &Runtime, options: &Options) -> Result<Value> {
    let seconds = options.idle_seconds.unwrap_or(IDLE_SECONDS);
    progress(format_args!("idle for {seconds} s"));
    let (folder, path) = shop()?;
    let relay = relay::start(runtime, &path, witness(options, folder.path(), 0)?)?;
    let health = relay.health();
    // waits: for the relay to slow down, then for the time that is measured
    std::thread::sleep(SETTLE);
    let before = health.borrow().fetches;
    // waits: this is the time that is measured
    std::thread::sleep(Duration::from_secs(seconds));
    let after = health.borrow().fetches;
    relay::stop(runtime, relay);
    Ok(json!({
        "seconds": seconds,
        "fetches": after - before,
        "fetches_per_s": rounded((after - before) as f64 / seconds as f64),
    }))
}

fn summary(micros: &mut [f64]) -> Value {
    json!({
        "events": micros.len(),
        "p50": rounded(percentile(micros, 50.0)),
        "p90": rounded(percentile(micros, 90.0)),
        "p99": rounded(percentile(micros, 99.0)),
        "max": rounded(percentile(micros, 100.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_before_its_commit_returned_took_no_time() {
        let journey = Journey { committed: vec![1_000, 5_000], arrived: vec![3_000, 4_000] };
        assert_eq!(journey.micros(), [2.0, 0.0]);
    }
}
