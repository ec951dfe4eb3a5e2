//! `postrider outbox`: events, what became of them, and sending them again.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use postrider_core::operate::{Cancelled, Filter, PageRequest, Status, Verb};
use postrider_core::{DestinationId, EventId};

use crate::bulk::{self, ActArgs, Change, SelectArgs, Selection};
use crate::failure::{Exit, Failure};
use crate::filter::{self, CHUNK, FilterArgs, PageArgs};
use crate::global::{Global, Store};
use crate::hint;
use crate::output;
use crate::reason::MayGiveReason;
use crate::shape::{self, Affected, CancelledEvent, Detail};
use crate::table::{Table, clean, clean_lines};
use crate::terminal;

/// What a cursor has passed, delivered or believed to be.
const PASSED: [Status; 2] = [Status::Published, Status::Settled];

/// Events: look at them, send them again, take them back
#[derive(Args, Debug)]
pub(crate) struct OutboxArgs {
    #[command(subcommand)]
    command: OutboxCommand,
}

#[derive(Debug, Subcommand)]
enum OutboxCommand {
    Ls(LsArgs),
    Show(ShowArgs),
    Requeue(RequeueArgs),
    Cancel(CancelArgs),
}

/// List events, newest first, with what became of each
///
/// With --status scheduled, events whose time has not come, next due first.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider outbox ls
  postrider outbox ls --key order/42
  postrider outbox ls --status pending,retrying --since 10m
  postrider outbox ls --status scheduled
  postrider outbox ls --all --output ndjson | wc -l")]
struct LsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    global: Global,
}

/// Show one event: its payload, what became of it, and what holds it up
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider outbox show 01941f29-7c00-7000-8000-000000000001
  postrider outbox show 01941f29-7c00-7000-8000-000000000001 \\
    --output json | jq .payload")]
struct ShowArgs {
    /// Which event
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    global: Global,
}

/// Send events again that were passed already, marked as late
///
/// For what was marked as sent and never arrived. They are listed and counted
/// first. Events that wait are left alone: `postrider dead redrive` sends dead
/// letters. Handlers with an inbox that were done with one absorb it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider outbox requeue 01941f29-7c00-7000-8000-000000000001
  postrider outbox requeue --destination default --since 2h --until 1h \\
    --dry-run
  postrider outbox requeue --type 'order.*' --since 10m --yes --wait 5m")]
struct RequeueArgs {
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    act: ActArgs,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

/// Take a scheduled event back, before its time has come
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider outbox ls --status scheduled
  postrider outbox cancel 01941f29-7c00-7000-8000-000000000001

Exit codes:
  0  it is cancelled, and will not be delivered
  1  it is too late, or there is no such event")]
struct CancelArgs {
    /// Which event
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: OutboxArgs) -> Result<Exit, Failure> {
    match args.command {
        OutboxCommand::Ls(args) => ls(&args).await,
        OutboxCommand::Show(args) => show(&args).await,
        OutboxCommand::Requeue(args) => requeue(&args).await,
        OutboxCommand::Cancel(args) => cancel(&args).await,
    }
}

async fn ls(args: &LsArgs) -> Result<Exit, Failure> {
    let scheduled = args.filter.status.contains(&Status::Scheduled);
    if scheduled && args.filter.status.len() > 1 {
        return Err(Failure::plain("scheduled events stand in a list of their own")
            .advice("Ask for --status scheduled alone.")
            .exit_as(Exit::Usage));
    }
    let store = args.global.open_to_read().await?;
    if let Some(table) = &store.own_table {
        terminal::note(&format!(
            "events stand in `{table}`, and not in the outbox: `postrider dead ls` has those that wait"
        ));
    }
    let out = args.global.out();
    let mut asked = args.filter.at(out.now());
    if scheduled {
        asked.status.clear();
        return filter::list::<_, shape::Scheduled>(out, &args.page, async |page| {
            store.operator.scheduled(&asked, page).await
        })
        .await;
    }
    filter::list::<_, shape::Event>(out, &args.page, async |page| {
        store.operator.events(&asked, page).await
    })
    .await
}

async fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let id = hint::event_id(&store, &args.id).await?;
    show_event(&store, &args.global, id).await
}

async fn requeue(args: &RequeueArgs) -> Result<Exit, Failure> {
    let note = args.by.note()?;
    let filter = &args.select.filter;
    if let Some(other) = filter.status.iter().find(|status| !PASSED.contains(status)) {
        let passed: Vec<&str> = PASSED.iter().map(|status| status.as_str()).collect();
        return Err(Failure::plain(format!("requeue takes no events that are {other}"))
            .advice(format!("Nothing was changed. It takes what is {}.", passed.join(" or ")))
            .exit_as(Exit::Usage));
    }
    let store = args.global.open().await?;
    let selection = select(&store, &args.select).await?;
    let nouns = ("delivery", "deliveries");
    let change = Change { verb: "requeue", nouns, of: Verb::Requeue, note };
    bulk::perform(&store, &args.global, args.act, selection, change).await
}

/// The deliveries of the ids or of the filter that the cursor has passed.
async fn select(store: &Store, args: &SelectArgs) -> Result<Selection, Failure> {
    args.check()?;
    let mut selection = Selection::default();
    let mut asked = args.filter.at(postrider_core::Timestamp::now());
    for text in &args.ids {
        asked.id = Some(hint::event_id(store, text).await?);
        let before = selection.len();
        take(store, &asked, &mut selection).await?;
        if selection.len() == before && !elsewhere(store, &asked, &mut selection).await? {
            return Err(not_passed(store, text).await?);
        }
    }
    if args.ids.is_empty() {
        take(store, &asked, &mut selection).await?;
    }
    Ok(selection)
}

/// Takes in what the filter says, page by page.
async fn take(store: &Store, asked: &Filter, selection: &mut Selection) -> Result<(), Failure> {
    let wanted: &[Status] = if asked.status.is_empty() { &PASSED } else { &asked.status };
    let here = |name: &DestinationId| asked.destination.as_ref().is_none_or(|one| one == name);
    let mut page = PageRequest { after: None, limit: CHUNK };
    loop {
        let listed = store.operator.events(asked, &page).await?;
        for view in &listed.rows {
            let passed = view.deliveries.iter().filter(|delivery| {
                wanted.contains(&delivery.status) && here(&delivery.destination)
            });
            for delivery in passed {
                let row = Affected {
                    destination: delivery.destination.to_string(),
                    seq: view.seq,
                    id: Some(view.id),
                    event_type: Some(view.event_type.clone()),
                    key: view.key.clone(),
                    reason: delivery.status.to_string(),
                    created_at: Some(view.created_at),
                };
                selection.add(&delivery.destination, row)?;
            }
        }
        match listed.next {
            Some(next) => page.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Takes in one event for a destination that passed it because no route of it took the event then,
/// if a route does now. Says whether it did.
async fn elsewhere(
    store: &Store,
    asked: &Filter,
    selection: &mut Selection,
) -> Result<bool, Failure> {
    let (Some(id), Some(destination)) = (asked.id, &asked.destination) else {
        return Ok(false);
    };
    let Ok(detail) = store.operator.event(id).await else {
        return Ok(false);
    };
    let definitions = store.source.destinations().await?;
    let taken = definitions.rows.iter().any(|row| {
        row.definition.id == *destination && row.definition.route(&detail.event).is_some()
    });
    let stands = detail.deliveries.iter().any(|delivery| delivery.destination == *destination);
    let Some(seq) = detail.seq.filter(|_| taken && !stands) else {
        return Ok(false);
    };
    let row = Affected {
        destination: destination.to_string(),
        seq,
        id: Some(id),
        event_type: Some(detail.event.event_type.to_string()),
        key: detail.event.key(),
        reason: Status::Elsewhere.to_string(),
        created_at: Some(detail.event.created_at),
    };
    selection.add(destination, row)?;
    Ok(true)
}

/// The failure for an event that cannot be sent again: where it stands.
async fn not_passed(store: &Store, text: &str) -> Result<Failure, Failure> {
    let id = hint::event_id(store, text).await?;
    let detail = match store.operator.event(id).await {
        Ok(detail) => detail,
        Err(error) => return Ok(hint::on_event(store, id, error).await),
    };
    Ok(Failure::plain(format!("event {id} was not sent yet, or cannot be sent again"))
        .advice(format!("Nothing was changed. It stands at {}.", hint::stands(&detail))))
}

async fn cancel(args: &CancelArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let id = hint::event_id(&store, &args.id).await?;
    let answered = |outcome| CancelledEvent { id, outcome };
    let out = args.global.out();
    match store.operator.cancel(id, &by).await? {
        Cancelled::Cancelled => {
            terminal::note("it will not be delivered");
            out.one(&answered("cancelled"), || "cancelled\n".to_owned())?;
            Ok(Exit::Success)
        }
        Cancelled::TooLate => {
            terminal::note(&format!(
                "too late: it has entered the outbox; what became of it: postrider outbox show {id}"
            ));
            out.one(&answered("too_late"), || "too_late\n".to_owned())?;
            Ok(Exit::Failure)
        }
        Cancelled::Unknown => Err(hint::unknown(&store, id).await),
    }
}

/// Writes one event with everything that is known of it.
///
/// # Errors
/// If there is none: with the nearest.
pub(crate) async fn show_event(
    store: &Store,
    global: &Global,
    id: EventId,
) -> Result<Exit, Failure> {
    let detail = match store.operator.event(id).await {
        Ok(detail) => Detail::from(detail),
        Err(error) => return Err(hint::on_event(store, id, error).await),
    };
    global.out().one(&detail, || sheet(&detail))?;
    Ok(Exit::Success)
}

/// An event on a page.
fn sheet(detail: &Detail) -> String {
    let now = postrider_core::Timestamp::now();
    let mut text = String::new();
    let mut field = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12}{}", clean(value));
    };
    field("id", &detail.id.to_string());
    field("type", &format!("{}, version {}", detail.event_type, detail.event_version));
    field("key", &detail.key);
    field("aggregate", &format!("{} {}", detail.aggregate_type, detail.aggregate_id));
    field("source", &detail.source);
    for (name, value) in [("tenant", &detail.tenant), ("encoding", &detail.encoding)] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    if let Some(seq) = detail.seq {
        field("seq", &seq.to_string());
    }
    let moment =
        |time: postrider_core::Timestamp| format!("{time} ({})", crate::age::relative(time, now));
    field("occurred", &moment(detail.occurred_at));
    field("created", &moment(detail.created_at));
    if let Some(due) = detail.due {
        field("due", &moment(due));
    }
    for (name, value) in &detail.headers {
        field("header", &format!("{name}: {value}"));
    }
    let size = terminal::count(detail.payload_bytes);
    field("payload", &format!("{}, {size} bytes", detail.content_type));
    text.push_str(&payload(detail));
    let width = output::stdout_width();
    let style = terminal::stdout_style();
    if !detail.deliveries.is_empty() {
        text.push('\n');
        text.push_str(&Table::of(&detail.deliveries, now).render(width, style, true));
    }
    if !detail.behind.is_empty() {
        text.push_str("\nit waits behind:\n");
        text.push_str(&Table::of(&detail.behind, now).render(width, style, true));
    }
    text
}

/// The payload as lines, indented.
fn payload(detail: &Detail) -> String {
    let shown = match (&detail.payload, &detail.payload_base64) {
        (Some(json), _) => clean_lines(json.get()),
        (None, Some(base64)) => base64.clone(),
        (None, None) if detail.erased => "(erased)".to_owned(),
        (None, None) => String::new(),
    };
    shown.lines().map(|line| format!("  {line}\n")).collect()
}
