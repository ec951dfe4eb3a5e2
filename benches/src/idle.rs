//! `idle`: what a relay costs while nothing happens, against a process that sleeps and a loop that
//! asks twice a second.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Destination, DestinationId, Route, Template};
use postrider_relay::{Relay, State};
use postrider_sqlite::{SqliteStore, connect, init};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::broker::NoopBroker;
use crate::counted::Counted;
use crate::measure::{Contender, Series, cpu_seconds, median, take_turns, wake_ups};
use crate::options::{BrokerKind, Options};
use crate::outcome::{Outcome, rounded};
use crate::{Result, child, progress, relay, sql};

/// How long each contender is looked at, in seconds: several renewals of a lease.
const SECONDS: u64 = 20;
const ROUNDS: u32 = 1;

/// Queries a second that an idle relay may cost its database.
const AIM: f64 = 4.0;

/// How long a relay has to slow down before it is looked at.
const SETTLE: Duration = Duration::from_secs(2);

/// How long the textbook loop sleeps between two questions.
const TEXTBOOK_PAUSE: Duration = Duration::from_millis(500);

/// Contenders by the name that a child is given. `ours_no_wake` is ours on a store that cannot wake
/// it: the difference is what the watch on the database costs.
const CONTENDERS: [&str; 4] = ["ours", "textbook_poll_500ms", "ours_no_wake", "bare_process"];

/// What a child saw of itself.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Look {
    seconds: f64,
    /// Calls of the store by operation.
    calls: BTreeMap<String, u64>,
    cpu_seconds: f64,
    /// How often any of its threads stopped sleeping.
    wake_ups: u64,
}

impl Look {
    fn calls_per_s(&self) -> f64 {
        self.calls.values().sum::<u64>() as f64 / self.seconds
    }

    fn wake_ups_per_s(&self) -> f64 {
        self.wake_ups as f64 / self.seconds
    }

    fn cpu_seconds_per_minute(&self) -> f64 {
        self.cpu_seconds * 60.0 / self.seconds
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("`idle` delivers nothing: it takes no broker".into());
    }
    let seconds = options.idle_seconds.unwrap_or(SECONDS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let looks: [RefCell<Vec<Look>>; 4] = Default::default();
    let measure = |which: usize| {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("store.db");
        init(&path)?;
        progress(format_args!("{}: idle for {seconds} s", CONTENDERS[which]));
        let path = path.to_string_lossy();
        let answer = child::ask(&["idle", CONTENDERS[which], &path, &seconds.to_string()])?;
        let look: Look = serde_json::from_value(answer)?;
        let calls_per_s = look.calls_per_s();
        looks[which].borrow_mut().push(look);
        Ok(calls_per_s)
    };
    let mut contenders =
        [0, 1, 2, 3].map(|which| Contender::new(CONTENDERS[which], move || measure(which)));
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    Ok(describe(seconds, rounds, &series, &looks.map(RefCell::into_inner)))
}

fn describe(seconds: u64, rounds: u32, series: &[Series], looks: &[Vec<Look>; 4]) -> Outcome {
    let of = |which: usize, value: fn(&Look) -> f64| {
        median(&looks[which].iter().map(value).collect::<Vec<_>>())
    };
    let each = |value: fn(&Look) -> f64| -> Value {
        let named = CONTENDERS.iter().enumerate();
        named
            .map(|(which, name)| ((*name).to_owned(), rounded(of(which, value)).into()))
            .collect::<Map<_, _>>()
            .into()
    };
    let calls = of(0, Look::calls_per_s);
    let watching = (of(0, Look::wake_ups_per_s) - of(2, Look::wake_ups_per_s)).max(0.0);
    let last = looks[0].last();
    let by_operation = last.map(|look| json!(look.calls)).unwrap_or_default();
    Outcome::new("idle", "noop", seconds, rounds, &series[..2])
        .add("seconds", seconds)
        .add("calls", by_operation)
        .add("cpu_seconds_per_minute", each(Look::cpu_seconds_per_minute))
        .add("wake_ups_per_s", each(Look::wake_ups_per_s))
        .add("looks_of_the_watch_per_s", rounded(watching))
        .note("rates are calls of the store a second; `rows` are the seconds of one look")
        .note("looks of the watch: wake-ups a second, ours without those of ours_no_wake")
        .aim_at_most("calls of the store a second", AIM, calls)
        .aim_at_most("calls and looks of the watch a second", AIM, calls + watching)
}

/// The child's side.
pub(crate) fn look(name: &str, path: &Path, seconds: u64) -> Result<Value> {
    let time = Duration::from_secs(seconds);
    let look = match name {
        "ours" => relayed(path, time, true)?,
        "ours_no_wake" => relayed(path, time, false)?,
        "textbook_poll_500ms" => textbook(path, time)?,
        "bare_process" => relay::runtime()?.block_on(measured(time, BTreeMap::new)),
        other => return Err(format!("there is no contender `{other}`").into()),
    };
    Ok(serde_json::to_value(look)?)
}

fn relayed(path: &Path, time: Duration, wakes: bool) -> Result<Look> {
    let store = Arc::new(Counted::new(SqliteStore::new(path)?, wakes));
    let route = Route::all("orders".parse::<Template>()?);
    let destination = Destination::new(DestinationId::new("bench")?, "bench", vec![route]);
    relay::runtime()?.block_on(async {
        let source = Arc::clone(&store);
        let relay =
            Relay::builder(source).destination(destination, Arc::new(NoopBroker)).start().await?;
        let mut health = relay.health();
        let ready = health.wait_for(|health| health.state == State::Empty);
        tokio::time::timeout(relay::PATIENCE, ready).await??;
        tokio::time::sleep(SETTLE).await; // waits: for the relay to slow down
        let look = measured(time, || store.calls()).await;
        relay.drain();
        relay.stopped().await;
        Ok(look)
    })
}

fn textbook(path: &Path, time: Duration) -> Result<Look> {
    let connection = connect(path)?;
    connection.execute_batch(sql::TEXTBOOK_TABLE)?;
    let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    std::thread::spawn(move || -> rusqlite::Result<()> {
        let mut statement = connection.prepare(sql::TEXTBOOK_SELECT)?;
        loop {
            let mut rows = statement.query(())?;
            while rows.next()?.is_some() {}
            drop(rows);
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::thread::sleep(TEXTBOOK_PAUSE); // waits: this is what such a loop does
        }
    });
    let calls = || BTreeMap::from([("select", asked.load(std::sync::atomic::Ordering::Relaxed))]);
    Ok(relay::runtime()?.block_on(measured(time, calls)))
}

/// What this process does in a time.
async fn measured(time: Duration, calls: impl Fn() -> BTreeMap<&'static str, u64>) -> Look {
    let (before, cpu, woken) = (calls(), cpu_seconds(), wake_ups());
    tokio::time::sleep(time).await; // waits: this is the time that is measured
    let grown = |(name, count): (&'static str, u64)| {
        (name.to_owned(), count - before.get(name).copied().unwrap_or_default())
    };
    Look {
        seconds: time.as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        wake_ups: wake_ups().saturating_sub(woken),
        calls: calls().into_iter().map(grown).filter(|(_, count)| *count > 0).collect(),
    }
}
