//! Changes of deliveries: what would be changed, and how far it is.

use postrider_core::operate::RequestState;
use postrider_core::{EventId, Timestamp};
use serde::Serialize;

use crate::age;
use crate::table::{Cell, Column, Fit, Tabular, Tone};

/// What a command would change: the answer to `--dry-run`.
#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    /// `redrive`, `discard`, or `requeue`.
    pub(crate) verb: String,
    /// How many deliveries.
    pub(crate) count: u64,
    /// How many of each kind, most first.
    pub(crate) by: Vec<PlanGroup>,
    /// The first of them, at most 5.
    pub(crate) first: Vec<Affected>,
}

/// Deliveries that a command would change and that have these in common.
#[derive(Debug, Serialize)]
pub(crate) struct PlanGroup {
    /// How many.
    pub(crate) count: u64,
    /// At which destination.
    pub(crate) destination: String,
    /// What happened; `null` where the rows cannot be read.
    pub(crate) event_type: Option<String>,
    /// Why they wait, or their status where they do not.
    pub(crate) reason: String,
}

impl Tabular for PlanGroup {
    fn columns() -> &'static [Column] {
        &[
            ("COUNT", Fit::Number),
            ("DESTINATION", Fit::Text),
            ("TYPE", Fit::Text),
            ("REASON", Fit::Whole),
        ]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        vec![
            self.count.into(),
            (&*self.destination).into(),
            self.event_type.as_deref().into(),
            (&*self.reason).into(),
        ]
    }
}

/// One delivery that a command would change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Affected {
    /// At which destination.
    pub(crate) destination: String,
    /// The store's number of the event.
    pub(crate) seq: u64,
    /// The event's id; `null` where the row cannot be read.
    pub(crate) id: Option<EventId>,
    /// What happened; `null` where the row cannot be read.
    pub(crate) event_type: Option<String>,
    /// The ordering key.
    pub(crate) key: String,
    /// Why it waits, or its status where it does not.
    pub(crate) reason: String,
    /// When the event's row was written.
    pub(crate) created_at: Option<Timestamp>,
}

impl Tabular for Affected {
    fn columns() -> &'static [Column] {
        &[
            ("ID", Fit::Whole),
            ("TYPE", Fit::Text),
            ("KEY", Fit::Text),
            ("CREATED", Fit::Extra),
            ("DESTINATION", Fit::Extra),
            ("SEQ", Fit::ExtraNumber),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let id =
            self.id.map_or_else(|| format!("unreadable, seq {}", self.seq), |id| id.to_string());
        vec![
            id.into(),
            self.event_type.as_deref().into(),
            (&*self.key).into(),
            self.created_at.map(|time| age::relative(time, now)).as_deref().into(),
            (&*self.destination).into(),
            self.seq.to_string().into(),
        ]
    }
}

/// What was asked of the partitions' owners, and how far it is: `dead redrive` and its like.
#[derive(Debug, Serialize)]
pub(crate) struct Request {
    /// The request's number.
    pub(crate) request: u64,
    /// `redrive`, `discard`, `requeue`, `enable`, or `rewind`.
    pub(crate) verb: String,
    /// Rows, or partitions.
    pub(crate) total: u64,
    /// Those that are done.
    pub(crate) done: u64,
    /// Those that were left alone, because they were not in the state any more in which they were
    /// counted.
    pub(crate) skipped: u64,
    /// Whether nothing is left to do.
    pub(crate) finished: bool,
    /// Who asked.
    pub(crate) who: String,
    /// Why.
    pub(crate) reason: String,
    /// The relay that did the last part.
    pub(crate) relay: Option<String>,
}

impl From<RequestState> for Request {
    fn from(state: RequestState) -> Request {
        Request {
            request: state.id.0,
            verb: state.verb,
            total: state.total,
            done: state.done,
            skipped: state.skipped,
            finished: state.finished,
            who: state.who,
            reason: state.why,
            relay: state.relay,
        }
    }
}

impl Tabular for Request {
    fn columns() -> &'static [Column] {
        &[
            ("REQUEST", Fit::Number),
            ("VERB", Fit::Whole),
            ("TOTAL", Fit::Number),
            ("DONE", Fit::Number),
            ("SKIPPED", Fit::Number),
            ("STATE", Fit::Whole),
        ]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        let state = match self.finished {
            true => Cell::toned("finished", Tone::Good),
            false => Cell::toned("open", Tone::Notable),
        };
        vec![
            self.request.to_string().into(),
            (&*self.verb).into(),
            self.total.into(),
            self.done.into(),
            self.skipped.into(),
            state,
        ]
    }
}
