//! `postrider dead`: dead letters, and what may be done with them.

use clap::{Args, Subcommand};
use postrider_core::EventId;
use postrider_core::operate::{Filter, PageRequest, Status, Verb, WaitingView};

use crate::bulk::{self, ActArgs, Change, SelectArgs, Selection};
use crate::failure::{Exit, Failure};
use crate::filter::{self, CHUNK, FilterArgs, PageArgs};
use crate::global::{Global, Store};
use crate::reason::{MayGiveReason, MustGiveReason};
use crate::shape::{self, Affected};
use crate::{hint, outbox};

/// Dead letters: look at them, send them again, let them go
///
/// A dead letter is an event that gave up or was refused for good. It is kept
/// with its reason. Unless its route says otherwise, later events of its key
/// wait behind it until it is redriven or discarded.
#[derive(Args, Debug)]
pub(crate) struct DeadArgs {
    #[command(subcommand)]
    command: DeadCommand,
}

#[derive(Debug, Subcommand)]
enum DeadCommand {
    Ls(LsArgs),
    Show(ShowArgs),
    Redrive(RedriveArgs),
    Discard(DiscardArgs),
}

/// List dead letters
///
/// With --status also other events that left their order: retrying, parked,
/// held, disabled, or discarded.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider dead ls
  postrider dead ls --type 'order.*' --since 2h
  postrider dead ls --status retrying,parked --error timeout
  postrider dead ls --all --output ndjson | jq -r .id")]
struct LsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    global: Global,
}

/// Show one dead letter with its payload
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider dead show 01941f29-7c00-7000-8000-000000000001
  postrider dead show 01941f29-7c00-7000-8000-000000000001 --output json")]
struct ShowArgs {
    /// Which event
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    global: Global,
}

/// Send dead letters again
///
/// They are listed and counted first. The relay that owns their partition
/// sends them: one that holds its key in its place, so that the key's order
/// stays; any other marked as late. Handlers with an inbox that were done with
/// one absorb it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider dead redrive 01941f29-7c00-7000-8000-000000000001
  postrider dead redrive --type 'order.*' --error timeout --dry-run
  postrider dead redrive --destination default --all --yes --wait 5m")]
struct RedriveArgs {
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    act: ActArgs,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

/// Let dead letters go for good, so that their keys flow
///
/// They are listed and counted first. A discarded event is never delivered.
/// With --status disabled, events of disabled endpoints.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider dead discard 01941f29-7c00-7000-8000-000000000001 \\
    --reason 'test order'
  postrider dead discard --key order/42 --reason 'refunded by hand'
  postrider dead discard --status disabled --destination hooks \\
    --reason 'the customer left'")]
struct DiscardArgs {
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    act: ActArgs,
    #[command(flatten)]
    by: MustGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: DeadArgs) -> Result<Exit, Failure> {
    match args.command {
        DeadCommand::Ls(args) => ls(&args).await,
        DeadCommand::Show(args) => show(&args).await,
        DeadCommand::Redrive(args) => redrive(&args).await,
        DeadCommand::Discard(args) => discard(&args).await,
    }
}

async fn ls(args: &LsArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let out = args.global.out();
    let mut asked = args.filter.at(out.now());
    if asked.status.is_empty() {
        asked.status.push(Status::Dead);
    }
    filter::list::<_, shape::Waiting>(out, &args.page, async |page| {
        store.operator.waiting(&asked, page).await
    })
    .await
}

async fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let id = hint::event_id(&store, &args.id).await?;
    let asked = matching(Filter::default(), id, &[Status::Dead]);
    if waiting_once(&store, &asked).await?.is_empty() {
        return Err(not_so(&store, id, "a dead letter").await);
    }
    outbox::show_event(&store, &args.global, id).await
}

async fn redrive(args: &RedriveArgs) -> Result<Exit, Failure> {
    let note = args.by.note()?;
    let allowed = statuses(&args.select.filter, "redrive", &[Status::Dead])?;
    let store = args.global.open().await?;
    let selection = select(&store, &args.select, &allowed).await?;
    let nouns = ("dead letter", "dead letters");
    let change = Change { verb: "redrive", nouns, of: Verb::Redrive, note };
    bulk::perform(&store, &args.global, args.act, selection, change).await
}

async fn discard(args: &DiscardArgs) -> Result<Exit, Failure> {
    let note = args.by.note()?;
    let allowed = statuses(&args.select.filter, "discard", &[Status::Dead, Status::Disabled])?;
    let store = args.global.open().await?;
    let selection = select(&store, &args.select, &allowed).await?;
    let nouns = match &*allowed {
        [Status::Dead] => ("dead letter", "dead letters"),
        _ => ("event", "events"),
    };
    let change = Change { verb: "discard", nouns, of: Verb::Discard, note };
    bulk::perform(&store, &args.global, args.act, selection, change).await
}

/// The states that were asked for, dead ones if none were.
fn statuses(filter: &FilterArgs, verb: &str, allowed: &[Status]) -> Result<Vec<Status>, Failure> {
    if filter.status.is_empty() {
        return Ok(vec![Status::Dead]);
    }
    match filter.status.iter().find(|status| !allowed.contains(status)) {
        None => Ok(filter.status.clone()),
        Some(other) => {
            let allowed: Vec<&str> = allowed.iter().map(|status| status.as_str()).collect();
            Err(Failure::plain(format!("{verb} takes no events that are {other}"))
                .advice(format!("Nothing was changed. It takes what is {}.", allowed.join(" or ")))
                .exit_as(Exit::Usage))
        }
    }
}

fn matching(mut filter: Filter, id: EventId, statuses: &[Status]) -> Filter {
    filter.id = Some(id);
    filter.status = statuses.to_vec();
    filter
}

/// The rows of the ids or of the filter.
async fn select(
    store: &Store,
    args: &SelectArgs,
    statuses: &[Status],
) -> Result<Selection, Failure> {
    args.check()?;
    let mut selection = Selection::default();
    let mut asked = args.filter.at(postrider_core::Timestamp::now());
    asked.status = statuses.to_vec();
    for text in &args.ids {
        let id = hint::event_id(store, text).await?;
        let found = waiting_once(store, &matching(asked.clone(), id, statuses)).await?;
        if found.is_empty() {
            return Err(not_so(store, id, "one of those that match").await);
        }
        for view in found {
            add(&mut selection, view)?;
        }
    }
    if !args.ids.is_empty() {
        return Ok(selection);
    }
    let mut page = PageRequest { after: None, limit: CHUNK };
    loop {
        let listed = store.operator.waiting(&asked, &page).await?;
        for view in listed.rows {
            add(&mut selection, view)?;
        }
        match listed.next {
            Some(next) => page.after = Some(next),
            None => return Ok(selection),
        }
    }
}

fn add(selection: &mut Selection, view: WaitingView) -> Result<(), Failure> {
    let destination = view.destination.clone();
    let row = Affected {
        destination: destination.to_string(),
        seq: view.seq,
        id: view.id,
        event_type: view.event_type,
        key: view.key,
        reason: view.reason,
        created_at: view.created_at,
    };
    selection.add(&destination, row)
}

/// The rows of one event: one for each destination at most.
async fn waiting_once(store: &Store, filter: &Filter) -> Result<Vec<WaitingView>, Failure> {
    let page = PageRequest { after: None, limit: CHUNK };
    Ok(store.operator.waiting(filter, &page).await?.rows)
}

/// The failure for an event that is not in the state that a command is about: where it stands.
async fn not_so(store: &Store, id: EventId, what: &str) -> Failure {
    let detail = match store.operator.event(id).await {
        Ok(detail) => detail,
        Err(error) => return hint::on_event(store, id, error).await,
    };
    Failure::plain(format!("event {id} is not {what}"))
        .advice(format!("Nothing was changed. It stands at {}.", hint::stands(&detail)))
}
