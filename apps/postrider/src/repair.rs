//! `postrider repair`: mends what a restore or a move has broken.

use clap::{Args, Subcommand};

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::reason::MustGiveReason;
use crate::shape::{Moved, Repaired};
use crate::store::Place;
use crate::terminal::{count, note};

/// Mend what a restore or a move has broken
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    #[command(subcommand)]
    command: RepairCommand,
}

#[derive(Debug, Subcommand)]
enum RepairCommand {
    Sequence(SequenceArgs),
    Partitions(PartitionsArgs),
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

/// Send each key to the partition of this server's hash (PR-1011)
///
/// After a move to a PostgreSQL that hashes text otherwise. Every destination
/// begins anew where the least of its cursors stands: what was delivered above
/// it comes again, and nothing is lost. Stop every relay first: it is refused
/// while one owns a partition. Where it is interrupted, do it again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider repair partitions --reason 'moved to PostgreSQL 19'")]
struct PartitionsArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: MustGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: RepairArgs) -> Result<Exit, Failure> {
    match args.command {
        RepairCommand::Sequence(args) => sequence(args).await,
        RepairCommand::Partitions(args) => partitions(args).await,
    }
}

async fn partitions(args: PartitionsArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let place = args.global.place()?;
    let Place::Postgres(database) = &place else {
        return Err(Failure::config(format!("the partitions of {} do not move", place.what()))
            .advice("Nothing was changed. This is for PostgreSQL, and for PR-1011 alone."));
    };
    // Opening the store is what PR-1011 refuses.
    let store = database.store()?;
    let question = "send each key to the partition of this server's hash?";
    if let Answer::Stop(exit) = confirm::yes(args.yes, question).await? {
        return Ok(exit);
    }
    let moved = store.repair_partitions(&by).await?;
    note(&match moved {
        0 => "every event is in its partition: nothing was moved".to_owned(),
        _ => format!("{} events were sent to other partitions", count(moved)),
    });
    args.global.out().one(&Moved { moved }, || format!("{moved}\n"))?;
    Ok(Exit::Success)
}

async fn sequence(args: SequenceArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let question = "raise the sequence above every cursor?";
    if let Answer::Stop(exit) = confirm::yes(args.yes, question).await? {
        return Ok(exit);
    }
    let done = match args.global.place()? {
        Place::Postgres(database) => Repaired::from(database.store()?.repair_numbers(&by).await?),
        _ => {
            let (before, after) = store.operator.repair_sequence(&by).await?;
            Repaired { before, after, renumbered: 0, cursors: 0 }
        }
    };
    note(&told(&done));
    args.global.out().one(&done, || format!("{}\n", done.after))?;
    Ok(Exit::Success)
}

/// What was done, in a sentence.
fn told(done: &Repaired) -> String {
    let sequence = match done.before == done.after {
        true => format!("the sequence stands at {}, above every cursor", count(done.after)),
        false => format!("the sequence was {}, and is {}", count(done.before), count(done.after)),
    };
    let mut more = String::new();
    if done.renumbered > 0 {
        more = format!("; {} events got new numbers", count(done.renumbered));
    }
    if done.cursors > 0 {
        more = format!("{more}; {} cursors begin anew where they stood", count(done.cursors));
    }
    match (done.before == done.after, &*more) {
        (true, "") => format!("{sequence}: nothing was changed"),
        _ => format!("{sequence}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_was_changed_is_said_of_nothing_else() {
        let done = |after, renumbered, cursors| Repaired { before: 7, after, renumbered, cursors };
        assert!(told(&done(7, 0, 0)).ends_with("nothing was changed"));
        let renumbered = told(&done(7, 3, 8));
        assert!(
            renumbered.ends_with(
                "cursor; 3 events got new numbers; 8 cursors begin anew where they stood"
            )
        );
        assert_eq!(told(&done(1_009, 0, 0)), "the sequence was 7, and is 1,009");
    }
}
