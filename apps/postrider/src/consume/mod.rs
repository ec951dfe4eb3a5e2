//! `postrider consume`: the sidecar for handlers in any language.
//!
//! Receives from a broker, claims in an inbox, and hands each event to an HTTP endpoint, with a key
//! by which the endpoint can tell a repeated call from a new one.
//!
//! Invariant: an event is acknowledged after the inbox has recorded that the endpoint took it, or
//! after it became a dead letter, and at no other time.

mod endpoint;
mod examine;
mod gate;
mod guard;
mod join;
mod judge;
mod kafka;
mod metrics;
mod nats;
mod once;
mod plan;
mod purge;
mod reload;
mod request;
mod sidecar;
mod source;
mod sqs;
mod switch;
mod tries;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use postrider_core::inbox::Receiver;
use postrider_core::{Clock as _, RetryPolicy, Subscription};
use postrider_inbox::{BootClock, Consumer, ConsumerOptions};

use self::endpoint::Endpoint;
pub(crate) use self::examine::examine;
use self::gate::Gate;
use self::guard::Guard;
use self::once::Once;
use self::plan::Plan;
#[cfg(feature = "aws")]
pub(crate) use self::plan::choose;
use self::reload::Reloader;
use self::request::{Format, Writer};
use self::sidecar::{GATE_WAIT_MAX, Sidecar, Tally};
#[cfg(feature = "aws")]
pub(crate) use self::source::Source;
#[cfg(not(feature = "aws"))]
use self::source::Source;
use self::source::Wishes;
use self::switch::Switch;
use self::watch::{Limits, Watched};
use crate::failure::{Exit, Failure};
use crate::logs::{self, LogFormat};
use crate::otel::Traces;
use crate::serve::messaging::{MeteredReceiver, MeteredSubscription, Names};
use crate::serve::{Metrics, catalog};
use crate::signals::Signals;
use crate::{age, duration, store, terminal};

/// Hand events to an HTTP endpoint, each until it is done
///
/// A 2xx answer says done. 5xx, 403, 404, 408, 409, 410, 425, and 429 are tried
/// again, and count while the endpoint takes other events. Any other 4xx goes to
/// the broker's dead letters, but 401, 405, 407, 421, 426 and redirects are the
/// endpoint's: events wait, and no attempt counts.
///
/// Runs until SIGTERM or SIGINT, then takes nothing new, lets calls finish for
/// --drain, and gives back the rest. A second signal aborts the calls. SIGHUP
/// reads the configuration again: who we are for NATS and Kafka, and the headers
/// of calls, count from then on, and nothing in work is lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Each call carries `idempotency-key`, the same at every attempt: a handler that
remembers it acts once, whatever crashes. See docs/guide/sidecar.md.

Example:
  postrider consume --from local://queue.db/order.* --group billing \\
    --inbox sqlite://billing.db --to http://127.0.0.1:8000/events
  postrider consume --config postrider.toml --handler billing

Exit codes:
  0   it was stopped, or with --once: nothing is left
  1   it failed
  2   the command line is wrong
  3   with --once: events wait, or became dead letters
  78  the configuration is wrong
  130 a second signal aborted it")]
pub(crate) struct ConsumeArgs {
    /// The configuration; else $POSTRIDER_CONFIG. Flags come before it
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// The handler's name, part of the deduplication key [default: the group's]
    ///
    /// With a configuration: which of its tables [consume.NAME], unless it has
    /// only one.
    #[arg(long, value_name = "NAME")]
    handler: Option<String>,
    /// Where from: local://PATH/TOPIC, nats://HOST:PORT/STREAM/SUBJECT,
    /// kafka://HOST:PORT/TOPIC; or sqs://REGION/QUEUE
    ///
    /// In a topic, * stands for anything; in a subject for one word, and > for
    /// the rest. Where the address says who we are: env:NAME, or file:PATH.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// The subject, or topic, for dead letters, of NATS and Kafka [default:
    /// postrider.dead.GROUP]; the queue for them, of SQS
    #[arg(long, value_name = "NAME")]
    dead_letters: Option<String>,
    /// The consumer group at the broker; its instances share the work
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The database with the inbox, like sqlite://billing.db
    #[arg(long, value_name = "URL")]
    inbox: Option<String>,
    /// The endpoint, like http://127.0.0.1:8000/events
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// How long one call may take [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// How long a crashed sidecar delays what it had in work [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lease: Option<Duration>,
    /// Calls at once, of different keys [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: Option<u32>,
    /// Counted attempts, after which an event is a dead letter [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    attempts: Option<u32>,
    /// How events are written [default: structured]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// A header of every call, its value from the environment
    #[arg(long = "header", value_name = "NAME=env:VARIABLE")]
    headers: Vec<String>,
    /// Do what is there now, then stop
    #[arg(long)]
    once: bool,
    /// Begin again from the oldest message, though the inbox may not know what
    /// of it was done
    #[arg(long)]
    unguarded: bool,
    /// With --once: stop when nothing came for so long [default: 10s, and of
    /// Kafka a session more]
    #[arg(long, value_name = "TIME", requires = "once", value_parser = duration::parse)]
    idle: Option<Duration>,
    /// Serve metrics and health on this address, like 127.0.0.1:9465
    #[arg(long, value_name = "ADDRESS", value_parser = crate::serve::address)]
    listen: Option<SocketAddr>,
    /// How long calls may go on after a signal
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
    /// How long the inbox remembers what was done [default: 35d]
    #[arg(long, value_name = "TIME", value_parser = age::span)]
    retention: Option<Duration>,
    /// How long stored results stay [default: as long as the inbox remembers]
    #[arg(long, value_name = "TIME", value_parser = age::span)]
    result_retention: Option<Duration>,
    /// How much is logged: error, warn, info, debug, trace; or by module
    #[arg(long, value_name = "LEVELS", env = "POSTRIDER_LOG", hide_env = true)]
    log: Option<String>,
    /// How a log line is written: text or json
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    log_format: Option<LogFormat>,
}

pub(crate) async fn run(args: ConsumeArgs) -> Result<Exit, Failure> {
    let plan = Plan::of(&args)?;
    logs::start(&plan.log, plan.log_format)?;
    let traces = Traces::start(plan.otlp.as_deref())?;
    let source = Source::parse(&plan.from.0)?;
    let place = store::Place::read(&plan.inbox)?;
    let place = place.of_inbox(&plan.postgres, plan.inbox_reference.as_ref());
    let handler = plan.handler.clone();
    let concurrency = plan.concurrency;
    let endpoint = Arc::new(Endpoint::new(&plan.to, plan.timeout, concurrency)?);
    let options = options(&plan);
    purge::check_retention(plan.retention, &options.retry, plan.lease)?;
    purge::check_result_retention(plan.result_retention, plan.retention)?;
    let mut signals =
        Signals::catch_reload().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let horizon = purge::horizon(&options.retry, plan.lease);
    let (inbox, postgres) = place.open_inbox(plan.retention, horizon).await?;
    let relied_on = purge::relied_on(&place, plan.retention, horizon);
    inbox.record_horizon(&handler, relied_on).await?;
    let results = purge::Results::of(plan.result_retention, postgres, &place);
    let wishes = wishes(&args, &plan, options.deliveries_max);
    let mut reloader = Reloader::new(&args, &plan, source, wishes);
    let guard = Guard::new(&plan, &place, args.unguarded);
    let Some(subscription) = join::join(&mut reloader, &guard, &mut signals).await? else {
        return Ok(Exit::Success);
    };
    let switch = Switch::new(subscription);
    terminal::note(&format!(
        "receiving {} as group {}; handler {handler} is {}",
        reloader.source(),
        plan.group,
        endpoint.shown()
    ));
    let gate = Gate::new(BootClock.tick().0);
    let tally = Arc::new(Tally::default());
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let sidecar = Sidecar {
        writer: Writer { handler, format: plan.format, extra: plan.headers.clone() },
        endpoint: Arc::clone(&endpoint),
        gate: Arc::clone(&gate),
        store: Arc::clone(&inbox),
        lease: plan.lease,
        deliveries_max: options.deliveries_max,
        claims: Arc::default(),
        stopping,
        tally: Arc::clone(&tally),
    };
    let metrics = Arc::new(Metrics::of(catalog::of_sidecar()));
    let connection = Arc::<Switch>::clone(&switch);
    let counted = counted(&metrics, reloader.source(), connection, sidecar);
    let (subscription, receiver) = (traces.subscription(counted.0), traces.receiver(counted.1));
    let consumer = Consumer::builder(subscription).receiver(receiver).options(options).start()?;
    let house = (!place.forgets_by_itself())
        .then(|| tokio::spawn(purge::keep_house(inbox, plan.retention, results)));
    let endpoint = endpoint.shown();
    let watched = Arc::new(Watched { consumer, gate, tally, endpoint, stop, switch });
    let listening = metrics::listen(&plan, &watched, (metrics, reloader.ends())).await?;
    let idle = args.idle.unwrap_or_else(|| reloader.source().quiet(plan.kafka.as_ref()));
    let once = args.once.then(|| Once::new(idle, plan.timeout, Instant::now()));
    let limits = Limits { drain: args.drain, once };
    let exit = watch::until_stopped(&watched, signals, limits, &mut reloader).await;
    drop(listening);
    if let Some(house) = house {
        house.abort();
    }
    traces.stop().await;
    Ok(exit)
}

/// What is received from, and what hands it over, with counting around them.
fn counted(
    metrics: &Arc<Metrics>,
    source: &Source,
    subscription: Arc<dyn Subscription>,
    receiver: Sidecar,
) -> (Arc<dyn Subscription>, Arc<dyn Receiver>) {
    let names = Names::of(source.names());
    let subscription =
        MeteredSubscription { metrics: Arc::clone(metrics), names: names.clone(), subscription };
    let receiver = Arc::new(receiver);
    let receiver = MeteredReceiver { metrics: Arc::clone(metrics), names, receiver };
    (Arc::new(subscription), Arc::new(receiver))
}

/// How to receive, where the engine gives up after so many deliveries.
fn wishes(args: &ConsumeArgs, plan: &Plan, deliveries_max: u32) -> Wishes {
    Wishes {
        group: plan.group.clone(),
        handler: Some(plan.handler.to_string()),
        visibility: source::visibility(plan.lease),
        deliveries_max: deliveries_max.saturating_mul(2),
        dead_letters: args.dead_letters.clone(),
        nats: plan.nats.clone(),
        kafka: plan.kafka.clone(),
        sqs: plan.sqs.clone(),
        secrets: plan.secrets_of_source(),
    }
}

/// The engine's limits for these flags.
fn options(plan: &Plan) -> ConsumerOptions {
    let concurrency = plan.concurrency;
    let retry = RetryPolicy { attempts_max: plan.attempts, ..RetryPolicy::default() };
    let usual = ConsumerOptions::default();
    ConsumerOptions {
        in_flight_max: concurrency,
        // One more round: what waits here is with no other sidecar of the group.
        prefetch_max: concurrency,
        receive_max: concurrency.min(usual.receive_max),
        retry,
        // Deliveries that ended without a verdict are crashes: as many again as attempts.
        deliveries_max: plan.attempts.saturating_mul(2).max(usual.deliveries_max),
        // The call has its own limit; what comes on top is waiting for gate and inbox.
        handler_time_max: GATE_WAIT_MAX + plan.timeout + plan.lease * 3,
        ..usual
    }
}
