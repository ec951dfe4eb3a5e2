//! `postrider erase`: takes the payloads of a key out of the store, for good.

use clap::Args;

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::reason::MustGiveReason;
use crate::shape::Erased;
use crate::terminal::{count, note};

/// Erase the payloads and headers of a key's events, for good
///
/// Everywhere in this store: outbox, waiting and scheduled events, and results
/// in the inbox of events that the outbox still has. Ids, times, and checksums
/// stay. What was not delivered settles as erased, and its key flows. What
/// brokers and consumers already have is theirs. Asks for the key.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider erase --key customer/42 --reason 'request 1234' --dry-run
  postrider erase --key customer/42 --reason 'request 1234'")]
pub(crate) struct EraseArgs {
    /// The ordering key
    #[arg(long, value_name = "KEY")]
    key: String,
    /// Count what would be erased, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: MustGiveReason,
    #[command(flatten)]
    global: Global,
}

/// What this cannot reach where events are made of business items: their ids stand nowhere once they are overwritten.
const OF_ITEMS: &str = "\
events of business items are not reached: the outbox keeps nothing of them, so what handlers stored of this key's \
events stays in the inbox, and the items are yours. Take out of them what is to go by a new version. The id of an \
item's newest event is its `pr_event`: `postrider inbox show ID` has what was stored of that";

/// The inbox knows events by their ids, and only the outbox knows which of them are of a key.
const OF_THE_PAST: &str = "\
What handlers stored of events that retention has taken from the outbox is not found by a key: it goes when the \
retention of the inbox's results is over";

pub(crate) async fn run(args: EraseArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    if args.global.place()?.derives() {
        note(OF_ITEMS);
    }
    if let Some(table) = &store.own_table {
        note(&format!(
            "the rows of `{table}` are not reached: erase them yourself. Those that wait are marked as published"
        ));
    }
    let reach = Erased::of(&args.key, store.operator.erasable(&args.key).await?, false);
    if args.dry_run {
        note(&format!("{} payloads would be erased:", count(reach.total)));
        args.global.out().one(&reach, || reach.sheet())?;
        return Ok(Exit::Success);
    }
    if reach.total == 0 {
        note(&format!("there is nothing to erase: nothing was changed. {OF_THE_PAST}"));
        args.global.out().one(&reach, String::new)?;
        return Ok(Exit::Success);
    }
    note(&format!(
        "{} payloads would be erased:\n{}",
        count(reach.total),
        reach.sheet().trim_end()
    ));
    let answer = confirm::name(args.yes, "this cannot be undone", &args.key).await?;
    if let Answer::Stop(exit) = answer {
        return Ok(exit);
    }
    let done = Erased::of(&args.key, store.operator.erase(&args.key, &by).await?, true);
    note(&format!("{} payloads are gone; backups of the store still have them", count(done.total)));
    args.global.out().one(&done, || done.sheet())?;
    if done.total < reach.total {
        // Some may have been cancelled or let go in between.
        let left = store.operator.erasable(&args.key).await?.total();
        if left > 0 {
            return Err(Failure::plain(format!("{} payloads of the key are left", count(left)))
                .advice("They moved while the others were erased. Erase the key again."));
        }
    }
    Ok(Exit::Success)
}
