//! The part of a relay: the engine that everybody uses, from the shop to the queue.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, Destination, Result};
use postrider_e2e::destination;
use postrider_local::{LocalBroker, LocalOptions};
use postrider_relay::{Ending, Health, Relay, Settings, Target};
use postrider_sqlite::SqliteStore;

use crate::args::Args;
use crate::asked::Asked;
use crate::halt::{AtPoints, Halt};
use crate::twice::Twice;
use crate::words::say;

pub(crate) async fn run(args: &Args, halt: Arc<Halt>, asked: Asked) -> Result<ExitCode> {
    let files = args.files()?;
    survive_file_limit();
    let source = Arc::new(SqliteStore::new(&files.shop)?);
    let options = LocalOptions {
        file_bytes_max: args.number("queue-bytes", LocalOptions::default().file_bytes_max)?,
        ..LocalOptions::default()
    };
    let mut broker: Arc<dyn Broker> = Arc::new(LocalBroker::open_with(&files.queue, options)?);
    if args.says("twice") {
        broker = Arc::new(Twice(broker));
    }
    play(source, destination()?, broker, args, halt, asked).await
}

/// Runs the engine until it is told to stop, or has nothing more to do.
pub(crate) async fn play(
    source: Arc<SqliteStore>,
    definition: Destination,
    broker: Arc<dyn Broker>,
    args: &Args,
    halt: Arc<Halt>,
    asked: Asked,
) -> Result<ExitCode> {
    let target = if args.says("once") { Target::Once } else { Target::Forever };
    let handle = Relay::builder(source)
        .destination(definition, broker)
        .settings(settings(args)?)
        .target(target)
        .observer(Arc::new(AtPoints(halt)))
        .start()
        .await?;
    say("ready");
    let mut health = handle.health();
    loop {
        tokio::select! {
            changed = health.changed() => match changed {
                Ok(()) => say(&describe(&health.borrow_and_update())),
                Err(_) => break,
            },
            () = asked.stopped() => { handle.drain(); break }
        }
    }
    let report = handle.stopped().await;
    say(&describe(&report.health));
    say(&format!("ended {:?}", report.ending));
    Ok(match report.ending {
        Some(Ending::Drained) => ExitCode::SUCCESS,
        Some(Ending::Done) if report.waiting.values().all(|counts| counts.total() == 0) => {
            ExitCode::SUCCESS
        }
        Some(Ending::Done) => ExitCode::from(3),
        _ => ExitCode::FAILURE,
    })
}

fn settings(args: &Args) -> Result<Settings> {
    let lease = args.millis("lease-ms", 1_000)?;
    let mut settings = Settings {
        heartbeat: args
            .millis("heartbeat-ms", u64::try_from(lease.as_millis()).unwrap_or(0) / 5)?,
        pause_max: Duration::from_millis(300),
        ..Settings::with_lease(lease)
    };
    settings.window.rows_max = args.number("window", settings.window.rows_max)?;
    Ok(settings)
}

fn describe(health: &Health) -> String {
    let blockers: Vec<String> = health.blockers.iter().map(ToString::to_string).collect();
    format!(
        "health {:?} partitions={} delivered={} window={} dead={} lost={} fenced={} | {}",
        health.state,
        health.partitions,
        health.delivered,
        health.window_rows,
        health.dead,
        health.leases_lost,
        health.fenced,
        blockers.join("; ")
    )
}

/// A file that may not grow must be an error to SQLite, not the end of the process.
#[cfg(target_os = "linux")]
fn survive_file_limit() {
    use tokio::signal::unix::{SignalKind, signal};
    const SIGXFSZ: i32 = 25;
    // Registered once, the handler stays for the life of the process.
    let _ = signal(SignalKind::from_raw(SIGXFSZ));
}

#[cfg(not(target_os = "linux"))]
fn survive_file_limit() {}
