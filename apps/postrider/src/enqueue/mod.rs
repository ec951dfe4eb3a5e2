//! `postrider enqueue`: events by hand, for tests, scripts, and repairs.
//!
//! Invariant: an id is written to standard output after the transaction with its event has committed,
//! never before.

mod line;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use postrider_core::cloudevents::DOCUMENT_BYTES_MAX;
use postrider_core::operate::DestinationView;
use postrider_core::{
    DestinationState, Error, ErrorKind, EventLimits, NewEvent, Payload, Timestamp,
};

use crate::age;
use crate::failure::{Exit, Failure};
use crate::global::{Global, Store};
use crate::output::Out;
use crate::shape::Enqueued;
use crate::terminal::{count, note};

/// Events of one transaction, if the store takes as many: the write lock is held for some milliseconds.
const BATCH_ROWS: usize = 1_000;

/// What is read at once: more than a pipe gives, so that a full batch comes of many short lines.
const READ_BYTES: usize = 256 * 1024;

/// Bytes of one transaction: what is held in memory at once.
const BATCH_BYTES: u64 = 4 * 1024 * 1024;

/// Commit events of your own, outside of an application
///
/// For tests, scripts, and repairs. Applications enqueue in the transaction of
/// their change, which this cannot. With --ndjson one event per line is read:
/// a CloudEvent, or
///   {"aggregate_type": "order", "aggregate_id": "42", "type": "order.placed",
///    "payload": {"cents": 1250}}
/// and optionally key, tenant, headers, id, source, version, content_type,
/// occurred_at, deliver_after, and payload_base64. The ids are printed.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  postrider enqueue --aggregate-type order --aggregate-id 42 \\
    --type order.placed --payload '{\"cents\": 1250}'
  postrider enqueue --aggregate-type order --aggregate-id 42 \\
    --type order.reminded --payload @reminder.json --after 2h
  postrider enqueue --ndjson events.ndjson
  ./make-events | postrider enqueue --ndjson - --output json"
)]
pub(crate) struct EnqueueArgs {
    /// The kind of thing it happened to
    #[arg(long, value_name = "NAME", required_unless_present = "ndjson",
          value_parser = NonEmptyStringValueParser::new())]
    aggregate_type: Option<String>,
    /// Which one of them
    #[arg(long, value_name = "ID", required_unless_present = "ndjson",
          value_parser = NonEmptyStringValueParser::new())]
    aggregate_id: Option<String>,
    /// What happened
    #[arg(long = "type", value_name = "NAME", required_unless_present = "ndjson",
          value_parser = NonEmptyStringValueParser::new())]
    event_type: Option<String>,
    /// What it says: JSON, @FILE, or - for standard input; default null
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The ordering key; default the aggregate
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A header; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Deliver not before so long from now, like 10m or 2h
    #[arg(long, value_name = "AGE", value_parser = age::span, conflicts_with = "at")]
    after: Option<Duration>,
    /// Deliver not before this moment: 2026-11-21T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = age::time)]
    at: Option<Timestamp>,
    /// One event per line of this file; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "aggregate_type", "aggregate_id", "event_type", "payload", "key", "headers", "tenant",
        "after", "at",
    ])]
    ndjson: Option<PathBuf>,
    #[command(flatten)]
    global: Global,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a header is written NAME=VALUE".to_owned()),
    }
}

pub(crate) async fn run(args: EnqueueArgs) -> Result<Exit, Failure> {
    match &args.ndjson {
        Some(path) => many(&args, path).await,
        None => one(&args).await,
    }
}

async fn one(args: &EnqueueArgs) -> Result<Exit, Failure> {
    let event = described(args)?;
    let store = open(args).await?;
    must_have_room(&store).await?;
    let ids = store.operator.stage(&[event]).await?;
    let rows = ids.into_iter().map(|id| Enqueued { id }).collect();
    let mut out = args.global.out();
    ids_only(&mut out, rows)?;
    out.end(None)?;
    Ok(Exit::Success)
}

/// Opens a store whose outbox a relay reads.
async fn open(args: &EnqueueArgs) -> Result<Store, Failure> {
    let store = args.global.open_to_enqueue().await?;
    let Some(table) = &store.own_table else { return Ok(store) };
    Err(Failure::plain(format!(
        "the relay reads `{table}` in place of the outbox: nobody would get the events"
    ))
    .advice("Nothing was committed. Insert rows into the table."))
}

/// Refuses while more is undelivered than the configuration allows.
async fn must_have_room(store: &Store) -> Result<(), Failure> {
    let Some(rows) = store.watermark else {
        return Ok(());
    };
    let overview = store.operator.overview().await?;
    let active = |view: &&DestinationView| view.state == DestinationState::Active;
    let backlog = overview.destinations.iter().filter(active).map(|view| view.pending).max();
    match backlog {
        Some(backlog) if backlog > rows => {
            Err(Failure::from(Error::new(ErrorKind::Backpressure, "enqueue").message(format!(
                "{backlog} events are not delivered yet, the watermark is {rows}"
            ))))
        }
        _ => Ok(()),
    }
}

/// Ids, one per line where people read: to be taken up by a shell.
fn ids_only(out: &mut Out, rows: Vec<Enqueued>) -> Result<(), Failure> {
    match out.format() {
        crate::output::Format::Table => {
            let text: String = rows.iter().map(|row| format!("{}\n", row.id)).collect();
            crate::output::write(&text)
        }
        _ => out.documents_of_page(rows),
    }
}

/// The event that the flags describe.
fn described(args: &EnqueueArgs) -> Result<NewEvent, Failure> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut event =
        NewEvent::new(text(&args.aggregate_type), text(&args.aggregate_id), text(&args.event_type));
    if let Some(payload) = &args.payload {
        let payload = Payload::json(payload_text(payload)?)
            .map_err(|e| Failure::from(e).advice("Nothing was committed.").exit_as(Exit::Usage))?;
        event = event.payload(payload, "application/json");
    }
    if let Some(key) = &args.key {
        event = event.ordered_by(key);
    }
    for (name, value) in &args.headers {
        event = event.header(name, value);
    }
    if let Some(tenant) = &args.tenant {
        event = event.tenant(tenant);
    }
    let due = args.at.or_else(|| args.after.map(|after| Timestamp::now().plus(after)));
    Ok(match due {
        Some(due) => event.deliver_after(due),
        None => event,
    })
}

/// The text behind `--payload`: itself, a file, or standard input. Never more than an event may have.
fn payload_text(given: &str) -> Result<String, Failure> {
    let limit = EventLimits::default().payload_bytes_max;
    let read = |name: &str, source: &mut dyn io::Read| {
        let mut text = String::new();
        let mut source = source.take(limit.saturating_add(1));
        source
            .read_to_string(&mut text)
            .map_err(|e| Failure::plain(format!("{name}: {e}")).advice("Nothing was committed."))?;
        if text.len() as u64 > limit {
            return Err(Failure::plain(format!("{name}: longer than {} bytes", count(limit)))
                .advice("Nothing was committed. Keep large data elsewhere, and send where it is.")
                .exit_as(Exit::Usage));
        }
        Ok(text)
    };
    match given.strip_prefix('@') {
        Some(path) => {
            let mut file = File::open(path).map_err(|e| {
                Failure::plain(format!("{path}: {e}")).advice("Nothing was committed.")
            })?;
            read(path, &mut file)
        }
        None if given == "-" => read("standard input", &mut io::stdin().lock()),
        None => Ok(given.to_owned()),
    }
}

/// What was committed so far.
struct Progress {
    out: Out,
    batch: Vec<NewEvent>,
    bytes: u64,
    /// Lines whose events are committed.
    committed: u64,
    /// The line of each event of the batch.
    lines: Vec<u64>,
}

impl Progress {
    async fn commit(&mut self, store: &Store) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        must_have_room(store).await?;
        self.bytes = 0;
        while !self.batch.is_empty() {
            // In transactions as large as the store's may be, each told of when it is committed.
            let fits = store.operator.stage_max(&self.batch).clamp(1, self.batch.len());
            let ids = store.operator.stage(&self.batch[..fits]).await?;
            self.committed += fits as u64;
            self.batch.drain(..fits);
            self.lines.drain(..fits);
            let ids = ids.into_iter().map(|id| Enqueued { id }).collect();
            match ids_only(&mut self.out, ids) {
                // Nobody reads the ids any more; the events that are still to come are committed.
                Err(failure) if failure.is_silent() => {}
                written => written?,
            }
        }
        Ok(())
    }
}

async fn many(args: &EnqueueArgs, path: &PathBuf) -> Result<Exit, Failure> {
    let store = open(args).await?;
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(path).map_err(|e| {
            Failure::plain(format!("{}: {e}", path.display())).advice("Nothing was committed.")
        })?),
    };
    let mut lines = BufReader::with_capacity(READ_BYTES, source);
    let mut progress = Progress {
        out: args.global.out(),
        batch: Vec::new(),
        bytes: 0,
        committed: 0,
        lines: Vec::new(),
    };
    let mut number = 0;
    loop {
        let outcome = next(&mut lines, &mut number);
        let stop = match outcome {
            Ok(Some(event)) => {
                progress.lines.push(number);
                progress.bytes += event.event().size_bytes();
                progress.batch.push(event);
                // What was read is all there is for the moment: nobody waits for a full batch.
                let idle = lines.buffer().is_empty();
                let full = progress.batch.len() >= BATCH_ROWS || progress.bytes >= BATCH_BYTES;
                if !full && !idle {
                    continue;
                }
                None
            }
            Ok(None) => Some(Ok(())),
            Err(message) => Some(Err(message)),
        };
        // What stands before a line that cannot be read is committed, and said to be.
        if let Err(failure) = progress.commit(&store).await {
            let (first, last) = (progress.lines.first().copied().unwrap_or(number), number);
            let failure = failure.within(&format!("lines {first} to {last}"));
            return Err(failure.advice(went_in(progress.committed)));
        }
        match stop {
            None => {}
            Some(Ok(())) => break,
            Some(Err(message)) => {
                return Err(Failure::plain(format!("line {number}: {message}"))
                    .advice(went_in(progress.committed)));
            }
        }
    }
    progress.out.end(None)?;
    note(&format!("{} events are committed", count(progress.committed)));
    Ok(Exit::Success)
}

/// What a person does after a failure in the middle.
fn went_in(committed: u64) -> String {
    format!(
        "The {} events before it are committed, and their ids were printed; go on behind them.",
        count(committed)
    )
}

/// The event of the next line that is not empty.
fn next(lines: &mut dyn BufRead, number: &mut u64) -> Result<Option<NewEvent>, String> {
    loop {
        *number += 1;
        let mut line = Vec::new();
        let mut limited = lines.take(DOCUMENT_BYTES_MAX as u64 + 1);
        limited.read_until(b'\n', &mut line).map_err(|e| e.to_string())?;
        match line.trim_ascii() {
            _ if line.is_empty() => return Ok(None),
            [] => {}
            document if document.len() > DOCUMENT_BYTES_MAX => {
                return Err(format!("longer than {} bytes", count(DOCUMENT_BYTES_MAX as u64)));
            }
            document => return line::read(document).map(Some),
        }
    }
}
