//! From a record to an event, in whichever format the record is: CloudEvents' Kafka binding in both modes, and the
//! payload with headers beside it, as we write it or as Debezium's outbox event router does.
//!
//! Invariant: what was encoded here is read back equal, and what is no event has a reason.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::cloudevents::{self, binary};
use postrider_core::plain::{self, Around};
use postrider_core::{ErrorKind, Event, Fault, Marks, Timestamp};
use rdkafka::message::{Headers, Message};

use crate::encode::{CONTENT_TYPE, PREFIX};

pub(crate) fn decode(message: &impl Message) -> Result<(Arc<Event>, Marks), Fault> {
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
        read_plain(message, body)
    } else if is_binary {
        binary::parse(attributes, content_type, Bytes::copy_from_slice(body))
    } else if !content_type.is_some_and(cloudevents::is_structured)
        && names(message).any(|name| name == plain::ROUTER_ID)
    {
        read_plain(message, body)
    } else {
        cloudevents::parse(body)
    };
    let (event, marks) = read.map_err(|error| wrong(format!("{error:?}")))?;
    Ok((Arc::new(event), marks))
}

fn names<M: Message>(message: &M) -> impl Iterator<Item = &str> {
    message.headers().into_iter().flat_map(Headers::iter).map(|header| header.key)
}

/// A record whose value is the payload. Of headers that are no text, as those of some serialisers, only their
/// readers know the meaning: they are left out.
fn read_plain(
    message: &impl Message,
    body: &[u8],
) -> Result<(Event, Marks), postrider_core::Error> {
    let texts = message.headers().into_iter().flat_map(Headers::iter).filter_map(|header| {
        Some((header.key, std::str::from_utf8(header.value.unwrap_or_default()).ok()?))
    });
    let around = Around {
        topic: message.topic(),
        key: message.key().and_then(|key| std::str::from_utf8(key).ok()),
        time: message.timestamp().to_millis().map(|ms| Timestamp::from_micros(ms * 1_000)),
    };
    plain::parse(texts, Bytes::copy_from_slice(body), &around)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use postrider_core::{Format, NewEvent, Outgoing, RecordKey};
    use rdkafka::message::{Header, OwnedHeaders, OwnedMessage, Timestamp};

    fn message(value: Option<Vec<u8>>, headers: OwnedHeaders) -> OwnedMessage {
        OwnedMessage::new(
            value,
            None,
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
                let read = decode(&message(value, record.headers)).unwrap();
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
            let fault = decode(&message(value, headers)).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Invalid);
        }
    }
}
