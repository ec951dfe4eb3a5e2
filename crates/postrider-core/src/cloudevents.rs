//! CloudEvents 1.0 in structured mode: one JSON document with attributes and data.
//!
//! Attribute names are lower-case letters and digits only, as the specification demands
//! (CloudEvents 1.0.2, "Naming Conventions"), so the envelope's own fields are extensions named
//! `aggregatetype`, `aggregateid`, `eventversion`, `tenant`, `encoding`; `recordedtime` and
//! `partitionkey` are documented extensions of the specification. Headers that are valid attribute
//! names (`traceparent`, `correlationid`) become attributes; all others travel in the one extension
//! `postriderheaders`, a string that holds a JSON object. JSON payloads stand in `data` byte for byte;
//! opaque ones in `data_base64`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::{Error, ErrorKind, Event, EventId, Headers, Marks, Payload, Result, Timestamp};

/// The media type of a structured event.
pub const MEDIA_TYPE: &str = "application/cloudevents+json";

/// The largest document [`parse`] accepts, in bytes: 1 MiB of payload in base64, and its envelope.
pub const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The attribute that marks an event delivered out of its key's order on purpose.
pub const LATE: &str = "postriderlate";

/// The attribute that marks an event of a replay: its destination was rewound.
pub const REPLAY: &str = "postriderreplay";

/// Names that a header must not take, because the envelope uses them.
const RESERVED: [&str; 19] = [
    "id",
    "source",
    "specversion",
    "type",
    "datacontenttype",
    "dataschema",
    "subject",
    "time",
    "data",
    "partitionkey",
    "recordedtime",
    "aggregatetype",
    "aggregateid",
    "eventversion",
    "tenant",
    "encoding",
    "postriderheaders",
    LATE,
    REPLAY,
];

/// An event as it is written in structured mode.
struct Structured<'a> {
    event: &'a Event,
    marks: Marks,
}

/// Writes an event as one line of JSON, without a line break.
///
/// # Errors
/// [`ErrorKind::Invalid`] if a JSON payload is not JSON after all.
///
/// ```
/// use postrider_core::{cloudevents, Event, EventId, Marks};
/// let event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
/// let text = cloudevents::to_json(&event, Marks::default())?;
/// let (back, marks) = cloudevents::parse(&text)?;
/// assert_eq!((back.id, back.key(), marks.late), (event.id, "order/42".to_owned(), false));
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn to_json(event: &Event, marks: Marks) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(512 + event.payload.len());
    serde_json::to_writer(&mut text, &Structured { event, marks }).map_err(|e| {
        Error::new(ErrorKind::Invalid, "write cloudevent").context("event", event.id).source(e)
    })?;
    Ok(text)
}

fn is_attribute_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=20).contains(&name.len()) && name.chars().all(plain) && !RESERVED.contains(&name)
}

impl Serialize for Structured<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.event;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("specversion", "1.0")?;
        map.serialize_entry("id", &event.id)?;
        map.serialize_entry("source", &*event.source)?;
        map.serialize_entry("type", &*event.event_type)?;
        map.serialize_entry("subject", &*event.aggregate_id)?;
        map.serialize_entry("time", &event.occurred_at)?;
        map.serialize_entry("recordedtime", &event.created_at)?;
        map.serialize_entry("partitionkey", &event.key())?;
        map.serialize_entry("aggregatetype", &*event.aggregate_type)?;
        map.serialize_entry("aggregateid", &*event.aggregate_id)?;
        map.serialize_entry("eventversion", &i64::from(event.event_version))?;
        if let Some(tenant) = &event.tenant {
            map.serialize_entry("tenant", tenant)?;
        }
        if let Some(encoding) = &event.encoding {
            map.serialize_entry("encoding", encoding)?;
        }
        if self.marks.late {
            map.serialize_entry(LATE, "true")?;
        }
        if self.marks.replay {
            map.serialize_entry(REPLAY, "true")?;
        }
        let (attributes, others): (Vec<_>, Vec<_>) =
            event.headers.iter().partition(|(name, _)| is_attribute_name(name));
        for (name, value) in attributes {
            map.serialize_entry(name, value)?;
        }
        if !others.is_empty() {
            let others: BTreeMap<_, _> = others.into_iter().collect();
            let text = serde_json::to_string(&others).map_err(serde::ser::Error::custom)?;
            map.serialize_entry("postriderheaders", &text)?;
        }
        map.serialize_entry("datacontenttype", &*event.content_type)?;
        match &event.payload {
            Payload::Json(bytes) => {
                let text = std::str::from_utf8(bytes).map_err(serde::ser::Error::custom)?;
                let raw: &RawValue =
                    serde_json::from_str(text).map_err(serde::ser::Error::custom)?;
                map.serialize_entry("data", raw)?;
            }
            Payload::Bytes(bytes) => map.serialize_entry("data_base64", &BASE64.encode(bytes))?,
            Payload::Erased => {}
        }
        map.end()
    }
}

/// The members of a document, each taken once by its name; what is left are extensions.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl Members<'_> {
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(raw) = self.0.remove(name) else {
            return Ok(None);
        };
        serde_json::from_str(raw.get()).map_err(|e| invalid(format!("attribute `{name}`: {e}")))
    }

    fn is_true(&mut self, name: &str) -> Result<bool> {
        Ok(self.take::<String>(name)?.as_deref() == Some("true"))
    }

    fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        self.take(name)?.ok_or_else(|| invalid(format!("attribute `{name}` is missing")))
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "read cloudevent").message(message)
}

/// Reads a structured event, and how it is marked. Documents that Postrider did not
/// write are read too: without `aggregatetype` the part of the type before its first dot is taken,
/// without `aggregateid` the subject, then the id.
///
/// # Errors
/// [`ErrorKind::TooLarge`] over [`DOCUMENT_BYTES_MAX`]; [`ErrorKind::Invalid`] if it is no CloudEvent
/// of version 1.0.
pub fn parse(text: &[u8]) -> Result<(Event, Marks)> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "read cloudevent")
            .message(format!("{} bytes, at most {DOCUMENT_BYTES_MAX}", text.len())));
    }
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_slice(text).map_err(|e| invalid(format!("not a CloudEvent: {e}")))?;
    let mut members = Members(members);
    let version: String = members.need("specversion")?;
    if version != "1.0" {
        return Err(invalid(format!("specversion `{}`", version.escape_debug())));
    }
    let id: EventId = members.need("id")?;
    let event_type: String = members.need("type")?;
    let subject: Option<String> = members.take("subject")?;
    let aggregate_type = members.take("aggregatetype")?.unwrap_or_else(|| {
        event_type.split_once('.').map_or(&*event_type, |(first, _)| first).to_owned()
    });
    let aggregate_id = members.take("aggregateid")?.or(subject).unwrap_or_else(|| id.to_string());
    let mut event = Event::new(id, &aggregate_type, &aggregate_id, &event_type);
    let default_key = event.key();
    let key: Option<String> = members.take("partitionkey")?;
    event.key = key.filter(|key| *key != default_key).map(Into::into);
    event.source = Arc::from(members.need::<String>("source")?);
    event.event_version = members.take("eventversion")?.unwrap_or(1);
    event.tenant = members.take::<String>("tenant")?.map(Into::into);
    event.encoding = members.take::<String>("encoding")?.map(Into::into);
    let occurred: Option<Timestamp> = members.take("time")?;
    let recorded: Option<Timestamp> = members.take("recordedtime")?;
    event.occurred_at = occurred.or(recorded).unwrap_or_default();
    event.created_at = recorded.or(occurred).unwrap_or_default();
    if let Some(content_type) = members.take::<String>("datacontenttype")? {
        event.content_type = Arc::from(content_type);
    }
    event.payload = take_payload(&mut members)?;
    let marks = Marks { late: members.is_true(LATE)?, replay: members.is_true(REPLAY)? };
    event.headers = take_headers(members)?;
    Ok((event, marks))
}

fn take_payload(members: &mut Members<'_>) -> Result<Payload> {
    let encoded: Option<String> = members.take("data_base64")?;
    if let Some(data) = members.0.remove("data") {
        return Ok(Payload::Json(Bytes::copy_from_slice(data.get().as_bytes())));
    }
    match encoded {
        None => Ok(Payload::Erased),
        Some(text) => BASE64
            .decode(text)
            .map(|bytes| Payload::Bytes(Bytes::from(bytes)))
            .map_err(|e| invalid(format!("data_base64: {e}"))),
    }
}

fn take_headers(mut members: Members<'_>) -> Result<Headers> {
    let packed: Option<String> = members.take("postriderheaders")?;
    let mut headers: Headers = match packed {
        None => Headers::new(),
        Some(text) => serde_json::from_str(&text)
            .map_err(|e| invalid(format!("postriderheaders is not an object of strings: {e}")))?,
    };
    for (name, raw) in members.0 {
        let text = serde_json::from_str::<String>(raw.get());
        headers.insert(name, text.unwrap_or_else(|_| raw.get().to_owned()));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Event {
        let mut event = Event::new(EventId::from_u128(9), "order", "42", "order.placed");
        event.source = Arc::from("/shop");
        event.occurred_at = "2026-01-02T03:04:05Z".parse().unwrap();
        event.created_at = "2026-01-02T03:04:06Z".parse().unwrap();
        event
    }

    /// R013, R015: payloads keep their bytes; the fact's time and the row's time both travel.
    #[test]
    fn an_event_survives_the_wire() {
        let mut event = sample();
        event.payload = Payload::json("{\"n\": 12345678901234567890, \"s\":\"\\u00e4\"}").unwrap();
        event.headers.insert("traceparent".into(), "00-ab-cd-01".into());
        event.headers.insert("x-request.id".into(), "7".into());
        event.headers.insert("subject".into(), "reserved names are packed".into());
        event.key = Some("customer/9".into());
        event.tenant = Some("acme".into());
        let marks = Marks { late: true, replay: true };
        let text = to_json(&event, marks).unwrap();
        assert!(!text.contains(&b'\n'));
        assert_eq!(parse(&text).unwrap(), (event, marks));
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["time"], "2026-01-02T03:04:05Z");
        assert_eq!(value["recordedtime"], "2026-01-02T03:04:06Z");
        assert_eq!(value["traceparent"], "00-ab-cd-01");
    }

    #[test]
    fn what_is_no_cloudevent_is_refused() {
        for bad in [
            &b"\xff"[..],
            b"{}",
            b"[]",
            br#"{"specversion":"0.3","id":"0","source":"","type":"t"}"#,
            br#"{"specversion":"1.0","id":"x","source":"s","type":"t"}"#,
        ] {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        let large = vec![b' '; DOCUMENT_BYTES_MAX + 1];
        assert_eq!(parse(&large).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    proptest! {
        #[test]
        fn opaque_payloads_round_trip(bytes: Vec<u8>) {
            let mut event = sample();
            event.payload = Payload::bytes(bytes);
            event.content_type = Arc::from("application/octet-stream");
            let text = to_json(&event, Marks::default()).unwrap();
            prop_assert_eq!(parse(&text).unwrap(), (event, Marks::default()));
        }

        #[test]
        fn arbitrary_input_never_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
