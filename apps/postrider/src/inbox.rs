//! `postrider inbox`: what handlers were done with, and correcting it by hand.
//!
//! Invariant: nothing of the inbox is forgotten without a reason, an audit row, and a tombstone.

use clap::{Args, Subcommand, ValueEnum};
use postrider_core::operate::{Forgotten, InboxFilter, InboxName, InboxState, Marked, PageRequest};
use postrider_core::{EventId, Glob, HandlerName};

use crate::age::{Moment, moment, short};
use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::filter::{self, PageArgs};
use crate::global::{Global, Store};
use crate::reason::MustGiveReason;
use crate::shape::{InboxChange, InboxRow};
use crate::terminal::note;

/// The inbox: which handler was done with which event
#[derive(Args, Debug)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    command: InboxCommand,
}

#[derive(Debug, Subcommand)]
enum InboxCommand {
    Ls(LsArgs),
    Show(ShowArgs),
    Forget(ForgetArgs),
    MarkProcessed(MarkArgs),
}

/// List what handlers have seen, newest first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider inbox ls --handler mail
  postrider inbox ls --state expired
  postrider inbox ls --all --output ndjson")]
struct LsArgs {
    /// Of this event
    #[arg(long, value_name = "ID")]
    id: Option<EventId>,
    /// Of this handler
    #[arg(long, value_name = "NAME")]
    handler: Option<HandlerName>,
    /// Of this source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Of a type, like 'order.*'
    #[arg(long = "type", value_name = "GLOB")]
    event_type: Option<String>,
    /// In this state: leased, expired, processed, or forgotten
    #[arg(long, value_name = "STATE", hide_possible_values = true)]
    state: Option<State>,
    /// Received at or after: 2026-11-21T10:00:00Z, or an age like 2h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Moment>,
    /// Received before
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Moment>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    global: Global,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    Leased,
    Expired,
    Processed,
    Forgotten,
}

impl From<State> for InboxState {
    fn from(state: State) -> InboxState {
        match state {
            State::Leased => InboxState::Leased,
            State::Expired => InboxState::Expired,
            State::Processed => InboxState::Processed,
            State::Forgotten => InboxState::Forgotten,
        }
    }
}

/// Show what each handler did with an event
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider inbox show 01941f29-7c00-7000-8000-000000000001
  postrider inbox show 01941f29-7c00-7000-8000-000000000001 \\
    --handler mail --output json")]
struct ShowArgs {
    #[command(flatten)]
    row: RowArgs,
    /// Which handler; else all of them
    #[arg(long, value_name = "NAME")]
    handler: Option<HandlerName>,
    #[command(flatten)]
    global: Global,
}

/// Which event.
#[derive(Args, Clone, Debug)]
struct RowArgs {
    /// Which event
    #[arg(value_name = "ID")]
    id: EventId,
    /// Who said it, where several sources have the id
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
}

/// Forget that a handler was done, so that its next delivery acts again
///
/// Its effect happens a second time if it happened before: look first. A
/// tombstone stays, and names who did it. Refused while the handler is at it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider inbox forget 01941f29-7c00-7000-8000-000000000001 \\
    --handler mail --reason 'the mail bounced; send it again'
  postrider dead redrive 01941f29-7c00-7000-8000-000000000001")]
struct ForgetArgs {
    #[command(flatten)]
    row: RowArgs,
    /// Which handler
    #[arg(long, value_name = "NAME")]
    handler: HandlerName,
    /// Show what would be forgotten, and change nothing
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

/// Record that a handler is done, because a person did its work by hand
///
/// Deliveries of the event after this are duplicates to the handler. Refused
/// while the handler is at it.
#[derive(Args, Debug)]
#[command(
    override_usage = "\
postrider inbox mark-processed [OPTIONS] --handler <NAME>
                                      --reason <TEXT> <ID>",
    after_help = "\
Examples:
  postrider inbox mark-processed 01941f29-7c00-7000-8000-000000000001 \\
    --handler charge --source /shop --reason 'charged by hand'"
)]
struct MarkArgs {
    #[command(flatten)]
    row: RowArgs,
    /// Which handler
    #[arg(long, value_name = "NAME")]
    handler: HandlerName,
    #[command(flatten)]
    by: MustGiveReason,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: InboxArgs) -> Result<Exit, Failure> {
    match args.command {
        InboxCommand::Ls(args) => ls(&args).await,
        InboxCommand::Show(args) => show(&args).await,
        InboxCommand::Forget(args) => forget(&args).await,
        InboxCommand::MarkProcessed(args) => mark(&args).await,
    }
}

async fn ls(args: &LsArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let out = args.global.out();
    let mut asked = InboxFilter::default();
    asked.event_id = args.id;
    asked.handler = args.handler.clone();
    asked.source = args.source.clone();
    asked.event_type = args.event_type.clone().map(Glob::new);
    asked.state = args.state.map(InboxState::from);
    asked.since = args.since.map(|moment| moment.at(out.now()));
    asked.until = args.until.map(|moment| moment.at(out.now()));
    filter::list::<_, InboxRow>(out, &args.page, async |page| {
        store.operator.inbox(&asked, page).await
    })
    .await
}

async fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let rows = rows(&store, &args.row, args.handler.as_ref()).await?;
    if rows.is_empty() {
        return Err(nothing(&args.row, args.handler.as_ref()));
    }
    args.global.out().rows::<InboxRow>(rows)?;
    Ok(Exit::Success)
}

async fn forget(args: &ForgetArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let rows = rows(&store, &args.row, Some(&args.handler)).await?;
    let Some(row) = rows.first() else {
        return Err(nothing(&args.row, Some(&args.handler)));
    };
    if rows.len() > 1 {
        let sources: Vec<&str> = rows.iter().map(|row| &*row.source).collect();
        return Err(Failure::plain("several sources have this id")
            .advice(format!("Nothing was changed. Add --source, one of {}.", sources.join(", ")))
            .exit_as(Exit::Usage));
    }
    note(&format!(
        "1 row: {} was {} by {} after {} attempts; a tombstone stays",
        row.event_id, row.state, row.handler, row.attempts
    ));
    if args.dry_run {
        args.global
            .out()
            .one(&InboxChange::of(&args.row.id, &args.handler, "would_forget"), || {
                "1\n".to_owned()
            })?;
        return Ok(Exit::Success);
    }
    note("its next delivery acts again: an effect that happened happens a second time");
    let question = format!("forget it for {}?", args.handler);
    if let Answer::Stop(exit) = confirm::yes(args.yes, &question).await? {
        return Ok(exit);
    }
    let name = InboxName {
        source: Some(row.source.clone()),
        event_id: args.row.id,
        handler: args.handler.clone(),
    };
    match store.operator.forget(&name, &by).await? {
        Forgotten::Forgotten => {
            note("it is forgotten; to deliver it again: postrider outbox requeue, or dead redrive");
            done(&args.global, &args.row.id, &args.handler, "forgotten")
        }
        Forgotten::Leased { left } => Err(leased(&args.handler, left)),
        Forgotten::Unknown => Err(nothing(&args.row, Some(&args.handler))),
    }
}

async fn mark(args: &MarkArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    let name = InboxName {
        source: args.row.source.clone(),
        event_id: args.row.id,
        handler: args.handler.clone(),
    };
    match store.operator.mark_processed(&name, &by).await? {
        Marked::Marked => {
            note(&format!("{} counts as done by {}", args.row.id, args.handler));
            done(&args.global, &args.row.id, &args.handler, "marked")
        }
        Marked::Already => {
            note("it was done already: nothing was changed");
            done(&args.global, &args.row.id, &args.handler, "already_processed")
        }
        Marked::Leased { left } => Err(leased(&args.handler, left)),
    }
}

fn done(
    global: &Global,
    id: &EventId,
    handler: &HandlerName,
    outcome: &'static str,
) -> Result<Exit, Failure> {
    global.out().one(&InboxChange::of(id, handler, outcome), || format!("{outcome}\n"))?;
    Ok(Exit::Success)
}

/// The rows of an event: one for each handler and source.
async fn rows(
    store: &Store,
    row: &RowArgs,
    handler: Option<&HandlerName>,
) -> Result<Vec<InboxRow>, Failure> {
    let mut asked = InboxFilter::default();
    asked.event_id = Some(row.id);
    asked.source = row.source.clone();
    asked.handler = handler.cloned();
    let page = PageRequest { after: None, limit: filter::CHUNK };
    let listed = store.operator.inbox(&asked, &page).await?;
    Ok(listed.rows.into_iter().map(InboxRow::from).collect())
}

fn nothing(row: &RowArgs, handler: Option<&HandlerName>) -> Failure {
    let who = handler.map_or_else(|| "a handler".to_owned(), |handler| format!("`{handler}`"));
    Failure::plain(format!("the inbox of this store has no row of {who} for event {}", row.id))
        .advice(
            "Nothing was changed. The handler has not seen it, its row was purged, or its inbox is \
             in another store.",
        )
}

fn leased(handler: &HandlerName, left: std::time::Duration) -> Failure {
    Failure::plain(format!("{handler} is at it now")).advice(format!(
        "Nothing was changed. Its lease ends in {} at most; try again then.",
        short(left)
    ))
}
