//! `postrider status`: what flows, what waits, and who holds it up, on one screen.

mod backlog;
mod held;
mod screen;

use std::collections::HashSet;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use postrider_core::DestinationId;
use postrider_core::operate::{Filter, Overview, PageRequest, Status as Word};

use crate::crowd::{Crowd, crowds};
use crate::duration;
use crate::failure::{Exit, Failure};
use crate::global::{Global, Store};
use crate::output::{self, Format};
use crate::shape::{Backlog, Destination, Partition, Relay, Status, Verdict};
use crate::signals::Signals;
pub(crate) use crate::status::held::start_relay;
use crate::status::held::{DeadKeys, Limits, Seen};

/// Events of a backlog that are counted by route: a reading of a few milliseconds.
const BACKLOG_MAX: u64 = 10_000;

/// Dead letters whose keys are counted.
const DEAD_MAX: u32 = 1_000;

/// Show what flows, what waits, and who holds it up
///
/// Two readings, a second apart, give the rates. Where a backlog does not move
/// it says who holds it up and what to do.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider status --store sqlite://shop.db
  postrider status --watch
  postrider status --rate 0 --output json | jq .destinations
  postrider status --strict --max-age 1m || page-somebody

Exit codes:
  0  healthy: everything flows, or there is nothing to do
  1  the store could not be read
  6  unhealthy: something is held up")]
pub(crate) struct StatusArgs {
    /// Redraw every so many seconds
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    watch: Option<u64>,
    /// The time between the two readings; 0 reads once, without rates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_or_zero)]
    rate: Duration,
    /// Unhealthy if a pending event is older and nothing moves
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    max_age: Duration,
    /// Warnings count as unhealthy: a dead letter, a relay that is missing
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: StatusArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let limits = Limits { age_max: args.max_age, strict: args.strict };
    match args.watch {
        Some(seconds) => watch(&args, &store, limits, Duration::from_secs(seconds)).await,
        None => {
            let status = twice(&store, limits, args.rate).await?;
            args.global.out().one(&status, || screen::draw(&status, output::stdout_width()))?;
            Ok(exit(&status))
        }
    }
}

fn exit(status: &Status) -> Exit {
    match status.verdict {
        Verdict::Healthy => Exit::Success,
        Verdict::Unhealthy => Exit::Unhealthy,
    }
}

async fn twice(store: &Store, limits: Limits, rate: Duration) -> Result<Status, Failure> {
    if rate.is_zero() {
        return reading(store, limits, None).await.map(|(status, _)| status);
    }
    let before = store.operator.overview().await?;
    tokio::time::sleep(rate).await; // waits: a rate needs two readings
    reading(store, limits, Some(&before)).await.map(|(status, _)| status)
}

async fn watch(
    args: &StatusArgs,
    store: &Store,
    limits: Limits,
    every: Duration,
) -> Result<Exit, Failure> {
    let table = args.global.output == Format::Table;
    if table && !io::stdout().is_terminal() {
        return Err(Failure::plain("--watch redraws a terminal, and there is none")
            .advice("Add --output ndjson: one document per line.")
            .exit_as(Exit::Usage));
    }
    let mut signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let mut ticks = tokio::time::interval(every);
    let mut before = None;
    let mut last = Exit::Success;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = signals.next() => return Ok(last),
        }
        match reading(store, limits, before.as_ref()).await {
            Ok((status, overview)) => {
                last = exit(&status);
                show(table, &status)?;
                before = Some(overview);
            }
            // A store that is locked for a moment is read again at the next tick.
            Err(failure) if failure.is_transient() => {
                output::write(if table { "the store is busy\n" } else { "" })?;
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn show(table: bool, status: &Status) -> Result<(), Failure> {
    if table {
        // Home, the screen, and to the end of each line: what stood there before goes.
        let text = screen::draw(status, output::stdout_width()).replace('\n', "\x1b[K\n");
        return output::write(&format!("\x1b[H{text}\x1b[J"));
    }
    output::Out::new(Format::Ndjson).one(status, String::new)
}

/// Reads everything once.
async fn reading(
    store: &Store,
    limits: Limits,
    before: Option<&Overview>,
) -> Result<(Status, Overview), Failure> {
    let mut overview = store.operator.overview().await?;
    let backlog = backlog_of(store, &mut overview).await?;
    let mut seen = Vec::new();
    for view in &overview.destinations {
        let dead_keys = match view.waiting.dead {
            0 => DeadKeys::default(),
            _ => dead_keys(store, &view.id).await?,
        };
        let then = before.and_then(|o| o.destinations.iter().find(|then| then.id == view.id));
        seen.push(Seen { view, moved: held::moved(overview.now, view, then), dead_keys });
    }
    let mut blockers = held::held_up_by(&overview, &seen, limits, store.config.as_deref());
    let crowds = crowds(&*store.operator, &overview, store.waiting_max).await?;
    blockers.extend(crowds.iter().map(Crowd::blocker));
    blockers.sort_by_key(|blocker| !blocker.critical);
    let mut status = described(&overview, before);
    status.verdict = held::verdict(&blockers, limits.strict);
    status.held_up_by = blockers;
    status.backlog = backlog;
    Ok((status, overview))
}

/// The reading as it is written; what is concluded from it is filled in later.
fn described(overview: &Overview, before: Option<&Overview>) -> Status {
    let seconds = before.map(|before| overview.now.since(before.now).as_secs_f64());
    let rate = |now: u64, then: u64| {
        // One decimal: more would be noise.
        let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
        Some((now.saturating_sub(then) as f64 / seconds * 10.0).round() / 10.0)
    };
    let destinations = overview.destinations.iter().map(|view| {
        let then = before.and_then(|o| o.destinations.iter().find(|then| then.id == view.id));
        let mut row = Destination::from(view.clone());
        row.acked_per_second = then.and_then(|then| rate(row.acked, then.settled.acked));
        row
    });
    Status {
        store: overview.facts.name.clone(),
        now: overview.now,
        verdict: Verdict::Healthy,
        held_up_by: Vec::new(),
        destinations: destinations.collect(),
        backlog: Vec::new(),
        relays: overview.relays.iter().cloned().map(Relay::from).collect(),
        partitions: overview.partitions.iter().cloned().map(Partition::from).collect(),
        enqueued: overview.enqueued,
        kept: overview.kept,
        oldest_at: overview.oldest,
        enqueued_per_second: before.and_then(|then| rate(overview.enqueued, then.enqueued)),
        scheduled: overview.scheduled,
        scheduled_next_at: overview.scheduled_next,
        requests: overview.requests,
    }
}

/// The keys that dead letters of a destination hold.
async fn dead_keys(store: &Store, destination: &DestinationId) -> Result<DeadKeys, Failure> {
    let mut filter = Filter::default();
    filter.destination = Some(destination.clone());
    filter.status = vec![Word::Dead];
    let page = PageRequest { after: None, limit: DEAD_MAX };
    let dead = store.operator.waiting(&filter, &page).await?;
    let holding = dead.rows.iter().filter(|row| row.holds_key).map(|row| &*row.key);
    let keys = holding.collect::<HashSet<&str>>().len() as u64;
    Ok(DeadKeys { keys, at_least: dead.next.is_some() })
}

/// The backlog of every destination that has one, by its routes. What was counted for it is pending, where a reckoning
/// came to less.
async fn backlog_of(store: &Store, overview: &mut Overview) -> Result<Vec<Backlog>, Failure> {
    let definitions = store.source.destinations().await?;
    let mut rows = Vec::new();
    for row in definitions.rows.iter().filter(|row| !row.definition.is_unrouted()) {
        let id = &row.definition.id;
        let mut views = overview.destinations.iter_mut();
        let Some(view) = views.find(|view| view.id == *id && view.pending > 0) else { continue };
        let groups = store.operator.backlog(id, BACKLOG_MAX).await?;
        view.pending = view.pending.max(groups.iter().map(|group| group.count).sum());
        rows.extend(backlog::by_route(&row.definition, &groups, view.pending >= BACKLOG_MAX));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    Ok(rows)
}
