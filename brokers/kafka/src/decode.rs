//! From a record to an event: CloudEvents' Kafka binding, in the mode that the record has.
//!
//! Invariant: what was encoded here is read back equal, and what is no event has a reason.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::cloudevents::{self, binary};
use postrider_core::{ErrorKind, Event, Fault, Marks};
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
    let read = match is_binary {
        true => binary::parse(attributes, content_type, Bytes::copy_from_slice(body)),
        false => cloudevents::parse(body),
    };
    let (event, marks) = read.map_err(|error| wrong(format!("{error:?}")))?;
    Ok((Arc::new(event), marks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use crate::record_key::RecordKey;
    use postrider_core::{Format, NewEvent, Outgoing};
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

    /// R062, R063: what was sent is read, in both modes, and as a tombstone.
    #[test]
    fn what_was_sent_is_read() {
        let new = |payload: Vec<u8>| {
            NewEvent::new("order", "4 2", "order.placed").source("/ü").bytes(payload, "a/b")
        };
        let tombstone = new(vec![]).header(crate::TOMBSTONE, "true");
        for new in [new(vec![0, 255]), new(vec![]), tombstone] {
            for format in [Format::Structured, Format::Binary] {
                let event = Arc::new(new.event().clone());
                let marks = Marks { late: true, replay: false };
                let topic = "orders".into();
                let sent = Outgoing { event, topic, format, marks, attempt: 1 };
                let record = encode(&sent, &RecordKey::aggregate_id()).unwrap();
                let value = record.value.map(std::borrow::Cow::into_owned);
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
        ] {
            let fault = decode(&message(value, headers)).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Invalid);
        }
    }
}
