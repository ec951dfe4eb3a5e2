//! `postrider queue`: dead letters that are in a queue of SQS, and moving them back.
//!
//! Invariant: nothing is moved before an inbox was opened that lets what was done have no second effect, unless a flag
//! says that none is needed.

#[cfg(feature = "aws")]
mod follow;
#[cfg(feature = "aws")]
mod guard;
#[cfg(feature = "aws")]
mod place;
#[cfg(feature = "aws")]
mod redrive;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use postrider_core::HandlerName;

use crate::duration;
use crate::failure::{Exit, Failure};
use crate::output::Format;

/// Messages a second that SQS moves at most.
const RATE_MAX: i64 = 500;

/// Dead letters of a consumer in SQS: count them, and move them back
///
/// What a consumer refused, or SQS gave out too often, is in a queue of its
/// own. SQS moves it back by a task; one of a queue runs at a time. For dead
/// letters of a relay: postrider dead.
#[derive(Args, Debug)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Debug, Subcommand)]
enum QueueCommand {
    Status(StatusArgs),
    Redrive(RedriveArgs),
    Cancel(CancelArgs),
}

/// Which queue, and how the answer is written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Queue and answer")]
#[cfg_attr(not(feature = "aws"), allow(dead_code, reason = "what only a client of SQS reads"))]
pub(crate) struct PlaceArgs {
    /// The configuration with a table [consume.NAME]; else $POSTRIDER_CONFIG
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// Which of its tables, unless it has only one
    #[arg(long, value_name = "NAME")]
    handler: Option<HandlerName>,
    /// The queue that is consumed, like sqs://eu-west-1/billing, if not the
    /// table's; of another one than that, the table's inbox and dead letters
    /// do not count
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// The queue with its dead letters [default: that of its redrive policy]
    #[arg(long, value_name = "NAME")]
    dead_letters: Option<String>,
    /// How to write the answer: table, json, or ndjson
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    output: Format,
}

/// Count dead letters, and show how far the newest task is
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider queue status --config postrider.toml
  postrider queue status --from sqs://eu-west-1/billing --output json")]
#[cfg_attr(not(feature = "aws"), allow(dead_code, reason = "what only a client of SQS reads"))]
struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// Move dead letters back to the queue that they come from
///
/// All of them, by a task of SQS, after their number was shown. An event that
/// its handler was done with has no second effect, because of the inbox: it is
/// opened first, and has to remember for as long as a dead letter may be old.
/// Dead letters that several queues share are all moved to this one, and only
/// with --shared. Ctrl-C ends the task: what was moved stays moved.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider queue redrive --config postrider.toml --dry-run
  postrider queue redrive --config postrider.toml --handler billing --rate 50
  postrider queue redrive --from sqs://eu-west-1/billing \\
    --inbox sqlite://billing.db --yes --wait 1h")]
#[cfg_attr(not(feature = "aws"), allow(dead_code, reason = "what only a client of SQS reads"))]
struct RedriveArgs {
    /// The consumers' inbox, if not the table's
    #[arg(long, value_name = "URL")]
    inbox: Option<String>,
    /// Ask no inbox: what was done before may be done again
    #[arg(long, conflicts_with = "inbox")]
    unguarded: bool,
    /// Move those of other queues as well, which share the dead letters
    #[arg(long)]
    shared: bool,
    /// At most so many messages a second, up to 500 [default: as SQS likes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RATE_MAX))]
    rate: Option<u32>,
    /// Show what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Wait so long until all are moved; 0 does not wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_or_zero)]
    wait: Duration,
    #[command(flatten)]
    place: PlaceArgs,
}

/// End the task that is moving dead letters, whoever began it
///
/// What was moved stays moved.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider queue cancel --config postrider.toml")]
#[cfg_attr(not(feature = "aws"), allow(dead_code, reason = "what only a client of SQS reads"))]
struct CancelArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

#[cfg(not(feature = "aws"))]
pub(crate) async fn run(args: QueueArgs) -> Result<Exit, Failure> {
    std::future::ready(()).await;
    match args.command {
        QueueCommand::Status(_) | QueueCommand::Redrive(_) | QueueCommand::Cancel(_) => {
            Err(crate::relay::aws::missing())
        }
    }
}

#[cfg(feature = "aws")]
pub(crate) async fn run(args: QueueArgs) -> Result<Exit, Failure> {
    match args.command {
        QueueCommand::Status(args) => {
            let queue = place::open(&args.place, None).await?;
            redrive::show(&args.place, &queue).await?;
            Ok(Exit::Success)
        }
        QueueCommand::Redrive(args) => redrive::run(&args).await,
        QueueCommand::Cancel(args) => redrive::cancel(&args).await,
    }
}
