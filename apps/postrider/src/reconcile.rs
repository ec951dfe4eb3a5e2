//! `postrider reconcile`: proves that what was committed was delivered, and sends again what was not.

use clap::Args;
use postrider_core::DestinationId;
use postrider_core::operate::{Difference, Recounted, RowKey, Submission, Verb};

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::follow::{self, WaitArgs};
use crate::global::{Global, Store};
use crate::output::Format;
use crate::reason::MayGiveReason;
use crate::shape::Differs;
use crate::table::Table;
use crate::terminal::{self, count, note};

/// Prove that what was committed was delivered, or send it again
///
/// Recounts the outbox against the log of what was settled, bucket by bucket,
/// as far as the cursors reach. Where they differ, what is missing is sent
/// again, marked as late: where the sums do not tell what it is, all of the
/// bucket that does not wait. Inboxes absorb what had arrived.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider reconcile --dry-run
  postrider reconcile --destination default --yes

Exit codes:
  0  everything agrees, or what differs was sent again
  1  it failed, or was not confirmed
  5  it was asked for, and is not carried out yet
  6  with --dry-run: something differs")]
pub(crate) struct ReconcileArgs {
    /// Only this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<DestinationId>,
    /// Show what differs, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: ReconcileArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    if let Some(table) = &store.own_table {
        return Err(Failure::plain(format!("of `{table}` there is no log to compare it with")).advice(
            "Nothing was looked at. Its rows say themselves what was published; what waits of them, \
             `postrider dead ls --status retrying,held,parked,disabled,dead` has.",
        ));
    }
    let names = destinations(&store, args.destination.as_ref()).await?;
    let differences = recount(&store, &names).await?;
    let rows: Vec<RowKey> = differences
        .iter()
        .flat_map(|(destination, difference)| {
            let key = |seq: &u64| RowKey { destination: destination.clone(), seq: *seq };
            difference.requeue.iter().map(key)
        })
        .collect();
    let shown: Vec<Differs> =
        differences.iter().map(|(name, found)| Differs::of(name.as_str(), found)).collect();
    if args.dry_run || shown.is_empty() {
        let clean = shown.is_empty();
        if !clean || args.global.output != Format::Table {
            args.global.out().rows(shown)?;
        }
        return Ok(if clean { Exit::Success } else { Exit::Unhealthy });
    }
    let table = Table::of(shown, args.global.out().now());
    note(table.render(None, terminal::style(), true).trim_end());
    if rows.is_empty() {
        note("none of their events is left to be sent again: nothing was changed");
        return Ok(Exit::Unhealthy);
    }
    let question = format!("send {} events again, marked as late?", count(rows.len() as u64));
    if let Answer::Stop(exit) = confirm::yes(args.yes, &question).await? {
        return Ok(exit);
    }
    let submissions = rows
        .chunks(Submission::ROWS_MAX)
        .map(|rows| Submission { verb: Verb::Requeue(rows.to_vec()), note: by.clone() })
        .collect();
    let exit = follow::submit(&store, &args.global, args.wait, submissions).await?;
    if exit != Exit::Success || !may_be_more(&differences) {
        return Ok(exit);
    }
    if recount(&store, &names).await?.is_empty() {
        return Ok(Exit::Success);
    }
    note("that was not everything: run it again");
    Ok(Exit::Unhealthy)
}

/// Compares each, and says what was found.
async fn recount(
    store: &Store,
    names: &[DestinationId],
) -> Result<Vec<(DestinationId, Difference)>, Failure> {
    let mut differences = Vec::new();
    for name in names {
        let found = store.operator.recount(name).await?;
        said(name, &found).iter().for_each(|line| note(line));
        let found = found.differences.into_iter();
        differences.extend(found.map(|difference| (name.clone(), difference)));
    }
    Ok(differences)
}

/// What was found at a destination, and what could not be judged.
fn said(name: &DestinationId, found: &Recounted) -> Vec<String> {
    let open = found.not_passed + found.at_beginning > 0;
    let mut lines = vec![match found.differences.len() {
        0 if open => format!("{name}: the log agrees with the outbox, as far as it can be judged"),
        0 => format!("{name}: the log agrees with the outbox"),
        1 => format!("{name}: 1 bucket differs"),
        number => format!("{name}: {number} buckets differ"),
    }];
    if found.not_passed > 0 {
        let events = events(found.not_passed);
        lines.push(format!("{name}: not judged yet: {events} on their way, or behind these"));
    }
    if found.at_beginning > 0 {
        let events = events(found.at_beginning);
        lines.push(format!("{name}: not judged: {events} beside which others were purged already"));
    }
    lines
}

fn events(number: u64) -> String {
    if number == 1 { "1 event".to_owned() } else { format!("{} events", count(number)) }
}

/// Whether something may differ still after these were sent again: a recount ends where it has named
/// what one request takes, and a bucket of which nothing is left to be sent stays as it is.
fn may_be_more(differences: &[(DestinationId, Difference)]) -> bool {
    let named: usize = differences.iter().map(|(_, found)| found.requeue.len()).sum();
    named > Submission::ROWS_MAX / 2 || differences.iter().any(|(_, d)| d.requeue.is_empty())
}

/// The one that was named, or all that deliver.
async fn destinations(
    store: &Store,
    named: Option<&DestinationId>,
) -> Result<Vec<DestinationId>, Failure> {
    if let Some(name) = named {
        crate::destinations::find(store, name).await?;
        return Ok(vec![name.clone()]);
    }
    let overview = store.operator.overview().await?;
    Ok(overview.destinations.into_iter().map(|view| view.id).collect())
}
