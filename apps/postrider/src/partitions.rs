//! `postrider partitions`: who owns which, and keeping them from being owned.

use clap::{Args, Subcommand};
use postrider_core::{ErrorKind, PartitionId};

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::reason::MayGiveReason;
use crate::shape::Partition;
use crate::terminal::note;

/// Partitions: see who owns them, pause and resume them
#[derive(Args, Debug)]
pub(crate) struct PartitionsArgs {
    #[command(subcommand)]
    command: PartitionsCommand,
}

#[derive(Debug, Subcommand)]
enum PartitionsCommand {
    Ls(LsArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
}

/// List partitions with their owners
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider partitions ls
  postrider partitions ls --output json")]
struct LsArgs {
    #[command(flatten)]
    global: Global,
}

/// Let no relay own a partition; its events wait in the outbox
///
/// Its owner finishes what is under way and lets it go within a heartbeat (3 s).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider partitions pause 0 --reason 'moving the broker'")]
struct PauseArgs {
    #[command(flatten)]
    set: SetArgs,
}

/// Let relays own a partition again
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider partitions resume 0")]
struct ResumeArgs {
    #[command(flatten)]
    set: SetArgs,
}

#[derive(Args, Debug)]
struct SetArgs {
    /// Which partition, from 0
    #[arg(value_name = "N")]
    partition: u16,
    /// Nothing is asked here: for scripts that say it with every change
    #[arg(long = "yes", hide = true)]
    _yes: bool,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: PartitionsArgs) -> Result<Exit, Failure> {
    match args.command {
        PartitionsCommand::Ls(args) => {
            let store = args.global.open().await?;
            let overview = store.operator.overview().await?;
            let rows = overview.partitions.into_iter().map(Partition::from).collect();
            args.global.out().rows::<Partition>(rows)?;
            Ok(Exit::Success)
        }
        PartitionsCommand::Pause(args) => set(&args.set, true).await,
        PartitionsCommand::Resume(args) => set(&args.set, false).await,
    }
}

async fn set(args: &SetArgs, paused: bool) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let partition = PartitionId(args.partition);
    if let Err(error) = store.operator.set_partition(partition, paused, &by).await {
        let failure = match error.kind() {
            ErrorKind::NotFound => Failure::plain(format!("there is no partition {partition}"))
                .advice("Nothing was changed. `postrider partitions ls` has them all."),
            _ => error.into(),
        };
        return Err(failure);
    }
    let state = if paused { "paused" } else { "not paused" };
    note(&format!("partition {partition} is {state}"));
    let overview = store.operator.overview().await?;
    let now = overview.partitions.into_iter().filter(|view| view.partition == partition);
    args.global.out().rows::<Partition>(now.map(Partition::from).collect())?;
    Ok(Exit::Success)
}
