//! One relay process for the tests: the engine that everybody uses, from a store to a real broker.
//!
//! `broker-relay STORE BROKER_URL LEASE_MS [once] [POINT:N]`: with a point, the process kills itself there, the
//! N-th time it comes by, as the kernel does it when memory is short.

use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::{
    BoxFuture, Broker, Destination, DestinationId, Error, ErrorKind, OutboxSource, Result, Route,
    Template,
};
use postrider_kafka::{KafkaBroker, KafkaSettings, Notices};
use postrider_nats::{NatsBroker, NatsSettings};
use postrider_postgres::{Options, PostgresStore};
use postrider_relay::{Ending, Observer, Point, Relay, Settings, Target};
use postrider_sqlite::SqliteStore;

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

fn broker(url: &str, deadline: Duration) -> Result<Arc<dyn Broker>> {
    match url.split_once("://") {
        Some(("nats", _)) => {
            let mut settings = NatsSettings::new(url);
            settings.deadline = deadline;
            Ok(Arc::new(NatsBroker::new(settings)?))
        }
        Some(("kafka", _)) => {
            let mut settings = KafkaSettings::new(url);
            settings.deadline = deadline;
            settings.notices = Notices::to(|notice| tracing::warn!("{notice}"));
            Ok(Arc::new(KafkaBroker::new(settings)?))
        }
        _ => Err(config("a broker's address begins with nats:// or kafka://")),
    }
}

/// A file of SQLite, or the address of a PostgreSQL database.
fn store(text: &str) -> Result<Arc<dyn OutboxSource>> {
    if !text.starts_with("postgres://") {
        return Ok(Arc::new(SqliteStore::new(text)?));
    }
    let mut options = Options::default();
    options.statement_deadline = Duration::from_secs(3);
    Ok(Arc::new(PostgresStore::with(text, options)?))
}

async fn run(args: &[String]) -> Result<ExitCode> {
    let [file, url, lease, others @ ..] = args else {
        return Err(config("broker-relay STORE BROKER_URL LEASE_MS [once] [POINT:N]"));
    };
    let lease = Duration::from_millis(lease.parse().map_err(|_| config("a lease is a number"))?);
    let settings = Settings::with_lease(lease);
    let topic: Template = "orders".parse()?;
    let definition = Destination::new(DestinationId::new("a")?, "broker", vec![Route::all(topic)]);
    let broker = broker(url, settings.publish_deadline / 2)?;
    let once = others.iter().any(|word| word == "once");
    let mut relay = Relay::builder(store(file)?)
        .destination(definition, broker)
        .settings(settings)
        .target(if once { Target::Once } else { Target::Forever });
    if let Some(point) = others.iter().find(|word| word.contains(':')) {
        relay = relay.observer(Arc::new(killer(point)?));
    }
    let report = relay.start().await?.stopped().await;
    Ok(match report.ending {
        Some(Ending::Done | Ending::Drained) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let told = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    told.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args).await.unwrap_or_else(|error| {
        _ = writeln!(std::io::stderr(), "{error}");
        ExitCode::from(2)
    })
}
