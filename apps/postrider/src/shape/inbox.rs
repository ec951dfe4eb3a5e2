//! The inbox, the audit, and answers of a few words.

use postrider_core::operate::{AuditEntry, DestinationView, Difference, Erasure, InboxView};
use postrider_core::{EventId, HandlerName, Timestamp};
use serde::Serialize;

use crate::age;
use crate::table::{Cell, Column, Fit, Tabular, Tone};
use crate::terminal::count;

/// A row of the inbox without its result: `inbox ls`, `inbox show`.
#[derive(Debug, Serialize)]
pub(crate) struct InboxRow {
    /// Who said it.
    pub(crate) source: String,
    /// The event's id.
    pub(crate) event_id: EventId,
    /// Who acts on it.
    pub(crate) handler: String,
    /// What happened.
    pub(crate) event_type: String,
    /// `leased`, `expired`, `processed`, or `forgotten`.
    pub(crate) state: &'static str,
    /// Claims so far.
    pub(crate) attempts: u32,
    /// When it was first seen.
    pub(crate) received_at: Timestamp,
    /// When it was done, or forgotten.
    pub(crate) ended_at: Option<Timestamp>,
    /// How long the lease still runs.
    pub(crate) lease_left_seconds: Option<f64>,
    /// The steps whose results are stored.
    pub(crate) steps: Vec<String>,
    /// The size of the stored result.
    pub(crate) result_bytes: u64,
    /// Who forgot it, and why.
    pub(crate) forgotten_by: Option<String>,
}

impl From<InboxView> for InboxRow {
    fn from(view: InboxView) -> InboxRow {
        InboxRow {
            source: view.source,
            event_id: view.event_id,
            handler: view.handler,
            event_type: view.event_type,
            state: view.state.as_str(),
            attempts: view.attempts,
            received_at: view.received_at,
            ended_at: view.ended_at,
            lease_left_seconds: view.lease_left.map(|left| left.as_secs_f64()),
            steps: view.steps,
            result_bytes: view.result_bytes,
            forgotten_by: view.forgotten_by,
        }
    }
}

impl Tabular for InboxRow {
    fn columns() -> &'static [Column] {
        &[
            ("ID", Fit::Whole),
            ("HANDLER", Fit::Text),
            ("STATE", Fit::Whole),
            ("RECEIVED", Fit::Whole),
            ("TYPE", Fit::Extra),
            ("ATTEMPTS", Fit::ExtraNumber),
            ("ENDED", Fit::Extra),
            ("STEPS", Fit::Extra),
            ("SOURCE", Fit::Extra),
            ("FORGOTTEN BY", Fit::Extra),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let tone = match self.state {
            "processed" => Tone::Good,
            "leased" => Tone::Plain,
            _ => Tone::Notable,
        };
        vec![
            self.event_id.to_string().into(),
            (&*self.handler).into(),
            Cell::toned(self.state, tone),
            age::relative(self.received_at, now).into(),
            (&*self.event_type).into(),
            self.attempts.into(),
            self.ended_at.map(|time| age::relative(time, now)).as_deref().into(),
            self.steps.join(", ").into(),
            (&*self.source).into(),
            self.forgotten_by.as_deref().into(),
        ]
    }
}

/// The answer of `inbox forget` and `inbox mark-processed`.
#[derive(Debug, Serialize)]
pub(crate) struct InboxChange {
    /// The event's id.
    pub(crate) event_id: EventId,
    /// Whose row.
    pub(crate) handler: String,
    /// `forgotten`, `would_forget`, `marked`, or `already_processed`.
    pub(crate) outcome: &'static str,
}

impl InboxChange {
    pub(crate) fn of(id: &EventId, handler: &HandlerName, outcome: &'static str) -> InboxChange {
        InboxChange { event_id: *id, handler: handler.to_string(), outcome }
    }
}

/// A row of the audit.
#[derive(Debug, Serialize)]
pub(crate) struct Audited {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// When.
    pub(crate) at: Timestamp,
    /// Who.
    pub(crate) who: String,
    /// What: the command's name.
    pub(crate) what: String,
    /// To what, and how many.
    pub(crate) subject: String,
    /// Why.
    pub(crate) reason: String,
}

impl From<AuditEntry> for Audited {
    fn from(entry: AuditEntry) -> Audited {
        let AuditEntry { number, at, who, why, what, subject } = entry;
        Audited { number, at, who, what, subject, reason: why }
    }
}

impl Tabular for Audited {
    fn columns() -> &'static [Column] {
        &[
            ("WHEN", Fit::Whole),
            ("WHO", Fit::Text),
            ("WHAT", Fit::Whole),
            ("SUBJECT", Fit::Text),
            ("REASON", Fit::Text),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            age::relative(self.at, now).into(),
            (&*self.who).into(),
            (&*self.what).into(),
            (&*self.subject).into(),
            (&*self.reason).into(),
        ]
    }
}

/// How many: the answer of a `--dry-run` that has nothing more to say.
#[derive(Debug, Serialize)]
pub(crate) struct Counted {
    /// How many.
    pub(crate) count: u64,
}

/// What goes with a destination: the answer of `destinations remove`.
#[derive(Debug, Serialize)]
pub(crate) struct Removal {
    /// Which destination.
    pub(crate) destination: String,
    /// Events that it has not passed and never gets.
    pub(crate) pending: u64,
    /// Events that were to be tried again, with those behind them.
    pub(crate) waiting: u64,
    /// Dead letters.
    pub(crate) dead: u64,
}

impl From<&DestinationView> for Removal {
    fn from(view: &DestinationView) -> Removal {
        Removal {
            destination: view.id.to_string(),
            pending: view.pending,
            waiting: view.waiting.total() - view.waiting.dead,
            dead: view.waiting.dead,
        }
    }
}

impl Removal {
    /// For people.
    pub(crate) fn sheet(&self) -> String {
        sheet(&[("pending", self.pending), ("waiting", self.waiting), ("dead", self.dead)])
    }
}

/// What an erasure reaches, or has reached: `erase`.
#[derive(Debug, Serialize)]
pub(crate) struct Erased {
    /// The ordering key.
    pub(crate) key: String,
    /// Whether it was done.
    pub(crate) erased: bool,
    /// Events in the outbox.
    pub(crate) outbox: u64,
    /// Copies of events that wait.
    pub(crate) waiting: u64,
    /// Scheduled events.
    pub(crate) scheduled: u64,
    /// Results in the inbox of this store, steps included.
    pub(crate) inbox: u64,
    /// All of them.
    pub(crate) total: u64,
}

impl Erased {
    pub(crate) fn of(key: &str, erasure: Erasure, erased: bool) -> Erased {
        let Erasure { outbox, waiting, scheduled, inbox } = erasure;
        let total = erasure.total();
        Erased { key: key.to_owned(), erased, outbox, waiting, scheduled, inbox, total }
    }

    /// For people.
    pub(crate) fn sheet(&self) -> String {
        sheet(&[
            ("outbox", self.outbox),
            ("waiting", self.waiting),
            ("scheduled", self.scheduled),
            ("inbox", self.inbox),
            ("total", self.total),
        ])
    }
}

pub(super) fn sheet(rows: &[(&str, u64)]) -> String {
    rows.iter().map(|(name, number)| format!("  {name:<10}{:>12}\n", count(*number))).collect()
}

/// A bucket of the settled log that does not agree with the outbox: a row of `reconcile`.
#[derive(Debug, Serialize)]
pub(crate) struct Differs {
    /// At which destination.
    pub(crate) destination: String,
    /// In which partition.
    pub(crate) partition: u16,
    /// The first number of the bucket.
    pub(crate) first_seq: u64,
    /// The last number that the cursor covers.
    pub(crate) last_seq: u64,
    /// How many events the settled log counts.
    pub(crate) settled: u64,
    /// How many events the outbox has.
    pub(crate) found: u64,
    /// How many a requeue sends again, late.
    pub(crate) requeue: u64,
}

impl Differs {
    pub(crate) fn of(destination: &str, difference: &Difference) -> Differs {
        Differs {
            destination: destination.to_owned(),
            partition: difference.partition.0,
            first_seq: difference.first,
            last_seq: difference.last,
            settled: difference.settled,
            found: difference.found,
            requeue: difference.requeue.len() as u64,
        }
    }
}

impl Tabular for Differs {
    fn columns() -> &'static [Column] {
        &[
            ("DESTINATION", Fit::Text),
            ("PARTITION", Fit::Number),
            ("FIRST SEQ", Fit::Number),
            ("LAST SEQ", Fit::Number),
            ("SETTLED", Fit::Number),
            ("FOUND", Fit::Number),
            ("REQUEUE", Fit::Number),
        ]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        vec![
            (&*self.destination).into(),
            self.partition.to_string().into(),
            self.first_seq.to_string().into(),
            self.last_seq.to_string().into(),
            self.settled.into(),
            self.found.into(),
            self.requeue.into(),
        ]
    }
}

/// The answer of `repair sequence`.
#[derive(Debug, Serialize)]
pub(crate) struct Repaired {
    /// The sequence as it was.
    pub(crate) before: u64,
    /// The sequence as it is.
    pub(crate) after: u64,
    /// Events that had numbers which were passed already, and got new ones.
    pub(crate) renumbered: u64,
    /// Cursors that begin anew where they stood.
    pub(crate) cursors: u64,
}

impl From<postrider_postgres::SequenceRepair> for Repaired {
    fn from(done: postrider_postgres::SequenceRepair) -> Repaired {
        let postrider_postgres::SequenceRepair { before, after, renumbered, cursors } = done;
        Repaired { before, after, renumbered, cursors }
    }
}

/// The answer of `repair partitions`.
#[derive(Debug, Serialize)]
pub(crate) struct Moved {
    /// Events that are in another partition now.
    pub(crate) moved: u64,
}

/// The answer of `adopt`.
#[derive(Debug, Serialize)]
pub(crate) struct Adopted {
    /// The store's name.
    pub(crate) store: String,
}

/// The answer of `outbox cancel`.
#[derive(Debug, Serialize)]
pub(crate) struct CancelledEvent {
    /// The event's id.
    pub(crate) id: EventId,
    /// `cancelled`, `too_late`, or `unknown`.
    pub(crate) outcome: &'static str,
}

/// An event that was staged: a row of `enqueue`.
#[derive(Debug, Serialize)]
pub(crate) struct Enqueued {
    /// Its id.
    pub(crate) id: EventId,
}
