//! `postrider relay`: carries committed events from a store to one destination.
//!
//! Invariant: the definition in the store wins. A relay whose own differs does not start.

mod verdict;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use postrider_core::{Code, Destination, OutboxSource};
use postrider_relay::{Relay, Settings, Target as RunFor};
use postrider_sqlite::SqliteStore;

use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::target::{self, Target};
use crate::{duration, store};

/// Carry committed events from your database to a broker
///
/// Runs until SIGTERM or SIGINT, then finishes what is under way, saves it,
/// and lets its lease go. A second SIGINT stops it at once; what was sent and
/// not saved is sent again by the next relay.
#[derive(Args, Debug)]
#[command(after_help = "\
Destinations:
  stdout         one CloudEvent per line on standard output
  file://PATH    the same, appended to a file
  local://PATH   a durable queue in one file

Exit codes:
  0   it was stopped, or with --once: everything is settled
  1   it failed
  2   the command line is wrong
  3   with --once: events wait, are dead, or were not reached in time
  4   with --once: another relay holds the lease
  78  the configuration is wrong
  130 a second SIGINT stopped it at once")]
pub(crate) struct RelayArgs {
    /// The database, like sqlite://shop.db
    #[arg(long, value_name = "URL")]
    store: String,
    /// Where to: stdout, file://PATH, or local://PATH
    #[arg(long, value_name = "URL")]
    to: String,
    /// The destination's name in the store
    #[arg(long = "as", value_name = "NAME", default_value = "default")]
    name: String,
    /// Deliver what is committed now, then stop
    #[arg(long)]
    once: bool,
    /// With --once: stop when nothing was settled for so long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    /// How long a crashed relay on another host delays its events
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration::parse)]
    lease: Duration,
}

pub(crate) async fn run(args: RelayArgs) -> Result<Exit, Failure> {
    let path = store::sqlite_path(&args.store)?;
    let target = Target::parse(&args.to)?;
    let definition = target::definition(&args.name)?;
    let settings = Settings { stall: args.timeout, ..Settings::with_lease(args.lease) };
    settings.check()?;
    let signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let source = open(&path).await?;
    let broker = target.open()?;
    agree(&*source, &definition).await?;
    let run_for = if args.once { RunFor::Once } else { RunFor::Forever };
    let handle = Relay::builder(source)
        .destination(definition, broker)
        .settings(settings)
        .target(run_for)
        .start()
        .await?;
    let ended = watch::until_stopped(handle, signals).await;
    verdict::of(&ended, args.once, &path)
}

/// Opens the store, and says at once what is wrong with it.
async fn open(path: &Path) -> Result<Arc<dyn OutboxSource>, Failure> {
    let source: Arc<dyn OutboxSource> = Arc::new(SqliteStore::new(path)?);
    source.open().await?;
    Ok(source)
}

/// Registers the definition in a store that has none, and else checks that it is the store's.
async fn agree(source: &dyn OutboxSource, definition: &Destination) -> Result<(), Failure> {
    source.register(std::slice::from_ref(definition)).await?;
    let stored = source.destinations().await?;
    let others: Vec<&str> = stored
        .rows
        .iter()
        .filter(|row| !row.definition.is_unrouted())
        .map(|row| row.definition.id.as_str())
        .collect();
    let name = definition.id.as_str();
    let found = stored.rows.iter().find(|row| row.definition.id == definition.id);
    let refuse = |message: String, advice: String| {
        Err(Failure::config(message).code(Code::DefinitionOutdated).advice(advice))
    };
    match found {
        Some(row) if row.definition == *definition => Ok(()),
        Some(row) => refuse(
            format!("the store defines destination `{name}` otherwise"),
            format!(
                "Its events wait, and nothing was started. The store has kind `{}`, version {}; \
                 --to stands for kind `{}`. Run the relay that has the store's definition, or \
                 choose another name with --as in a store of its own.",
                row.definition.kind, row.version, definition.kind
            ),
        ),
        None => refuse(
            format!("the store has no destination `{name}`"),
            format!(
                "Nothing was started. It has {}; start this relay with --as {}.",
                others.join(", "),
                others.first().copied().unwrap_or("NAME")
            ),
        ),
    }
}
