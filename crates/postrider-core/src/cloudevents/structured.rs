//! Structured mode: one JSON document with attributes and data.
//!
//! A JSON payload stands in the document byte for byte, so a signature over it stays valid.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::envelope::{self, Attributes, Value};
use super::{DOCUMENT_BYTES_MAX, invalid};
use crate::{Error, ErrorKind, Event, Marks, Payload, Result};

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
    let mut text = Vec::new();
    append_json(event, marks, &mut text)?;
    Ok(text)
}

/// Writes what [`to_json`] writes at the end of a text, which somebody who writes many keeps between them: a
/// document is longer than what an allocator hands out fast. After an error nothing was added.
///
/// # Errors
/// As [`to_json`].
pub fn append_json(event: &Event, marks: Marks, text: &mut Vec<u8>) -> Result<()> {
    // Most documents fit: then nothing is copied while they grow.
    text.reserve(ENVELOPE_BYTES + document_bytes(&event.payload));
    let from = text.len();
    write(text, event, marks).map_err(|e| {
        text.truncate(from);
        Error::new(ErrorKind::Invalid, "write cloudevent").context("event", event.id).source(e)
    })
}

/// What the attributes of most events take in a document.
const ENVELOPE_BYTES: usize = 640;

/// What a payload takes in a document.
fn document_bytes(payload: &Payload) -> usize {
    match payload {
        Payload::Json(bytes) => bytes.len(),
        Payload::Bytes(bytes) => bytes.len().div_ceil(3) * 4,
        Payload::Erased => 0,
    }
}

/// Writes the document by hand: its members are known, so each value is written where it belongs, and none is
/// made into a text of its own first.
fn write(text: &mut Vec<u8>, event: &Event, marks: Marks) -> serde_json::Result<()> {
    text.push(b'{');
    envelope::visit(event, marks, |name, value| {
        begin(text, name);
        put(text, value)
    })?;
    begin(text, "datacontenttype");
    serde_json::to_writer(&mut *text, &*event.content_type)?;
    match &event.payload {
        Payload::Json(bytes) => {
            // What only claims to be JSON would break the document.
            let raw: &RawValue = serde_json::from_slice(bytes)?;
            begin(text, "data");
            text.extend_from_slice(raw.get().as_bytes());
        }
        Payload::Bytes(bytes) => {
            begin(text, "data_base64");
            text.push(b'"');
            let from = text.len();
            text.resize(from + document_bytes(&event.payload), 0);
            BASE64
                .encode_slice(bytes, &mut text[from..])
                .expect("invariant: four bytes stand for each three, the last ones padded");
            text.push(b'"');
        }
        Payload::Erased => {}
    }
    text.push(b'}');
    Ok(())
}

/// Begins a member. Names of attributes are letters and digits.
fn begin(text: &mut Vec<u8>, name: &str) {
    let first = text.last() == Some(&b'{');
    text.extend_from_slice(if first { b"\"" } else { b",\"" });
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\":");
}

fn put(text: &mut Vec<u8>, value: Value<'_>) -> serde_json::Result<()> {
    use std::io::Write as _;
    match value {
        Value::Text(value) => serde_json::to_writer(text, value),
        Value::Owned(value) => serde_json::to_writer(text, &value),
        Value::Number(number) => serde_json::to_writer(text, &number),
        // Nothing in these needs to be escaped.
        Value::Id(id) => write!(text, "\"{id}\"").map_err(serde_json::Error::io),
        Value::Time(time) => write!(text, "\"{time}\"").map_err(serde_json::Error::io),
        Value::Pair(first, second) => {
            serde_json::to_writer(&mut *text, first)?;
            // The quotation mark at its end, and the next one's at its beginning, make room for the slash.
            text.pop();
            let slash = text.len();
            serde_json::to_writer(&mut *text, second)?;
            text[slash] = b'/';
            Ok(())
        }
    }
}

/// The members of a document.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl Members<'_> {
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(raw) = self.0.remove(name) else {
            return Ok(None);
        };
        serde_json::from_str(raw.get()).map_err(|e| envelope::unreadable(name, &e))
    }
}

impl Attributes for Members<'_> {
    fn text(&mut self, name: &str) -> Result<Option<String>> {
        self.take(name)
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>> {
        self.take(name)
    }

    fn rest(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter().map(|(name, raw)| {
            let text = serde_json::from_str::<String>(raw.get());
            (name, text.unwrap_or_else(|_| raw.get().to_owned()))
        })
    }
}

/// Reads a structured event, and how it is marked. Documents that Postrider did not
/// write are read too: without `aggregatetype` the part of the type before its first dot is taken,
/// without `aggregateid` the subject, then the id.
///
/// # Errors
/// [`ErrorKind::TooLarge`] over [`DOCUMENT_BYTES_MAX`]; [`ErrorKind::Invalid`] if it is no CloudEvent
/// of version 1.0.
pub fn parse(text: &[u8]) -> Result<(Event, Marks)> {
    parse_keyed(text, None)
}

/// As [`parse`], of a message that has a key beside the document: that orders an event which says
/// nothing else that could, neither `partitionkey` nor `aggregateid` nor `subject`.
///
/// # Errors
/// As [`parse`].
pub fn parse_keyed(text: &[u8], message_key: Option<&str>) -> Result<(Event, Marks)> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "read cloudevent")
            .message(format!("{} bytes, at most {DOCUMENT_BYTES_MAX}", text.len())));
    }
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_slice(text).map_err(|e| invalid(format!("not a CloudEvent: {e}")))?;
    let mut members = Members(members);
    let payload = take_payload(&mut members)?;
    let (mut event, marks) = envelope::assemble(members, message_key)?;
    event.payload = payload;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{EventId, Text};
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
    fn names_that_need_escapes_survive_the_wire() {
        let mut event = Event::new(EventId::from_u128(9), "a\"b", "c\\d/\u{7}\u{20ac}", "t");
        event.source = Arc::from("/shop");
        let text = to_json(&event, Marks::default()).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["partitionkey"], event.key());
        assert_eq!(parse(&text).unwrap().0.aggregate_id, event.aggregate_id);
    }

    #[test]
    fn what_only_claims_to_be_json_is_refused_and_adds_nothing() {
        let mut text = to_json(&sample(), Marks::default()).unwrap();
        let before = text.clone();
        for bad in [&b"1},\"id\":\"x\""[..], b"", b"\"\xff\"", b"{"] {
            let mut event = sample();
            event.payload = Payload::Json(Bytes::copy_from_slice(bad));
            let refused = append_json(&event, Marks::default(), &mut text).unwrap_err();
            assert_eq!((refused.kind(), &text), (ErrorKind::Invalid, &before));
        }
        append_json(&sample(), Marks::default(), &mut text).unwrap();
        assert_eq!(text, [&before[..], &before[..]].concat());
    }

    /// Somebody else's event that says nothing to be ordered by has its message's key, and others keep theirs.
    #[test]
    fn a_messages_key_orders_what_says_none() {
        let id = EventId::from_u128(9);
        let key_of = |more: &str, key| {
            let text = format!(
                r#"{{"specversion":"1.0","id":"{id}","source":"s","type":"order.placed"{more}}}"#
            );
            parse_keyed(text.as_bytes(), key).unwrap().0.key()
        };
        assert_eq!(key_of("", Some("42")), "42");
        for keyless in [None, Some("")] {
            assert_eq!(key_of("", keyless), format!("order/{id}"));
        }
        assert_eq!(key_of(r#","subject":"7""#, Some("42")), "order/7");
        assert_eq!(key_of(r#","aggregateid":"7""#, Some("42")), "order/7");
        assert_eq!(key_of(r#","partitionkey":"7""#, Some("42")), "7");
        // Also one that is about itself.
        assert_eq!(key_of(&format!(r#","subject":"{id}""#), Some("42")), format!("order/{id}"));
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
            event.content_type = Text::from("application/octet-stream");
            let text = to_json(&event, Marks::default()).unwrap();
            prop_assert_eq!(parse(&text).unwrap(), (event, Marks::default()));
        }

        #[test]
        fn arbitrary_input_never_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
