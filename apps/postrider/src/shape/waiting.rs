//! Events that wait: for a retry, behind another, for a person, or for their time.

use postrider_core::operate::{ScheduledView, Status, WaitingView};
use postrider_core::{EventId, Timestamp};
use serde::Serialize;

use super::tone;
use crate::age;
use crate::table::{Cell, Column, Fit, Tabular};

/// An event that left its order: a row of `dead ls`.
#[derive(Debug, Serialize)]
pub(crate) struct Waiting {
    /// At which destination.
    pub(crate) destination: String,
    /// In which partition.
    pub(crate) partition: u16,
    /// The store's number of the event.
    pub(crate) seq: u64,
    /// The event's id; `null` where the row cannot be read.
    pub(crate) id: Option<EventId>,
    /// What happened; `null` where the row cannot be read.
    pub(crate) event_type: Option<String>,
    /// The ordering key.
    pub(crate) key: String,
    /// The tenant.
    pub(crate) tenant: Option<String>,
    /// When the event's row was written.
    pub(crate) created_at: Option<Timestamp>,
    /// `retrying`, `parked`, `held`, `disabled`, `dead`, or `discarded`.
    pub(crate) status: Status,
    /// Attempts that counted.
    pub(crate) attempts: u32,
    /// Why it waits.
    pub(crate) reason: String,
    /// What was answered last.
    pub(crate) detail: String,
    /// Its endpoint, where that is disabled.
    pub(crate) endpoint: Option<String>,
    /// When it is tried next.
    pub(crate) next_at: Option<Timestamp>,
    /// When it came into this state.
    pub(crate) moved_at: Timestamp,
    /// Whether later events of its key wait behind it.
    pub(crate) holds_key: bool,
    /// Whether it is delivered out of its key's order, and says so.
    pub(crate) late: bool,
}

impl From<WaitingView> for Waiting {
    fn from(view: WaitingView) -> Waiting {
        Waiting {
            destination: view.destination.to_string(),
            partition: view.partition.0,
            seq: view.seq,
            id: view.id,
            event_type: view.event_type,
            key: view.key,
            tenant: view.tenant,
            created_at: view.created_at,
            status: view.status,
            attempts: view.attempts,
            reason: view.reason,
            detail: view.detail,
            endpoint: view.endpoint,
            next_at: view.next_at,
            moved_at: view.moved_at,
            holds_key: view.holds_key,
            late: view.late,
        }
    }
}

impl Tabular for Waiting {
    fn columns() -> &'static [Column] {
        &[
            ("ID", Fit::Whole),
            ("TYPE", Fit::Text),
            ("KEY", Fit::Text),
            ("ANSWER", Fit::Text),
            ("SINCE", Fit::Extra),
            ("REASON", Fit::Extra),
            ("ATTEMPTS", Fit::ExtraNumber),
            ("STATUS", Fit::Extra),
            ("DESTINATION", Fit::Extra),
            ("NEXT", Fit::Extra),
            ("SEQ", Fit::ExtraNumber),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let id =
            self.id.map_or_else(|| format!("unreadable, seq {}", self.seq), |id| id.to_string());
        let answer = if self.detail.is_empty() { &self.reason } else { &self.detail };
        vec![
            id.into(),
            self.event_type.as_deref().into(),
            (&*self.key).into(),
            (&**answer).into(),
            age::relative(self.moved_at, now).into(),
            (&*self.reason).into(),
            self.attempts.into(),
            Cell::toned(self.status.as_str(), tone(self.status)),
            (&*self.destination).into(),
            self.next_at.map(|time| age::relative(time, now)).as_deref().into(),
            self.seq.to_string().into(),
        ]
    }
}

/// An event whose time has not come: a row of `outbox ls --status scheduled`.
#[derive(Debug, Serialize)]
pub(crate) struct Scheduled {
    /// The schedule's own number.
    pub(crate) seq: u64,
    /// The event's id.
    pub(crate) id: EventId,
    /// What will have happened.
    pub(crate) event_type: String,
    /// The ordering key.
    pub(crate) key: String,
    /// The tenant.
    pub(crate) tenant: Option<String>,
    /// When it enters the outbox.
    pub(crate) due: Timestamp,
    /// When the row was written.
    pub(crate) created_at: Timestamp,
}

impl From<ScheduledView> for Scheduled {
    fn from(view: ScheduledView) -> Scheduled {
        let ScheduledView { seq, id, event_type, key, tenant, due, created_at } = view;
        Scheduled { seq, id, event_type, key, tenant, due, created_at }
    }
}

impl Tabular for Scheduled {
    fn columns() -> &'static [Column] {
        &[
            ("ID", Fit::Whole),
            ("TYPE", Fit::Text),
            ("KEY", Fit::Text),
            ("DUE", Fit::Whole),
            ("CREATED", Fit::Extra),
            ("TENANT", Fit::Extra),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            (&*self.event_type).into(),
            (&*self.key).into(),
            age::relative(self.due, now).into(),
            age::relative(self.created_at, now).into(),
            self.tenant.as_deref().into(),
        ]
    }
}
