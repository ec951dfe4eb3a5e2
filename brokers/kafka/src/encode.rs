//! From an event to a record: CloudEvents' Kafka binding 1.0.2, in structured and binary mode, or the payload as
//! it is with headers beside it.
//!
//! Invariant: what cannot be sent is refused here, alone.

use std::borrow::Cow;

use postrider_core::cloudevents::{self, binary};
use postrider_core::{
    ErrorKind, Event, Fault, Format, Outgoing, RecordKey, TopicRule, plain, schema_id,
};
use rdkafka::message::{Header, OwnedHeaders};

/// The header of an event that says: this record is a tombstone. Its value is `true`, and the event has an
/// empty payload; the record then has no value at all, and a compacted topic forgets the key.
///
/// Without it an empty payload is an empty value, which a compacted topic keeps.
pub const TOMBSTONE: &str = "kafka-tombstone";
/// What stands before an attribute's name in a header.
pub(crate) const PREFIX: &str = "ce_";
/// The header that says what a value is, as the binding has it.
pub(crate) const CONTENT_TYPE: &str = plain::CONTENT_TYPE;
/// What a structured value is.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";
/// Headers that tracing looks for beside the event.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];
/// How many headers a message has that are no application's, at most: what room is made for.
const HEADERS_EXPECTED: usize = 16;
/// How much of a topic's name is shown: more than any has.
const TOPIC_CHARS_MAX: usize = 249;

/// A record, ready to be sent.
pub(crate) struct Encoded<'a> {
    pub(crate) key: Option<Cow<'a, [u8]>>,
    pub(crate) headers: OwnedHeaders,
    /// None is a tombstone.
    pub(crate) value: Option<&'a [u8]>,
    /// Of key, headers, and value: less than the record takes in the log, uncompressed.
    pub(crate) bytes: u64,
}

/// Encodes an event. A document is written into the text that is given, which is cleared before.
pub(crate) fn encode<'a>(
    outgoing: &'a Outgoing,
    record_key: &RecordKey,
    document: &'a mut Vec<u8>,
) -> Result<Encoded<'a>, Fault> {
    let event = &*outgoing.event;
    let said = |error: postrider_core::Error| Fault::new(error.kind(), format!("{error:?}"));
    let tombstone = is_tombstone(event)?;
    // A tombstone has no value that could hold a document.
    let format = match outgoing.format {
        Format::Structured if tombstone => Format::Binary,
        format => format,
    };
    let mut headers = Writer::new(match format {
        Format::Structured => 1 + TRACE.len(),
        _ => HEADERS_EXPECTED + event.headers.len(),
    });
    let value = match format {
        Format::Structured => {
            headers.put(CONTENT_TYPE, STRUCTURED);
            document.clear();
            cloudevents::append_json(event, outgoing.marks, document).map_err(said)?;
            &document[..]
        }
        Format::Binary => {
            let mut name = String::new();
            for (plain, value) in binary::attributes(event, outgoing.marks).map_err(said)? {
                name.clear();
                name.push_str(PREFIX);
                name.push_str(plain);
                headers.put(&name, &*value);
            }
            headers.put(CONTENT_TYPE, &*event.content_type);
            // Beside the attribute that holds them: who looks for them does not look there.
            for (name, value) in schema_id::of(event) {
                headers.put(name, &schema_id::to_bytes(name, value));
            }
            event.payload.as_bytes()
        }
        Format::Plain | Format::Debezium => {
            for header in plain::headers(outgoing, schema_id::survives).map_err(said)? {
                headers.put(&header.name, &schema_id::to_bytes(&header.name, &header.value));
            }
            event.payload.as_bytes()
        }
    };
    // Where the application's headers stand under their own names, these do already.
    for name in TRACE.iter().filter(|_| !format.has_open_headers()) {
        if let Some(value) = event.headers.get(*name) {
            headers.put(name, value);
        }
    }
    let of_route = outgoing.layout.as_deref().and_then(|layout| layout.key.as_ref());
    let key = of_route.unwrap_or(record_key).of(event);
    let bytes = headers.bytes + value.len() + key.as_ref().map_or(0, |key| key.len());
    let key = key.map(|key| match key {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    });
    let value = (!tombstone).then_some(value);
    Ok(Encoded { key, headers: headers.headers.unwrap_or_default(), value, bytes: bytes as u64 })
}

struct Writer {
    /// Taken while one is added: an empty list in its place would be allocated and freed for each header.
    headers: Option<OwnedHeaders>,
    bytes: usize,
}

impl Writer {
    fn new(expected: usize) -> Writer {
        Writer { headers: Some(OwnedHeaders::new_with_capacity(expected)), bytes: 0 }
    }

    fn put(&mut self, name: &str, value: &(impl AsRef<[u8]> + ?Sized)) {
        let value = value.as_ref();
        self.bytes += name.len() + value.len();
        let headers = self.headers.take();
        self.headers =
            headers.map(|headers| headers.insert(Header { key: name, value: Some(value) }));
    }
}

/// Whether an event says so.
fn is_tombstone(event: &Event) -> Result<bool, Fault> {
    let wrong = |what: &str| Err(Fault::new(ErrorKind::Invalid, what));
    match event.headers.get(TOMBSTONE).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") if event.payload.is_empty() => Ok(true),
        Some("true") => wrong(
            "the header `kafka-tombstone` goes with an empty payload: a tombstone carries none",
        ),
        Some(_) => wrong("the header `kafka-tombstone` is `true` or `false`"),
    }
}

/// What is wrong with the name of a topic, if something is.
pub(crate) fn unusable(topic: &str) -> Option<Fault> {
    let wrong = TopicRule::Name.unusable(topic)?;
    let shown: String = topic.chars().take(TOPIC_CHARS_MAX).collect();
    let detail = format!("`{}` is no topic of Kafka: {wrong}", shown.escape_debug());
    Some(Fault::new(ErrorKind::Invalid, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use postrider_core::{Marks, NewEvent};
    use rdkafka::message::Headers;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn outgoing(format: Format, payload: Vec<u8>, headers: &[(&str, &str)]) -> Outgoing {
        let mut new = NewEvent::new("order", "4 2", "order.placed")
            .source("/shop/ü")
            .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .header("x-note", "a \"b\" % €")
            .bytes(payload, "application/octet-stream");
        for (name, value) in headers {
            new = new.header(*name, *value);
        }
        let marks = Marks { late: true, replay: false };
        let event = Arc::new(new.event().clone());
        Outgoing { event, topic: "orders".into(), format, layout: None, marks, attempt: 1 }
    }

    fn texts(headers: &OwnedHeaders) -> BTreeMap<String, String> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let pair = |header: Header<'_, &[u8]>| (header.key.to_owned(), text(header.value.unwrap()));
        headers.iter().map(pair).collect()
    }

    /// The text that all documents of a batch are written into holds one at a time, also behind one that could not be.
    #[test]
    fn documents_of_a_batch_stay_apart() {
        let key = RecordKey::aggregate_id();
        let mut broken = outgoing(Format::Structured, Vec::new(), &[]);
        Arc::get_mut(&mut broken.event).unwrap().payload =
            postrider_core::Payload::Json(Bytes::from_static(b"{"));
        let mut document = Vec::new();
        for bytes in [100, 1, 100_000, 10] {
            assert!(encode(&broken, &key, &mut document).is_err());
            let sent = outgoing(Format::Structured, vec![7; bytes], &[]);
            let alone = encode(&sent, &key, &mut Vec::new()).unwrap().value.unwrap().to_vec();
            let shared = encode(&sent, &key, &mut document).unwrap().value.unwrap().to_vec();
            assert!(shared == alone, "{bytes} bytes");
        }
    }

    /// R062, R063: whatever an event holds, it survives the record, in both modes, and the payload's bytes
    /// are untouched in binary mode.
    #[test]
    fn an_event_survives_both_modes() {
        let key = RecordKey::aggregate_id();
        let sent = outgoing(Format::Binary, vec![0, 255, 10], &[]);
        let mut document = Vec::new();
        let record = encode(&sent, &key, &mut document).unwrap();
        assert_eq!(record.key.as_deref(), Some(&b"4 2"[..]));
        assert_eq!(record.value, Some(&[0u8, 255, 10][..]));
        let headers = texts(&record.headers);
        assert_eq!(headers["ce_source"], "/shop/ü", "UTF-8, as the binding has it");
        assert_eq!(headers["content-type"], "application/octet-stream");
        assert!(!headers.contains_key("ce_datacontenttype"));
        assert!(headers.contains_key("traceparent"));
        let attributes = headers.iter().filter_map(|(name, value)| {
            name.strip_prefix(PREFIX).map(|plain| (plain, value.as_str()))
        });
        let body = Bytes::copy_from_slice(record.value.unwrap());
        let read = binary::parse(attributes, Some(&headers["content-type"]), body).unwrap();
        assert_eq!(read, ((*sent.event).clone(), sent.marks));

        let sent = outgoing(Format::Structured, vec![0, 255, 10], &[]);
        let mut document = Vec::new();
        let record = encode(&sent, &key, &mut document).unwrap();
        let read = cloudevents::parse(record.value.unwrap()).unwrap();
        assert_eq!(read, ((*sent.event).clone(), sent.marks));
        assert_eq!(texts(&record.headers)["content-type"], STRUCTURED);
    }

    /// Only what is said to be a tombstone is one.
    #[test]
    fn a_tombstone_is_explicit() {
        let key = RecordKey::aggregate_id();
        let of = |payload: &[u8], headers: &[(&str, &str)]| {
            let sent = outgoing(Format::Structured, payload.to_vec(), headers);
            encode(&sent, &key, &mut Vec::new()).map(|record| record.value.map(<[u8]>::to_vec))
        };
        assert_eq!(of(b"", &[(TOMBSTONE, "true")]).unwrap(), None);
        assert!(of(b"", &[(TOMBSTONE, "false")]).unwrap().is_some());
        let binary = outgoing(Format::Binary, Vec::new(), &[]);
        assert_eq!(encode(&binary, &key, &mut Vec::new()).unwrap().value, Some(&b""[..]));
        for (payload, value) in [(&b"x"[..], "true"), (b"", "yes")] {
            let refused = of(payload, &[(TOMBSTONE, value)]).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Invalid);
            assert!(refused.detail.contains(TOMBSTONE), "{refused}");
        }
    }

    /// F22: a topic's name comes from the event's own fields, and may be anything.
    #[test]
    fn what_is_no_topic_is_refused() {
        for topic in ["", ".", "..", "a b", "ä", "a/b", "a\n", &"a".repeat(250)] {
            assert_eq!(unusable(topic).unwrap().kind, ErrorKind::Invalid, "{topic}");
        }
        for topic in ["orders", "shop.orders_v2-x", &"a".repeat(249)] {
            assert_eq!(unusable(topic), None, "{topic}");
        }
    }
}
