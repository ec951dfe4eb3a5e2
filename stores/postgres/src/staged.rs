//! An event as a row of the outbox, for any driver: which values, in which order, under which statement.
//!
//! All values are text, integers, and bytes, so that a driver needs none of its optional types. Invariant:
//! what the tables would refuse is refused here, before the statement that would fail the caller's
//! transaction.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_core::{
    Error, ErrorKind, Event, EventId, EventLimits, NewEvent, Payload, Result, Timestamp,
};

/// One row: the parameters of a statement, `$1` to `$14`, and `$15` where it is for later.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Staged<'e> {
    /// The statement.
    pub statement: Arc<str>,
    pub event_id: EventId,
    pub id: String,
    pub source: Option<&'e str>,
    pub aggregate_type: &'e str,
    pub aggregate_id: &'e str,
    pub key: Option<&'e str>,
    pub event_type: &'e str,
    pub event_version: i32,
    pub payload: Option<&'e str>,
    pub payload_bytes: Option<&'e [u8]>,
    pub content_type: &'e str,
    pub encoding: Option<&'e str>,
    pub headers: Cow<'e, str>,
    pub tenant: Option<&'e str>,
    /// Microseconds since 1970.
    pub occurred_at: i64,
    pub due_at: Option<i64>,
}

/// Many rows: a column each, in the order of [`Staged`]'s.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct StagedMany<'e> {
    /// The statement.
    pub statement: Arc<str>,
    pub event_ids: Vec<EventId>,
    pub id: Vec<String>,
    pub source: Vec<Option<&'e str>>,
    pub aggregate_type: Vec<&'e str>,
    pub aggregate_id: Vec<&'e str>,
    pub key: Vec<Option<&'e str>>,
    pub event_type: Vec<&'e str>,
    pub event_version: Vec<i32>,
    pub payload: Vec<Option<&'e str>>,
    pub payload_bytes: Vec<Option<&'e [u8]>>,
    pub content_type: Vec<&'e str>,
    pub encoding: Vec<Option<&'e str>>,
    pub headers: Vec<Cow<'e, str>>,
    pub tenant: Vec<Option<&'e str>>,
    pub occurred_at: Vec<i64>,
    /// Empty unless one of them is for later.
    pub due_at: Vec<Option<i64>>,
}

impl<'e> Staged<'e> {
    /// Checks an event and lays out its row.
    pub(crate) fn new(limits: &EventLimits, new: &'e NewEvent) -> Result<Staged<'e>> {
        let event = new.event();
        Staged::of(limits, new, event).map_err(|error| error.context("event", event.id))
    }

    fn of(limits: &EventLimits, new: &'e NewEvent, event: &'e Event) -> Result<Staged<'e>> {
        limits.check(event)?;
        let source = Some(&*event.source).filter(|source| !source.is_empty());
        check_name("source", source)?;
        check_name("encoding", event.encoding.as_deref())?;
        let (payload, payload_bytes) = match &event.payload {
            Payload::Json(text) => (Some(json(text)?), None),
            Payload::Bytes(bytes) => (None, Some(&**bytes)),
            Payload::Erased => return Err(invalid("an erased payload cannot be enqueued")),
        };
        let headers = if event.headers.is_empty() {
            Cow::Borrowed("{}")
        } else {
            serde_json::to_string(&event.headers)
                .map(Cow::Owned)
                .map_err(|e| invalid("the headers cannot be written as JSON").source(e))?
        };
        Ok(Staged {
            statement: Arc::default(),
            event_id: event.id,
            id: event.id.to_string(),
            source,
            aggregate_type: &event.aggregate_type,
            aggregate_id: &event.aggregate_id,
            key: event.key.as_deref(),
            event_type: &event.event_type,
            event_version: i32::try_from(event.event_version)
                .map_err(|_| invalid("event_version is at most 2147483647"))?,
            payload,
            payload_bytes,
            content_type: &event.content_type,
            encoding: event.encoding.as_deref(),
            headers,
            tenant: event.tenant.as_deref(),
            occurred_at: moment(event.occurred_at)?,
            due_at: new.due().map(moment).transpose()?,
        })
    }
}

impl<'e> StagedMany<'e> {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: Staged<'e>) {
        self.event_ids.push(row.event_id);
        self.id.push(row.id);
        self.source.push(row.source);
        self.aggregate_type.push(row.aggregate_type);
        self.aggregate_id.push(row.aggregate_id);
        self.key.push(row.key);
        self.event_type.push(row.event_type);
        self.event_version.push(row.event_version);
        self.payload.push(row.payload);
        self.payload_bytes.push(row.payload_bytes);
        self.content_type.push(row.content_type);
        self.encoding.push(row.encoding);
        self.headers.push(row.headers);
        self.tenant.push(row.tenant);
        self.occurred_at.push(row.occurred_at);
        self.due_at.push(row.due_at);
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether there is none: then nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, "enqueue").message(message)
}

/// The names that the limits leave to the store.
fn check_name(field: &'static str, name: Option<&str>) -> Result<()> {
    match name {
        Some(name) if name.is_empty() || name.len() > 255 => {
            Err(invalid("it has 1 to 255 bytes").context("field", field))
        }
        Some(name) if name.chars().any(char::is_control) => {
            Err(invalid("it has no control characters").context("field", field))
        }
        _ => Ok(()),
    }
}

/// Text that PostgreSQL takes for JSON.
fn json(text: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(text)
        .map_err(|error| invalid("a JSON payload is not UTF-8").source(error))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|error| invalid("a JSON payload does not parse").source(error))?;
    Ok(text)
}

/// Years 1 to 9999, as everywhere in Postrider.
fn moment(time: Timestamp) -> Result<i64> {
    let micros = time.as_micros();
    if (-62_135_596_800_000_000..=253_402_300_799_999_999).contains(&micros) {
        return Ok(micros);
    }
    Err(invalid("a time lies outside of the years 1 to 9999"))
}
