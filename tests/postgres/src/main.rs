//! One relay process for the tests: the engine that everybody uses, on a PostgreSQL store, with a broker that
//! writes down what arrives.
//!
//! `postgres-relay URL RECORD LEASE_MS [own] [once] [purge] [archive] [POINT:N]`: `own` reads the application's table `events`
//! instead of the outbox; with a point, the process kills itself there, the
//! N-th time it comes by, as the kernel does it when memory is short; one that purges deletes at once what may
//! go, and one that archives writes it down before, beside the record. Invariant: what is acknowledged stands in the record, in the order in which it arrived, with the time.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{
    Archive, BoxFuture, Broker, BrokerCapabilities, Destination, DestinationId, Error, ErrorKind,
    Event, OutboxSource, Outcome, Outgoing, Result, Route, Template, Timestamp,
};
use postrider_postgres::{Mapping, Options, OwnTable, PostgresStore};
use postrider_relay::{Ending, Observer, Point, Relay, Retention, Settings, Target};

/// Writes a line for each event: its id, and when it arrived by this process's clock, in microseconds.
struct Record(Mutex<File>);

impl Broker for Record {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut capabilities = BrokerCapabilities::least();
        capabilities.keeps_key_order = true;
        capabilities.durable = true;
        capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let now = Timestamp::now().as_micros();
            let lines: String =
                batch.iter().map(|one| format!("{} {now}\n", one.event.id)).collect();
            let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(lines.as_bytes()).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "publish").message("no record").source(error)
            })?;
            Ok(vec![Outcome::Acked; batch.len()])
        })
    }
}

/// Writes a line for each event that is about to be deleted: its id.
struct Kept(Mutex<File>);

impl Archive for Kept {
    fn append<'a>(&'a self, events: &'a [Arc<Event>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let lines: String = events.iter().map(|event| format!("{}\n", event.id)).collect();
            let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(lines.as_bytes()).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "archive").message("no archive").source(error)
            })
        })
    }
}

/// Kills the process at a point.
struct Killer {
    point: Point,
    nth: u64,
    seen: AtomicU64,
}

impl Observer for Killer {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if point == self.point && 1 + self.seen.fetch_add(1, Ordering::SeqCst) == self.nth {
                let own = std::process::id().to_string();
                _ = Command::new("kill").args(["-9", &own]).status();
                std::future::pending::<()>().await;
            }
        })
    }
}

fn killer(text: &str) -> Result<Killer> {
    let (point, nth) = text.split_once(':').unwrap_or((text, "1"));
    let nth = nth.parse().map_err(|_| config("a point is POINT:N"))?;
    Ok(Killer { point: point.parse()?, nth, seen: AtomicU64::new(0) })
}

fn config(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "start").message(message)
}

async fn run(args: &[String]) -> Result<ExitCode> {
    let [url, record, lease, others @ ..] = args else {
        return Err(config(
            "postgres-relay URL RECORD LEASE_MS [own] [once] [purge] [archive] [POINT:N]",
        ));
    };
    let file = File::options().append(true).create(true).open(record);
    let file = file.map_err(|_| config("the record cannot be opened"))?;
    let lease = Duration::from_millis(lease.parse().map_err(|_| config("a lease is a number"))?);
    let mut options = Options::default();
    options.statement_deadline = Duration::from_secs(3);
    let store: Arc<dyn OutboxSource> = match others.iter().any(|word| word == "own") {
        true => Arc::new(OwnTable::with(url, options, Mapping::published_at("events"))?),
        false => Arc::new(PostgresStore::with(url, options)?),
    };
    let topic: Template = "orders".parse()?;
    let definition = Destination::new(DestinationId::new("a")?, "record", vec![Route::all(topic)]);
    let soon = Duration::from_millis(300);
    let retention = Retention { every: soon, ..Retention::of(Duration::from_millis(1)) };
    let settings = Settings {
        pause_max: soon,
        retention: others.iter().any(|word| word == "purge").then_some(retention),
        ..Settings::with_lease(lease)
    };
    let once = others.iter().any(|word| word == "once");
    let mut relay = Relay::builder(store)
        .destination(definition, Arc::new(Record(Mutex::new(file))))
        .settings(settings)
        .target(if once { Target::Once } else { Target::Forever });
    if let Some(point) = others.iter().find(|word| word.contains(':')) {
        relay = relay.observer(Arc::new(killer(point)?));
    }
    if others.iter().any(|word| word == "archive") {
        let file = File::options().append(true).create(true).open(format!("{record}.archive"));
        let file = file.map_err(|_| config("the archive cannot be opened"))?;
        relay = relay.archive(Arc::new(Kept(Mutex::new(file))));
    }
    let report = relay.start().await?.stopped().await;
    Ok(match report.ending {
        Some(Ending::Done | Ending::Drained) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args).await.unwrap_or_else(|error| {
        _ = writeln!(std::io::stderr(), "{error}");
        ExitCode::from(2)
    })
}
