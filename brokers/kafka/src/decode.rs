//! From a record to an event, in whichever format the record is: CloudEvents' Kafka binding in both modes, and the
//! payload with headers beside it, as we write it or as Debezium's outbox event router does.
//!
//! Invariants: what was encoded here is read back equal, and what is no event has a reason; of events that say
//! nothing else to be ordered by, those of one record key have one ordering key.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::cloudevents::{self, binary};
use postrider_core::plain::{self, Around};
use postrider_core::{ErrorKind, Event, Fault, KeyHash, Marks, Timestamp, schema_id};
use rdkafka::message::{Headers, Message};

use crate::encode::{CONTENT_TYPE, PREFIX};

/// The longest key that becomes an event's: it goes into headers, of which servers take 8 KiB and more, and may be
/// three times as long there.
const KEY_BYTES_MAX: usize = 1_024;

/// What there is to say of a record without a value, and without headers that make it an event.
const SOMEBODY_ELSES_TOMBSTONE: &str = "the record has no value, and no headers of an event: a tombstone of another producer, by which \
     a compacted topic forgets its key. It stands in for no event, so there is nothing to act on, and nothing is lost. Where what \
     was deleted has to be acted on, let its producer write an event: the headers `ce_id`, `ce_source`, `ce_type`, and `ce_specversion` \
     beside the missing value";

/// Reads a record. `source` is who said what the router wrote, which does not say it.
pub(crate) fn decode(message: &impl Message, source: &str) -> Result<(Arc<Event>, Marks), Fault> {
    let wrong = |detail: String| Fault::new(ErrorKind::Invalid, detail);
    let mut attributes: Vec<(&str, &str)> = Vec::new();
    let mut content_type = None;
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        let plain = header.key.strip_prefix(PREFIX);
        if plain.is_none() && !header.key.eq_ignore_ascii_case(CONTENT_TYPE) {
            continue;
        }
        let value = std::str::from_utf8(header.value.unwrap_or_default())
            .map_err(|_| wrong(format!("the header `{}` is not UTF-8", header.key)))?;
        match plain {
            Some(plain) => attributes.push((plain, value)),
            None => content_type = Some(value),
        }
    }
    let body = message.payload().unwrap_or_default();
    let is_binary = attributes.iter().any(|(name, _)| *name == "specversion");
    let read = if plain::is_ours(names(message)) {
        read_plain(message, body, source)
    } else if is_binary {
        let body = Bytes::copy_from_slice(body);
        binary::parse_keyed(attributes, content_type, body, ordering_key(message).as_deref())
            .map(|(event, marks)| (with_schema_ids(event, message), marks))
    } else if !content_type.is_some_and(cloudevents::is_structured)
        && names(message).any(|name| name == plain::ROUTER_ID)
    {
        read_plain(message, body, source)
    } else if message.payload().is_none() {
        return Err(wrong(SOMEBODY_ELSES_TOMBSTONE.to_owned()));
    } else {
        cloudevents::parse_keyed(body, ordering_key(message).as_deref())
    };
    let (event, marks) = read.map_err(|error| wrong(format!("{error:?}")))?;
    Ok((Arc::new(event), marks))
}

fn names<M: Message>(message: &M) -> impl Iterator<Item = &str> {
    message.headers().into_iter().flat_map(Headers::iter).map(|header| header.key)
}

/// The event with the headers that name its schema, where only the record says them, as those of somebody else do.
fn with_schema_ids(mut event: Event, message: &impl Message) -> Event {
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        schema_id::take(&mut event.headers, header.key, header.value.unwrap_or_default());
    }
    event
}

/// The record's key as text: its bytes in hexadecimal digits where they are none.
fn key_text(message: &impl Message) -> Option<Cow<'_, str>> {
    let key = message.key().filter(|key| !key.is_empty())?;
    if let Ok(text) = std::str::from_utf8(key) {
        return Some(Cow::Borrowed(text));
    }
    let digits = key.iter().fold("0x".to_owned(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    Some(bounded(Cow::Owned(digits)))
}

/// The record's key as an event's that has none.
fn ordering_key(message: &impl Message) -> Option<Cow<'_, str>> {
    key_text(message).map(bounded)
}

/// Of one that is too long, its hash: those who share it wait for each other, and no order is broken.
fn bounded(key: Cow<'_, str>) -> Cow<'_, str> {
    if key.len() <= KEY_BYTES_MAX {
        return key;
    }
    Cow::Owned(format!("fnv1a:{:016x}", KeyHash::of(&key).0))
}

/// A record whose value is the payload. Of headers that are no text, but for those that name a schema, only their readers
/// know the meaning: they are left out.
fn read_plain(
    message: &impl Message,
    body: &[u8],
    source: &str,
) -> Result<(Event, Marks), postrider_core::Error> {
    let texts = message.headers().into_iter().flat_map(Headers::iter).filter_map(|header| {
        Some((header.key, schema_id::to_text(header.key, header.value.unwrap_or_default())?))
    });
    let texts: Vec<(&str, Cow<'_, str>)> = texts.collect();
    let texts = texts.iter().map(|(name, value)| (*name, &**value));
    let key = key_text(message);
    let around = Around {
        topic: message.topic(),
        key: key.as_deref(),
        time: message
            .timestamp()
            .to_millis()
            .map(|ms| Timestamp::from_micros(ms.saturating_mul(1_000))),
        source,
    };
    plain::parse(texts, Bytes::copy_from_slice(body), &around)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use postrider_core::{EventId, Format, NewEvent, Outgoing, RecordKey};
    use rdkafka::message::{Header, OwnedHeaders, OwnedMessage, Timestamp};

    fn message(value: Option<Vec<u8>>, headers: OwnedHeaders) -> OwnedMessage {
        keyed(None, value, headers)
    }

    fn keyed(key: Option<&[u8]>, value: Option<Vec<u8>>, headers: OwnedHeaders) -> OwnedMessage {
        OwnedMessage::new(
            value,
            key.map(<[u8]>::to_vec),
            "orders".into(),
            Timestamp::NotAvailable,
            0,
            0,
            Some(headers),
        )
    }

    /// R062, R063: what was sent is read, in every format, and as a tombstone.
    #[test]
    fn what_was_sent_is_read() {
        let new = |payload: Vec<u8>| {
            NewEvent::new("order", "4 2", "order.placed").source("/ü").bytes(payload, "a/b")
        };
        let tombstone = new(vec![]).header(crate::TOMBSTONE, "true");
        for new in [new(vec![0, 255]), new(vec![]), tombstone] {
            for format in [Format::Structured, Format::Binary, Format::Plain, Format::Debezium] {
                let event = Arc::new(new.event().clone());
                let marks = Marks { late: true, replay: false };
                let topic = "orders".into();
                let sent = Outgoing { event, topic, format, layout: None, marks, attempt: 1 };
                let mut document = Vec::new();
                let record = encode(&sent, &RecordKey::aggregate_id(), &mut document).unwrap();
                let value = record.value.map(<[u8]>::to_vec);
                let key = record.key.as_deref();
                let read =
                    decode(&keyed(key, value, record.headers), plain::ROUTER_SOURCE).unwrap();
                assert_eq!(read, (sent.event, marks));
            }
        }
    }

    /// F21, F22: what is no event is said to be none.
    #[test]
    fn what_is_no_event_has_a_reason() {
        let header = |key, value: &'static [u8]| {
            OwnedHeaders::new().insert(Header { key, value: Some(value) })
        };
        for (value, headers) in [
            (None, OwnedHeaders::new()),
            (Some(b"{}".to_vec()), OwnedHeaders::new()),
            (Some(b"\xff".to_vec()), header("content-type", b"text/plain")),
            (Some(b"{}".to_vec()), header("ce_id", b"\xff")),
            (Some(b"{}".to_vec()), header("ce_specversion", b"1.0")),
            (Some(b"{}".to_vec()), header("postrider-source", b"/s")),
            (Some(b"{}".to_vec()), header("id", b"17")),
        ] {
            let fault = decode(&message(value, headers), plain::ROUTER_SOURCE).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Invalid);
        }
    }

    /// What others delete in a compacted topic is said to be that, and not a document that cannot be read; an event without a
    /// value stays one.
    #[test]
    fn a_tombstone_of_somebody_elses_is_called_one() {
        let headers = |content_type| {
            OwnedHeaders::new().insert(Header { key: "content-type", value: Some(content_type) })
        };
        let structured = headers("application/cloudevents+json");
        for headers in [OwnedHeaders::new(), headers("application/json"), structured] {
            let fault = decode(&keyed(Some(b"42"), None, headers.clone()), plain::ROUTER_SOURCE)
                .unwrap_err();
            assert!(fault.detail.contains("tombstone"), "{fault:?}");
            let fault =
                decode(&keyed(Some(b"42"), Some(Vec::new()), headers), plain::ROUTER_SOURCE)
                    .unwrap_err();
            assert!(!fault.detail.contains("tombstone"), "an empty value is one: {fault:?}");
        }
        let [_, binary, _] = without_a_key(7, b"42");
        let deleted = keyed(Some(b"42"), None, binary.headers().unwrap().clone());
        assert_eq!(decode(&deleted, plain::ROUTER_SOURCE).unwrap().0.id, EventId::from_u128(7));
    }

    /// What others write about order 42, in each way that says no key of its own but the record's.
    fn without_a_key(id: u128, key: &[u8]) -> [OwnedMessage; 3] {
        let id = EventId::from_u128(id).to_string();
        let headers = |pairs: &[(&str, &str)]| {
            pairs.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header { key, value: Some(*value) })
            })
        };
        let binary = [("ce_specversion", "1.0"), ("ce_id", &id), ("ce_source", "/s")];
        let binary = headers(&[&binary[..], &[("ce_type", "order.placed")]].concat());
        let document = format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"order.placed","data":1}}"#
        );
        [
            keyed(Some(key), Some(b"1".to_vec()), headers(&[("id", &id)])),
            keyed(Some(key), Some(b"1".to_vec()), binary),
            keyed(Some(key), Some(document.into_bytes()), OwnedHeaders::new()),
        ]
    }

    /// R070: records of one key are events of one key, whatever its bytes, and those of others are of others.
    #[test]
    fn a_records_key_orders_what_has_none() {
        let (short, long) = ([0u8, 0, 0, 200], [200u8; 600]);
        let (text, text_long) = (&b"42"[..], "4".repeat(2_000));
        let of = |id, key: &[u8], nth: usize| {
            decode(&without_a_key(id, key)[nth], plain::ROUTER_SOURCE).unwrap().0
        };
        let keys = [text, &short, &long, text_long.as_bytes(), b"43", &[0, 0, 0, 201], &[201; 600]];
        for nth in 0..3 {
            for key in keys {
                let (one, other) = (of(1, key, nth), of(2, key, nth));
                assert_eq!(one.key_hash(), other.key_hash(), "{nth}: {key:?}");
                let apart = keys.iter().filter(|other| **other != key);
                apart.for_each(|other| assert_ne!(one.key(), of(1, other, nth).key(), "{nth}"));
            }
            // Without a key they are as many as there are.
            assert_ne!(of(1, b"", nth).key(), of(2, b"", nth).key());
        }
        assert_eq!(of(1, text, 0).key(), "orders/42");
        assert_eq!(of(1, &short, 0).key(), "orders/0x000000c8");
        for nth in [1, 2] {
            assert_eq!(of(1, text, nth).key(), "42");
            assert_eq!(of(1, &short, nth).key(), "0x000000c8");
            assert!(of(1, text_long.as_bytes(), nth).key().len() < 100, "it goes into a header");
        }
        assert_eq!(&*of(1, text_long.as_bytes(), 0).aggregate_id, text_long, "the id is the id");
    }
}
