//! `postrider adopt`: says that this copy of a store is the one to publish from.

use clap::Args;

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::reason::MustGiveReason;
use crate::shape::Adopted;
use crate::terminal::note;

/// Say that this copy of the store is the one to publish from
///
/// After a copy or a restore. Make sure that no relay runs on the other copy:
/// both would publish what is pending.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider adopt --store sqlite:///srv/new/shop.db --reason 'moved to db2'")]
pub(crate) struct AdoptArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: MustGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: AdoptArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let overview = store.operator.overview().await?;
    let left = overview
        .destinations
        .iter()
        .map(|view| view.pending + view.waiting.total() - view.waiting.dead);
    // Where there is no destination yet, the first one gets all of it.
    let left: u64 = left.max().unwrap_or(overview.kept);
    let name = overview.facts.name;
    note(&format!("{name}: up to {left} events are published from here"));
    let question = "is the other copy out of service?";
    if let Answer::Stop(exit) = confirm::yes(args.yes, question).await? {
        return Ok(exit);
    }
    store.operator.adopt(&by).await?;
    // What is under way in one that had its leases elsewhere is of no use here: it is refused until it begins anew.
    note(&format!("{name} is the one to publish from; start relays anew that ran before"));
    args.global.out().one(&Adopted { store: name }, String::new)?;
    Ok(Exit::Success)
}
