//! `postrider repair`: mends what a restore has broken.

use clap::{Args, Subcommand};

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::reason::MustGiveReason;
use crate::shape::Repaired;
use crate::terminal::{count, note};

/// Mend what a restore has broken
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    #[command(subcommand)]
    command: RepairCommand,
}

#[derive(Debug, Subcommand)]
enum RepairCommand {
    Sequence(SequenceArgs),
}

/// Raise the store's sequence above everything that was passed (PR-1006)
///
/// New events then get numbers that no cursor has passed. Stop every relay
/// first: it is refused while one owns a partition.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider repair sequence --reason 'restored from the backup of Monday'")]
struct SequenceArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: MustGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: RepairArgs) -> Result<Exit, Failure> {
    let RepairCommand::Sequence(args) = args.command;
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let question = "raise the sequence above every cursor?";
    if let Answer::Stop(exit) = confirm::yes(args.yes, question).await? {
        return Ok(exit);
    }
    let (before, after) = store.operator.repair_sequence(&by).await?;
    note(&match before == after {
        true => format!(
            "the sequence stands at {}, above every cursor: nothing was changed",
            count(after)
        ),
        false => format!("the sequence was {}, and is {}", count(before), count(after)),
    });
    args.global.out().one(&Repaired { before, after }, || format!("{after}\n"))?;
    Ok(Exit::Success)
}
