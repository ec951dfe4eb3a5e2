//! A row of the outbox, or its copy in `waiting`, as an event.
//!
//! Invariant: no committed row stops the stream. What cannot be read as an event is handed on as
//! [`Malformed`], with its number, so that it becomes a dead letter and its successors flow.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::source::Malformed;
use postrider_core::waiting::{Reason, RowRef};
use postrider_core::{Event, EventId, Headers, KeyHash, Payload, Text, Timestamp};
use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The newest format of rows that this program can read.
const FORMAT_MAX: i64 = 1;

/// What a row that cannot be read weighs beside its payload.
const ENVELOPE_BYTES: u64 = 256;

// The columns of `outbox/fetch.sql`, in their order; `waiting/run.sql` and `waiting/one.sql` begin
// with the same.
const SEQ: usize = 0;
const ID: usize = 1;
const SOURCE: usize = 2;
const AGGREGATE_TYPE: usize = 3;
const AGGREGATE_ID: usize = 4;
const KEY: usize = 5;
const EVENT_TYPE: usize = 6;
const EVENT_VERSION: usize = 7;
const PAYLOAD: usize = 8;
const PAYLOAD_BYTES: usize = 9;
const CONTENT_TYPE: usize = 10;
const ENCODING: usize = 11;
const HEADERS: usize = 12;
const TENANT: usize = 13;
const FORMAT: usize = 14;
const OCCURRED_AT: usize = 15;
const CREATED_AT: usize = 16;
const ERASED_AT: usize = 17;

/// How many columns an event has.
pub(crate) const EVENT_COLUMNS: usize = 18;

/// A row that was read.
pub(crate) struct Decoded {
    pub(crate) row: RowRef,
    pub(crate) key_hash: KeyHash,
    pub(crate) bytes: u64,
    pub(crate) event: Result<Arc<Event>, Malformed>,
}

/// Reads rows one after the other, and shares what neighbours have in common.
pub(crate) struct Decoder {
    default_source: Arc<str>,
    /// The last row's source and content type, and empty fields otherwise: cloning it allocates
    /// nothing.
    template: Event,
}

impl Decoder {
    /// A decoder for a store whose rows without a source have this one.
    pub(crate) fn new(default_source: &str) -> Decoder {
        let mut template = Event::new(EventId::from_u128(0), "", "", "");
        let default_source: Arc<str> = Arc::from(default_source);
        template.source = Arc::clone(&default_source);
        Decoder { default_source, template }
    }

    /// Reads a row.
    pub(crate) fn decode(&mut self, row: &Row<'_>) -> Decoded {
        let seq = row
            .get_ref(SEQ)
            .ok()
            .and_then(|value| value.as_i64().ok())
            .and_then(|seq| u64::try_from(seq).ok())
            .unwrap_or_default();
        match self.read_event(row) {
            Ok(event) => Decoded {
                row: RowRef { seq, id: event.id },
                key_hash: event.key_hash(),
                bytes: event.size_bytes(),
                event: Ok(Arc::new(event)),
            },
            Err(malformed) => {
                let id = text(row, ID).ok().and_then(|id| id.parse().ok());
                let payload = raw(row, PAYLOAD).len() + raw(row, PAYLOAD_BYTES).len();
                Decoded {
                    row: RowRef { seq, id: id.unwrap_or(EventId::from_u128(0)) },
                    key_hash: key_hash_of_raw(row),
                    bytes: ENVELOPE_BYTES + payload as u64,
                    event: Err(malformed),
                }
            }
        }
    }

    fn read_event(&mut self, row: &Row<'_>) -> Result<Event, Malformed> {
        let format = integer(row, FORMAT, "format")?;
        if format > FORMAT_MAX {
            return Err(Malformed {
                reason: Reason::UnknownFormat,
                detail: format!("format {format}; this program knows {FORMAT_MAX}"),
                event: None,
            });
        }
        self.share_source(row)?;
        self.share_content_type(row)?;
        let mut event = self.template.clone();
        event.id = text(row, ID)
            .and_then(|id| id.parse().map_err(|_| malformed("id", "is not a UUID")))?;
        event.aggregate_type = text(row, AGGREGATE_TYPE)?.into();
        event.aggregate_id = text(row, AGGREGATE_ID)?.into();
        event.key = optional(row, KEY)?.map(Into::into);
        event.event_type = text(row, EVENT_TYPE)?.into();
        event.event_version = u32::try_from(integer(row, EVENT_VERSION, "event_version")?)
            .map_err(|_| malformed("event_version", "is out of range"))?;
        event.payload = payload(row)?;
        event.encoding = optional(row, ENCODING)?.map(Into::into);
        event.tenant = optional(row, TENANT)?.map(Into::into);
        event.headers = headers(text(row, HEADERS)?)?;
        event.occurred_at = time(row, OCCURRED_AT, "occurred_at")?;
        event.created_at = time(row, CREATED_AT, "created_at")?;
        for (name, value) in [
            ("aggregate_type", &event.aggregate_type),
            ("aggregate_id", &event.aggregate_id),
            ("event_type", &event.event_type),
        ] {
            if value.is_empty() {
                return Err(malformed(name, "is empty"));
            }
        }
        Ok(event)
    }

    fn share_source(&mut self, row: &Row<'_>) -> Result<(), Malformed> {
        match optional(row, SOURCE)? {
            None if *self.template.source == *self.default_source => {}
            None => self.template.source = Arc::clone(&self.default_source),
            Some(source) if *source == *self.template.source => {}
            Some(source) => self.template.source = Arc::from(source),
        }
        Ok(())
    }

    fn share_content_type(&mut self, row: &Row<'_>) -> Result<(), Malformed> {
        let content_type = text(row, CONTENT_TYPE)?;
        if *content_type != *self.template.content_type {
            self.template.content_type = Text::from(content_type);
        }
        Ok(())
    }
}

fn malformed(column: &str, what: &str) -> Malformed {
    Malformed { reason: Reason::Malformed, detail: format!("{column} {what}"), event: None }
}

/// The name of a column, for a person.
fn name(row: &Row<'_>, column: usize) -> String {
    row.as_ref().column_name(column).unwrap_or("column").to_owned()
}

fn optional<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a str>, Malformed> {
    match row.get_ref(column) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(bytes)) => std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| malformed(&name(row, column), "is not UTF-8")),
        _ => Err(malformed(&name(row, column), "is not text")),
    }
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, Malformed> {
    optional(row, column)?.ok_or_else(|| malformed(&name(row, column), "is missing"))
}

fn integer(row: &Row<'_>, column: usize, name: &str) -> Result<i64, Malformed> {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(value)) => Ok(value),
        _ => Err(malformed(name, "is not an integer")),
    }
}

fn time(row: &Row<'_>, column: usize, name: &str) -> Result<Timestamp, Malformed> {
    text(row, column)?.parse().map_err(|_| malformed(name, "is not an RFC 3339 time"))
}

/// The bytes of a text or blob, whatever they are.
fn raw<'a>(row: &'a Row<'_>, column: usize) -> &'a [u8] {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes,
        _ => &[],
    }
}

/// The key's hash of a row that cannot be read: of the bytes, as far as they are text.
fn key_hash_of_raw(row: &Row<'_>) -> KeyHash {
    let lossy = |column| String::from_utf8_lossy(raw(row, column));
    match row.get_ref(KEY) {
        Ok(ValueRef::Null) | Err(_) => {
            KeyHash::of_aggregate(&lossy(AGGREGATE_TYPE), &lossy(AGGREGATE_ID))
        }
        Ok(_) => KeyHash::of(&lossy(KEY)),
    }
}

fn payload(row: &Row<'_>) -> Result<Payload, Malformed> {
    if !matches!(row.get_ref(ERASED_AT), Ok(ValueRef::Null)) {
        return Ok(Payload::Erased);
    }
    if let Some(json) = optional(row, PAYLOAD)? {
        return Ok(Payload::Json(Bytes::copy_from_slice(json.as_bytes())));
    }
    match row.get_ref(PAYLOAD_BYTES) {
        Ok(ValueRef::Blob(bytes)) => Ok(Payload::Bytes(Bytes::copy_from_slice(bytes))),
        _ => Err(malformed("payload", "is missing")),
    }
}

/// Most events have none, and then nothing is parsed.
fn headers(text: &str) -> Result<Headers, Malformed> {
    if text == "{}" {
        return Ok(Headers::new());
    }
    serde_json::from_str(text)
        .map_err(|_| malformed("headers", "is not a JSON object with string values"))
}
