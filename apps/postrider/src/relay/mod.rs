//! `postrider relay`: carries committed events from a store to its destinations.

mod agree;
pub(crate) mod aws;
pub(crate) mod brokers;
pub(crate) mod kafka;
pub(crate) mod nats;
pub(crate) mod own;
mod plan;
mod reconcile;
mod reload;
mod switch;
mod verdict;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use postrider_core::{Destination, Operator, OutboxSource};
use postrider_relay::{Relay, RelayHandle, Target as RunFor};

use crate::failure::{Exit, Failure};
use crate::logs::{self, LogFormat};
use crate::otel::Traces;
use crate::relay::plan::Plan;
use crate::relay::reload::Reloader;
use crate::serve::{self, Listening, Metrics, Served, View};
use crate::signals::Signals;
use crate::{duration, terminal};

/// Carry committed events from your database to their destinations
///
/// Runs until SIGTERM or SIGINT, then finishes what is under way, saves it,
/// and lets its lease go. A second SIGINT stops it at once; what was sent and
/// not saved is sent again by the next relay. SIGHUP reads the configuration
/// again: secrets, addresses, and times change, and nothing in flight is lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Destinations:
  stdout         one CloudEvent per line on standard output
  file://PATH    the same, appended to a file
  local://PATH   a durable queue in one file
  https://URL    webhooks, to one address; more with a configuration
  kafka://HOST:PORT[/TOPIC], nats://HOST:PORT[/SUBJECT]
                 a topic or subject for all events, or a template, like
                 shop.{aggregate_type}; without one it is {event_type}
  sqs://REGION[/QUEUE], sns://REGION[/TOPIC-ARN], eventbridge://REGION[/BUS]
                 the same on AWS

Examples:
  postrider relay --config postrider.toml
  postrider relay --store sqlite://shop.db --to stdout
  postrider relay --store sqlite://shop.db --to local://queue.db --once

Exit codes:
  0   it was stopped, or with --once: everything is settled
  1   it failed
  2   the command line is wrong
  3   with --once: events wait, are dead, or were not reached in time
  4   with --once: another relay holds the lease
  78  the configuration is wrong
  130 a second SIGINT stopped it at once")]
pub(crate) struct RelayArgs {
    /// The configuration; else $POSTRIDER_CONFIG
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// The database, like sqlite://shop.db; else $POSTRIDER_STORE
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where to, without a configuration of destinations
    ///
    /// Where the address says who we are: env:NAME, or file:PATH.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// With --to: the destination's name in the store
    #[arg(long = "as", value_name = "NAME", default_value = "default")]
    name: String,
    /// With --to https://…: call private, loopback, and link-local addresses too
    #[arg(long, requires = "to")]
    allow_private: bool,
    /// Deliver what is committed now, then stop
    #[arg(long)]
    once: bool,
    /// With --once: stop when nothing was settled for so long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    /// How long a crashed relay on another host delays its events [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lease: Option<Duration>,
    /// Serve metrics and health on this address, like 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", value_parser = serve::address)]
    listen: Option<SocketAddr>,
    /// How much is logged: error, warn, info, debug, trace; or by module
    #[arg(long, value_name = "LEVELS", env = "POSTRIDER_LOG", hide_env = true)]
    log: Option<String>,
    /// How a log line is written: text or json
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    log_format: Option<LogFormat>,
}

pub(crate) async fn run(args: RelayArgs) -> Result<Exit, Failure> {
    let mut plan = Plan::of(&args)?;
    logs::start(&plan.log, plan.log_format)?;
    plan.reloader.iter().for_each(Reloader::learn_ends);
    let traces = Traces::start(plan.otlp.as_deref())?;
    traces.wrap(&mut plan.destinations);
    let signals = Signals::catch_reload().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let (store, own) = own::source(plan.own.as_ref(), &plan.place).await?;
    let definitions: Vec<Destination> =
        plan.destinations.iter().map(|(definition, _)| definition.clone()).collect();
    agree::agree(&*store, &definitions, args.config.as_deref()).await?;
    let metrics = Arc::new(Metrics::of(serve::catalog::of_relay()));
    serve::messaging::wrap(&metrics, &mut plan.destinations);
    let handle = start(&mut plan, &store, &metrics, args.once).await?;
    // A connection of its own: whoever looks at the store does not keep the relay from reading.
    let opened = plan.place.open().await?;
    let _beside = own::beside(plan.own.as_ref(), &opened)?;
    let operator = opened.operator;
    let listening = listen(&plan, &handle, &operator, metrics).await?;
    let reconciling =
        tokio::spawn(reconcile::keep_reconciled(operator, handle.health(), plan.reconcile_every));
    let mut reloader = plan.reloader;
    let ended = watch::until_stopped(handle, signals, || match &mut reloader {
        Some(reloader) => reloader.reload(),
        None => terminal::note("there is no configuration to read again"),
    })
    .await;
    reconciling.abort();
    drop(listening);
    traces.stop().await;
    own::tell(own.as_ref()).await?;
    verdict::of(&ended, args.once, &plan.place)
}

async fn start(
    plan: &mut Plan,
    store: &Arc<dyn OutboxSource>,
    metrics: &Arc<Metrics>,
    once: bool,
) -> Result<RelayHandle, Failure> {
    let source = Arc::clone(store);
    let run_for = if once { RunFor::Once } else { RunFor::Forever };
    let mut relay = Relay::builder(source).settings(plan.settings).target(run_for).observer(Arc::<
        Metrics,
    >::clone(
        metrics,
    ));
    for (definition, broker) in std::mem::take(&mut plan.destinations) {
        relay = relay.destination(definition, broker);
    }
    if let Some(archive) = plan.archive.take() {
        relay = relay.archive(archive);
    }
    Ok(relay.start().await?)
}

/// Serves metrics and health, if that is wanted.
async fn listen(
    plan: &Plan,
    handle: &RelayHandle,
    operator: &Arc<dyn Operator>,
    metrics: Arc<Metrics>,
) -> Result<Option<Listening>, Failure> {
    let Some(address) = plan.listen else {
        return Ok(None);
    };
    let view =
        Arc::new(View::new(metrics, handle.health(), Arc::clone(operator), plan.ends.clone()));
    let served = Served { view, token: plan.token.clone() };
    let listening = serve::listen(address, served, "`[observe] listen`").await?;
    terminal::note(&format!("metrics and health on http://{}", listening.address()));
    Ok(Some(listening))
}
