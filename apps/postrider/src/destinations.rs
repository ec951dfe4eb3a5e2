//! `postrider destinations`: where events go, and what a person may change about it.

mod remove;

use clap::{Args, Subcommand};
use postrider_core::operate::{DestinationView, Filter, PageRequest, Submission, Verb};
use postrider_core::{DestinationId, DestinationState, Error, ErrorKind, Start};

use crate::age::{self, Moment};
use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::follow::{self, WaitArgs};
use crate::global::{Global, Store};
use crate::reason::{MayGiveReason, MustGiveReason};
use crate::shape;
use crate::terminal::{count, note};

/// Events that are counted before a rewind; beyond them it says "at least".
const COUNTED_MAX: u64 = 1_000_000;

/// Stores count what is delivered by so many numbers, and a cursor goes back to where a count begins.
const ROUNDED: &str = ". Up to 4,096 numbers before them, of all partitions, come again as well";

/// Destinations: see them, pause, rewind, rename, remove them
#[derive(Args, Debug)]
pub(crate) struct DestinationsArgs {
    #[command(subcommand)]
    command: DestinationsCommand,
}

#[derive(Debug, Subcommand)]
enum DestinationsCommand {
    Ls(LsArgs),
    Apply(crate::apply::ApplyArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Enable(EnableArgs),
    Rewind(RewindArgs),
    Rename(RenameArgs),
    Remove(RemoveArgs),
}

/// List destinations with what waits at each
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations ls
  postrider destinations ls --output json | jq '.rows[].errors'")]
struct LsArgs {
    #[command(flatten)]
    global: Global,
}

/// Let a destination's events wait in the outbox
///
/// Relays hear of it within a heartbeat (3 s). Its cursors stand, and pin what
/// they have not passed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations pause default --reason 'the broker is upgraded'")]
struct PauseArgs {
    #[command(flatten)]
    set: SetArgs,
}

/// Let a destination's events flow again
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations resume default")]
struct ResumeArgs {
    #[command(flatten)]
    set: SetArgs,
}

#[derive(Args, Debug)]
struct SetArgs {
    /// Which destination
    #[arg(value_name = "NAME")]
    name: DestinationId,
    /// Nothing is asked here: for scripts that say it with every change
    #[arg(long = "yes", hide = true)]
    _yes: bool,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

/// Take a disabled endpoint into service again
///
/// Its events come out in order.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations enable hooks https://customer.example/hook")]
struct EnableArgs {
    /// Which destination
    #[arg(value_name = "NAME")]
    name: DestinationId,
    /// Which topic, subject, queue, or URL
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

/// Send a destination's history again, marked as a replay
///
/// Everything from the point on that the outbox still has is delivered again.
/// Inboxes absorb what they know; other consumers see it twice.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations rewind default --to 2h
  postrider destinations rewind default --to beginning --dry-run
  postrider destinations rewind audit --to 2026-11-21T10:00:00Z --yes")]
struct RewindArgs {
    /// Which destination
    #[arg(value_name = "NAME")]
    name: DestinationId,
    /// From where: beginning, 2026-11-21T10:00:00Z, or an age like 2h
    #[arg(long, value_name = "POINT", value_parser = point)]
    to: Point,
    /// Count what would be sent again, and change nothing
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

/// Give a destination another name
///
/// Its cursors, waiting events, and log go with it. Relays that define the old
/// name do not serve it any more.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations rename default orders --reason 'more to come'")]
struct RenameArgs {
    /// Which destination
    #[arg(value_name = "FROM")]
    from: DestinationId,
    /// The new name
    #[arg(value_name = "TO")]
    to: DestinationId,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

/// Remove a destination with everything that waits for it
///
/// What its cursors have not passed is never delivered to it, and its dead
/// letters go. Asks for the name.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations remove old-broker --reason 'switched off'")]
struct RemoveArgs {
    /// Which destination
    #[arg(value_name = "NAME")]
    name: DestinationId,
    /// Count what would go, and change nothing
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

/// From where a destination is rewound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Beginning,
    At(Moment),
}

fn point(text: &str) -> Result<Point, String> {
    match text {
        "beginning" => Ok(Point::Beginning),
        _ => age::moment(text).map(Point::At).map_err(|error| format!("{error}; or `beginning`")),
    }
}

pub(crate) async fn run(args: DestinationsArgs) -> Result<Exit, Failure> {
    match args.command {
        DestinationsCommand::Ls(args) => ls(&args).await,
        DestinationsCommand::Apply(args) => crate::apply::run(args).await,
        DestinationsCommand::Pause(args) => set(&args.set, DestinationState::Paused).await,
        DestinationsCommand::Resume(args) => set(&args.set, DestinationState::Active).await,
        DestinationsCommand::Enable(args) => enable(&args).await,
        DestinationsCommand::Rewind(args) => rewind(&args).await,
        DestinationsCommand::Rename(args) => rename(&args).await,
        DestinationsCommand::Remove(args) => remove::remove(&args).await,
    }
}

async fn ls(args: &LsArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let overview = store.operator.overview().await?;
    let rows = overview.destinations.into_iter().map(shape::Destination::from).collect();
    args.global.out().rows::<shape::Destination>(rows)?;
    Ok(Exit::Success)
}

async fn set(args: &SetArgs, state: DestinationState) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    if let Err(error) = store.operator.set_destination(&args.name, state, &by).await {
        return Err(on_destination(&store, &args.name, error).await);
    }
    let word = if state == DestinationState::Paused { "paused" } else { "active" };
    note(&format!("{} is {word}", args.name));
    show(&store, &args.global, &args.name).await
}

/// Writes the row of one destination as it is now.
async fn show(store: &Store, global: &Global, name: &DestinationId) -> Result<Exit, Failure> {
    let overview = store.operator.overview().await?;
    let rows = overview.destinations.into_iter().filter(|view| view.id == *name);
    global.out().rows::<shape::Destination>(rows.map(shape::Destination::from).collect())?;
    Ok(Exit::Success)
}

async fn enable(args: &EnableArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let view = find(&store, &args.name).await?;
    if !view.disabled.contains(&args.endpoint) && view.disabled.len() < 100 {
        let shown = args.endpoint.escape_debug();
        let failure = Failure::plain(format!("`{shown}` is not disabled at {}", args.name));
        let known: Vec<&str> = view.disabled.iter().map(|name| &**name).collect();
        return Err(failure.advice(match &*known {
            [] => "Nothing was changed. None of its endpoints is.".to_owned(),
            known => format!("Nothing was changed. Disabled are {}.", known.join(", ")),
        }));
    }
    let verb = Verb::Enable { destination: args.name.clone(), topic: args.endpoint.clone() };
    follow::submit(&store, &args.global, args.wait, vec![Submission { verb, note: by }]).await
}

async fn rewind(args: &RewindArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    find(&store, &args.name).await?;
    let to = match args.to {
        Point::Beginning => Start::Beginning,
        Point::At(moment) => Start::At(moment.at(postrider_core::Timestamp::now())),
    };
    let (number, least) = since(&store, &args.name, to).await?;
    let least = if least { "at least " } else { "" };
    let counted = format!("{least}{} events", count(number));
    let (from, rounded) = match to {
        Start::At(time) => (time.to_string(), ROUNDED),
        _ => ("the beginning".to_owned(), ""),
    };
    if args.dry_run {
        note(&format!("{counted} would be sent again to {}, from {from} on{rounded}", args.name));
        args.global.out().one(&shape::Counted { count: number }, || format!("{number}\n"))?;
        return Ok(Exit::Success);
    }
    note(&format!(
        "{counted} are sent again to {}, from {from} on, marked as a replay{rounded}",
        args.name
    ));
    let question = format!("rewind {}?", args.name);
    if let Answer::Stop(exit) = confirm::yes(args.yes, &question).await? {
        return Ok(exit);
    }
    let verb = Verb::Rewind { destination: args.name.clone(), to };
    follow::submit(&store, &args.global, args.wait, vec![Submission { verb, note: by }]).await
}

/// How many events of the outbox are at or after the point, and whether there are more.
async fn since(store: &Store, name: &DestinationId, to: Start) -> Result<(u64, bool), Failure> {
    let mut filter = Filter::default();
    filter.destination = Some(name.clone());
    if let Start::At(time) = to {
        filter.since = Some(time);
    }
    let mut page = PageRequest { after: None, limit: PageRequest::LIMIT_MAX };
    let mut number = 0;
    loop {
        let listed = store.operator.events(&filter, &page).await?;
        number += listed.rows.len() as u64;
        match listed.next {
            None => return Ok((number, false)),
            Some(_) if number >= COUNTED_MAX => return Ok((number, true)),
            Some(next) => page.after = Some(next),
        }
    }
}

async fn rename(args: &RenameArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let view = find(&store, &args.from).await?;
    note(&format!(
        "{}: {} pending, {} waiting. Relays that define {} stop serving it; start them with {}",
        args.from,
        count(view.pending),
        count(view.waiting.total()),
        args.from,
        args.to
    ));
    let question = format!("rename {} to {}?", args.from, args.to);
    if let Answer::Stop(exit) = confirm::yes(args.yes, &question).await? {
        return Ok(exit);
    }
    if let Err(error) = store.operator.rename(&args.from, &args.to, &by).await {
        return Err(on_destination(&store, &args.from, error).await);
    }
    note(&format!("{} is {} now", args.from, args.to));
    show(&store, &args.global, &args.to).await
}

/// The destination, or what may have been meant.
pub(crate) async fn find(store: &Store, name: &DestinationId) -> Result<DestinationView, Failure> {
    let overview = store.operator.overview().await?;
    let names: Vec<String> = overview.destinations.iter().map(|view| view.id.to_string()).collect();
    let found = overview.destinations.into_iter().find(|view| view.id == *name);
    found.ok_or_else(|| unknown(name, &names))
}

async fn on_destination(store: &Store, name: &DestinationId, error: Error) -> Failure {
    if error.kind() == ErrorKind::NotFound
        && let Err(failure) = find(store, name).await
    {
        return failure;
    }
    error.into()
}

fn unknown(name: &DestinationId, names: &[String]) -> Failure {
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let failure = Failure::plain(format!("there is no destination `{name}`"));
    failure.advice(match &*names {
        [] => {
            "Nothing was changed. The store has none yet: the first relay defines them.".to_owned()
        }
        names => {
            let nearest = postrider_core::template::nearest(name.as_str(), names);
            format!(
                "Nothing was changed. Did you mean `{nearest}`? There are {}.",
                names.join(", ")
            )
        }
    })
}
