//! Events of the outbox, and what became of them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use postrider_core::operate::{DeliveryView, EventDetail, EventView, Status};
use postrider_core::{EventId, Payload, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Waiting;
use crate::age;
use crate::table::{Cell, Column, Fit, Tabular, Tone};

/// How a status is meant.
pub(crate) fn tone(status: Status) -> Tone {
    match status {
        Status::Published => Tone::Good,
        Status::Dead | Status::Disabled => Tone::Bad,
        Status::Retrying | Status::Parked | Status::Held => Tone::Notable,
        _ => Tone::Plain,
    }
}

/// An event of the outbox without its payload: a row of `outbox ls`.
#[derive(Debug, Serialize)]
pub(crate) struct Event {
    /// The store's number of the event: its place in commit order.
    pub(crate) seq: u64,
    /// The event's id, for ever the same.
    pub(crate) id: EventId,
    /// What happened.
    pub(crate) event_type: String,
    /// The ordering key.
    pub(crate) key: String,
    /// The tenant.
    pub(crate) tenant: Option<String>,
    /// When the row was written.
    pub(crate) created_at: Timestamp,
    /// The payload's size.
    pub(crate) payload_bytes: u64,
    /// What became of it, one entry per destination that it concerns.
    pub(crate) deliveries: Vec<Delivery>,
}

impl From<EventView> for Event {
    fn from(view: EventView) -> Event {
        Event {
            seq: view.seq,
            id: view.id,
            event_type: view.event_type,
            key: view.key,
            tenant: view.tenant,
            created_at: view.created_at,
            payload_bytes: view.payload_bytes,
            deliveries: view.deliveries.into_iter().map(Delivery::from).collect(),
        }
    }
}

impl Tabular for Event {
    fn columns() -> &'static [Column] {
        &[
            ("ID", Fit::Whole),
            ("TYPE", Fit::Text),
            ("KEY", Fit::Text),
            ("STATUS", Fit::Text),
            ("CREATED", Fit::Whole),
            ("SEQ", Fit::ExtraNumber),
            ("BYTES", Fit::ExtraNumber),
            ("TENANT", Fit::Extra),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let worst = self.deliveries.iter().map(|delivery| tone(delivery.status)).max_by_key(rank);
        vec![
            self.id.to_string().into(),
            (&*self.event_type).into(),
            (&*self.key).into(),
            Cell::toned(&deliveries(&self.deliveries), worst.unwrap_or_default()),
            age::relative(self.created_at, now).into(),
            self.seq.to_string().into(),
            self.payload_bytes.into(),
            self.tenant.as_deref().into(),
        ]
    }
}

fn rank(tone: &Tone) -> u8 {
    match tone {
        Tone::Plain => 0,
        Tone::Good => 1,
        Tone::Notable => 2,
        Tone::Bad => 3,
    }
}

/// In a few words: of one destination the status alone, of several with their names.
fn deliveries(deliveries: &[Delivery]) -> String {
    let word = |delivery: &Delivery| match delivery.attempts {
        0 => delivery.status.to_string(),
        attempts => format!("{} ({attempts})", delivery.status),
    };
    match deliveries {
        [] => "-".to_owned(),
        [one] => word(one),
        several => {
            let words = several.iter().map(|one| format!("{}: {}", one.destination, word(one)));
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

/// What became of an event at a destination.
#[derive(Debug, Serialize)]
pub(crate) struct Delivery {
    /// Which destination.
    pub(crate) destination: String,
    /// `pending`, `published`, `settled`, `elsewhere`, `dropped`, `erased`, `before_start`,
    /// `retrying`, `parked`, `held`, `disabled`, `dead`, `discarded`, or `scheduled`.
    pub(crate) status: Status,
    /// Attempts that counted.
    pub(crate) attempts: u32,
    /// Why it waits.
    pub(crate) reason: Option<String>,
    /// What was answered last.
    pub(crate) detail: Option<String>,
    /// When it is tried next.
    pub(crate) next_at: Option<Timestamp>,
    /// When the cursor passed it, to the precision of a bucket of 4,096 events.
    pub(crate) settled_at: Option<Timestamp>,
}

impl From<DeliveryView> for Delivery {
    fn from(view: DeliveryView) -> Delivery {
        Delivery {
            destination: view.destination.to_string(),
            status: view.status,
            attempts: view.attempts,
            reason: view.reason,
            detail: view.detail,
            next_at: view.next_at,
            settled_at: view.settled_at,
        }
    }
}

impl Tabular for Delivery {
    fn columns() -> &'static [Column] {
        &[
            ("DESTINATION", Fit::Text),
            ("STATUS", Fit::Whole),
            ("ATTEMPTS", Fit::Number),
            ("NEXT", Fit::Extra),
            ("SETTLED", Fit::Extra),
            ("REASON", Fit::Extra),
            ("ANSWER", Fit::Text),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let when = |time: Option<Timestamp>| time.map(|time| age::relative(time, now));
        vec![
            (&*self.destination).into(),
            Cell::toned(self.status.as_str(), tone(self.status)),
            self.attempts.into(),
            when(self.next_at).as_deref().into(),
            when(self.settled_at).as_deref().into(),
            self.reason.as_deref().into(),
            self.detail.as_deref().into(),
        ]
    }
}

/// One event with its payload: `outbox show`, `dead show`.
#[derive(Debug, Serialize)]
pub(crate) struct Detail {
    /// The store's number of the event; `null` for one that is scheduled.
    pub(crate) seq: Option<u64>,
    /// The event's id.
    pub(crate) id: EventId,
    /// Who says it. With the id it identifies the event everywhere.
    pub(crate) source: String,
    /// What happened.
    pub(crate) event_type: String,
    /// The version of the payload's schema.
    pub(crate) event_version: u32,
    /// The kind of thing it happened to.
    pub(crate) aggregate_type: String,
    /// Which one of them.
    pub(crate) aggregate_id: String,
    /// The ordering key.
    pub(crate) key: String,
    /// The tenant.
    pub(crate) tenant: Option<String>,
    /// When the fact happened.
    pub(crate) occurred_at: Timestamp,
    /// When the row was written.
    pub(crate) created_at: Timestamp,
    /// When it is due, if it is scheduled.
    pub(crate) due: Option<Timestamp>,
    /// What travels along.
    pub(crate) headers: BTreeMap<String, String>,
    /// The payload's media type.
    pub(crate) content_type: String,
    /// The codec that encoded the payload.
    pub(crate) encoding: Option<String>,
    /// The payload's size.
    pub(crate) payload_bytes: u64,
    /// The payload was erased.
    pub(crate) erased: bool,
    /// The payload, if it is JSON: the same text that was enqueued.
    pub(crate) payload: Option<Box<RawValue>>,
    /// The payload in base64, if it is not JSON.
    pub(crate) payload_base64: Option<String>,
    /// What became of it, one entry per destination that it concerns.
    pub(crate) deliveries: Vec<Delivery>,
    /// Earlier events of its key that hold it up, oldest first, at most 10.
    pub(crate) behind: Vec<Waiting>,
}

impl From<EventDetail> for Detail {
    fn from(view: EventDetail) -> Detail {
        let event = view.event;
        let json = match &event.payload {
            Payload::Json(bytes) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                RawValue::from_string(text).ok()
            }
            _ => None,
        };
        let opaque = match &event.payload {
            Payload::Erased => None,
            _ if json.is_some() => None,
            payload => Some(BASE64.encode(payload.as_bytes())),
        };
        Detail {
            seq: view.seq,
            id: event.id,
            source: event.source.to_string(),
            key: event.key(),
            event_type: event.event_type.into(),
            event_version: event.event_version,
            aggregate_type: event.aggregate_type.into(),
            aggregate_id: event.aggregate_id.into(),
            tenant: event.tenant.map(String::from),
            occurred_at: event.occurred_at,
            created_at: event.created_at,
            due: view.due,
            headers: event.headers,
            content_type: event.content_type.to_string(),
            encoding: event.encoding.map(String::from),
            payload_bytes: event.payload.len() as u64,
            erased: event.payload == Payload::Erased,
            payload: json,
            payload_base64: opaque,
            deliveries: view.deliveries.into_iter().map(Delivery::from).collect(),
            behind: view.behind.into_iter().map(Waiting::from).collect(),
        }
    }
}
