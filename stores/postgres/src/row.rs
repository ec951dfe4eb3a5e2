//! A row of the outbox, or its copy in `waiting`, as an event.
//!
//! Invariant: no committed row stops the stream. What cannot be read as an event is handed on as
//! [`Malformed`], with its number, so that it becomes a dead letter and its successors flow.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::source::Malformed;
use postrider_core::waiting::{Reason, RowRef};
use postrider_core::{Event, EventId, Headers, KeyHash, Payload, Text};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type, accepts};
use uuid::Uuid;

use crate::typed::{Moment, unsigned};

/// The newest format of rows that this program can read.
const FORMAT_MAX: i16 = 1;

/// What a row that cannot be read weighs beside its payload.
const ENVELOPE_BYTES: u64 = 256;

// The columns of an event, in the order in which every statement that reads one has them, from the
// decoder's first column on.
const SEQ: usize = 0;
const ID: usize = 1;
const SOURCE: usize = 2;
const AGGREGATE_TYPE: usize = 3;
const AGGREGATE_ID: usize = 4;
const KEY: usize = 5;
const EVENT_TYPE: usize = 6;
pub(crate) const EVENT_VERSION: usize = 7;
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
    /// Which column of the statement is an event's first.
    first: usize,
    /// The last row's source and content type, and empty fields otherwise: cloning it allocates
    /// nothing.
    template: Event,
}

impl Decoder {
    /// A decoder for a store whose rows without a source have this one, and for statements that have
    /// so many columns before an event's.
    pub(crate) fn new(default_source: &str, first: usize) -> Decoder {
        let mut template = Event::new(EventId::from_u128(0), "", "", "");
        let default_source: Arc<str> = Arc::from(default_source);
        template.source = Arc::clone(&default_source);
        Decoder { default_source, first, template }
    }

    /// Reads a row.
    pub(crate) fn decode(&mut self, row: &Row) -> Decoded {
        let seq = row.try_get::<_, i64>(self.first + SEQ).map_or(0, unsigned);
        match self.read_event(row) {
            Ok(event) => Decoded {
                row: RowRef { seq, id: event.id },
                key_hash: event.key_hash(),
                bytes: event.size_bytes(),
                event: Ok(Arc::new(event)),
            },
            Err(malformed) => {
                let id = row.try_get::<_, Option<Uuid>>(self.first + ID).ok().flatten();
                Decoded {
                    row: RowRef { seq, id: EventId::from_u128(id.map_or(0, |id| id.as_u128())) },
                    key_hash: self.key_hash_of_raw(row),
                    bytes: ENVELOPE_BYTES + payload_len(row, self.first),
                    event: Err(malformed),
                }
            }
        }
    }

    fn read_event(&mut self, row: &Row) -> Result<Event, Malformed> {
        let format: i16 = self.required(row, FORMAT)?;
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
        event.id = EventId::from_u128(self.required::<Uuid>(row, ID)?.as_u128());
        event.aggregate_type = self.named(row, AGGREGATE_TYPE)?.into();
        event.aggregate_id = self.named(row, AGGREGATE_ID)?.into();
        event.key = self.optional::<&str>(row, KEY)?.map(Into::into);
        event.event_type = self.named(row, EVENT_TYPE)?.into();
        event.event_version = u32::try_from(self.required::<i32>(row, EVENT_VERSION)?)
            .map_err(|_| malformed("event_version", "is out of range"))?;
        event.payload = self.payload(row)?;
        event.encoding = self.optional::<&str>(row, ENCODING)?.map(Into::into);
        event.tenant = self.optional::<&str>(row, TENANT)?.map(Into::into);
        event.headers = headers(self.required::<JsonText<'_>>(row, HEADERS)?.0)?;
        // An own table's `occurred_at` may be what it maps as `created_at`: that name is the one to tell.
        event.created_at = self.required::<Moment>(row, CREATED_AT)?.into();
        event.occurred_at = self.required::<Moment>(row, OCCURRED_AT)?.into();
        Ok(event)
    }

    fn share_source(&mut self, row: &Row) -> Result<(), Malformed> {
        match self.optional::<&str>(row, SOURCE)? {
            None if *self.template.source == *self.default_source => {}
            None => self.template.source = Arc::clone(&self.default_source),
            Some(source) if *source == *self.template.source => {}
            Some(source) => self.template.source = Arc::from(source),
        }
        Ok(())
    }

    fn share_content_type(&mut self, row: &Row) -> Result<(), Malformed> {
        let content_type: &str = self.required(row, CONTENT_TYPE)?;
        if *content_type != *self.template.content_type {
            self.template.content_type = Text::from(content_type);
        }
        Ok(())
    }

    fn optional<'a, T: FromSql<'a>>(
        &self,
        row: &'a Row,
        column: usize,
    ) -> Result<Option<T>, Malformed> {
        let column = self.first + column;
        row.try_get(column).map_err(|_| malformed(name(row, column), "cannot be read"))
    }

    fn required<'a, T: FromSql<'a>>(&self, row: &'a Row, column: usize) -> Result<T, Malformed> {
        self.optional(row, column)?
            .ok_or_else(|| malformed(name(row, self.first + column), "is missing"))
    }

    /// A text that is not empty.
    fn named<'a>(&self, row: &'a Row, column: usize) -> Result<&'a str, Malformed> {
        match self.required(row, column)? {
            "" => Err(malformed(name(row, self.first + column), "is empty")),
            text => Ok(text),
        }
    }

    fn payload(&self, row: &Row) -> Result<Payload, Malformed> {
        if self.optional::<Moment>(row, ERASED_AT)?.is_some() {
            return Ok(Payload::Erased);
        }
        if let Some(json) = self.optional::<&str>(row, PAYLOAD)? {
            return Ok(Payload::Json(Bytes::copy_from_slice(json.as_bytes())));
        }
        match self.optional::<&[u8]>(row, PAYLOAD_BYTES)? {
            Some(bytes) => Ok(Payload::Bytes(Bytes::copy_from_slice(bytes))),
            None => Err(malformed("payload", "is missing")),
        }
    }

    /// The key's hash of a row that cannot be read, as far as its key can be.
    fn key_hash_of_raw(&self, row: &Row) -> KeyHash {
        let text = |column| self.optional::<&str>(row, column).ok().flatten();
        match text(KEY) {
            Some(key) => KeyHash::of(key),
            None => KeyHash::of_aggregate(
                text(AGGREGATE_TYPE).unwrap_or_default(),
                text(AGGREGATE_ID).unwrap_or_default(),
            ),
        }
    }
}

/// How long the parts of a row are that may be large: its payload, and its headers if it has any.
pub(crate) fn variable_len(row: &Row, first: usize) -> u64 {
    let headers = row.try_get::<_, Option<JsonText<'_>>>(first + HEADERS).ok().flatten();
    let headers = headers.map_or(0, |headers| if headers.0 == "{}" { 0 } else { headers.0.len() });
    payload_len(row, first) + headers as u64
}

/// How long a row's payload is, of either kind.
pub(crate) fn payload_len(row: &Row, first: usize) -> u64 {
    let json = row.try_get::<_, Option<&str>>(first + PAYLOAD).ok().flatten().map_or(0, str::len);
    let bytes = row.try_get::<_, Option<&[u8]>>(first + PAYLOAD_BYTES).ok().flatten();
    (json + bytes.map_or(0, <[u8]>::len)) as u64
}

fn malformed(column: &str, what: &str) -> Malformed {
    Malformed { reason: Reason::Malformed, detail: format!("{column} {what}"), event: None }
}

/// The name of a column, for a person.
fn name(row: &Row, column: usize) -> &str {
    row.columns().get(column).map_or("column", |column| column.name())
}

/// Most events have none, and then nothing is parsed.
fn headers(text: &str) -> Result<Headers, Malformed> {
    if text == "{}" {
        return Ok(Headers::new());
    }
    serde_json::from_str(text)
        .map_err(|_| malformed("headers", "is not a JSON object with string values"))
}

/// The headers in a column, as far as they can be read.
pub(crate) fn headers_of(row: &Row, column: usize) -> Option<Headers> {
    let text = row.try_get::<_, Option<JsonText<'_>>>(column).ok().flatten()?;
    headers(text.0).ok()
}

/// A `jsonb` value as its text: on the wire that is the text behind a byte that says which form it is.
struct JsonText<'a>(&'a str);

impl<'a> FromSql<'a> for JsonText<'a> {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> Result<JsonText<'a>, Box<dyn std::error::Error + Sync + Send>> {
        match raw.split_first() {
            Some((1, text)) => Ok(JsonText(std::str::from_utf8(text)?)),
            _ => Err("an unknown form of jsonb".into()),
        }
    }

    accepts!(JSONB);
}
