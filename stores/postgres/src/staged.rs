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

/// A statement and its parameters: of one event, or of many with a column each.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Staged<'e> {
    pub statement: Arc<str>,
    pub event_ids: Vec<EventId>,
    /// `$1`, `$2`, and so on.
    pub values: Vec<Value<'e>>,
}

/// A parameter.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Value<'e> {
    Text(Option<Cow<'e, str>>),
    Integer(i32),
    BigInt(i64),
    Bytes(Option<&'e [u8]>),
    Texts(Vec<Option<Cow<'e, str>>>),
    Integers(Vec<i32>),
    BigInts(Vec<Option<i64>>),
    ByteStrings(Vec<Option<&'e [u8]>>),
}

/// One row, checked.
pub(crate) struct Row<'e> {
    pub(crate) event_id: EventId,
    source: Option<&'e str>,
    event: &'e Event,
    event_version: i32,
    payload: Option<&'e str>,
    payload_bytes: Option<&'e [u8]>,
    headers: Cow<'e, str>,
    /// Microseconds since 1970.
    occurred_at: i64,
    pub(crate) due_at: Option<i64>,
}

fn text<'e>(value: impl Into<Option<&'e str>>) -> Option<Cow<'e, str>> {
    value.into().map(Cow::Borrowed)
}

/// The values of one row, with its time last if it is for later.
pub(crate) fn one(row: Row<'_>) -> Vec<Value<'_>> {
    let event = row.event;
    let mut values = vec![
        Value::Text(Some(Cow::Owned(row.event_id.to_string()))),
        Value::Text(text(row.source)),
        Value::Text(text(&*event.aggregate_type)),
        Value::Text(text(&*event.aggregate_id)),
        Value::Text(text(event.key.as_deref())),
        Value::Text(text(&*event.event_type)),
        Value::Integer(row.event_version),
        Value::Text(text(row.payload)),
        Value::Bytes(row.payload_bytes),
        Value::Text(text(&*event.content_type)),
        Value::Text(text(event.encoding.as_deref())),
        Value::Text(Some(row.headers)),
        Value::Text(text(event.tenant.as_deref())),
        Value::BigInt(row.occurred_at),
    ];
    values.extend(row.due_at.map(Value::BigInt));
    values
}

/// The columns of many rows, in their order, with the times last if one of them is for later.
pub(crate) fn many<'e>(rows: &[Row<'e>]) -> Vec<Value<'e>> {
    fn column<'e, T>(rows: &[Row<'e>], of: impl Fn(&Row<'e>) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    let texts = |of: fn(&Row<'e>) -> Option<Cow<'e, str>>| Value::Texts(column(rows, of));
    let mut values = vec![
        texts(|row| Some(Cow::Owned(row.event_id.to_string()))),
        texts(|row| text(row.source)),
        texts(|row| text(&*row.event.aggregate_type)),
        texts(|row| text(&*row.event.aggregate_id)),
        texts(|row| text(row.event.key.as_deref())),
        texts(|row| text(&*row.event.event_type)),
        Value::Integers(column(rows, |row| row.event_version)),
        texts(|row| text(row.payload)),
        Value::ByteStrings(column(rows, |row| row.payload_bytes)),
        texts(|row| text(&*row.event.content_type)),
        texts(|row| text(row.event.encoding.as_deref())),
        texts(|row| Some(row.headers.clone())),
        texts(|row| text(row.event.tenant.as_deref())),
        Value::BigInts(column(rows, |row| Some(row.occurred_at))),
    ];
    if rows.iter().any(|row| row.due_at.is_some()) {
        values.push(Value::BigInts(column(rows, |row| row.due_at)));
    }
    values
}

impl<'e> Row<'e> {
    /// Checks an event and lays out its row.
    pub(crate) fn new(limits: &EventLimits, new: &'e NewEvent) -> Result<Row<'e>> {
        let event = new.event();
        Row::of(limits, new, event).map_err(|error| error.context("event", event.id))
    }

    fn of(limits: &EventLimits, new: &'e NewEvent, event: &'e Event) -> Result<Row<'e>> {
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
        Ok(Row {
            event_id: event.id,
            source,
            event,
            event_version: i32::try_from(event.event_version)
                .map_err(|_| invalid("event_version is at most 2147483647"))?,
            payload,
            payload_bytes,
            headers,
            occurred_at: moment(event.occurred_at)?,
            due_at: new.due().map(moment).transpose()?,
        })
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
    if !is_shallow(text.as_bytes()) {
        return Err(invalid("a JSON payload is nested more than 500 deep"));
    }
    Ok(text)
}

/// How deep a JSON payload may be nested. PostgreSQL descends into it on its stack, whose least setting is 100 kB: what
/// it could not parse any more would be refused by every statement that reads the payload as JSON. Five hundred is
/// beyond what most other parsers take.
const DEPTH_MAX: usize = 500;

/// Whether a text that is JSON is nested no deeper than that.
fn is_shallow(text: &[u8]) -> bool {
    let opens = |byte: &u8| matches!(byte, b'[' | b'{');
    // Most have not so many of them at all.
    if text.iter().filter(|byte| opens(byte)).count() <= DEPTH_MAX {
        return true;
    }
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b']' | b'}' => depth -= 1,
            byte if opens(byte) => depth += 1,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return false;
        }
    }
    true
}

/// Years 1 to 9999, as everywhere in Postrider.
fn moment(time: Timestamp) -> Result<i64> {
    let micros = time.as_micros();
    if (-62_135_596_800_000_000..=253_402_300_799_999_999).contains(&micros) {
        return Ok(micros);
    }
    Err(invalid("a time lies outside of the years 1 to 9999"))
}
