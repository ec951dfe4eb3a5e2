//! The payload with headers beside it, as we write it or as Debezium's router does.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::plain::{self as format, Around, ROUTER_SOURCE};
use postrider_core::{Event, Format, Marks, Outgoing};

use crate::message::Message;

/// Headers, body, and what stands around them: topic, key, and time of the message.
pub fn plain(input: &[u8]) {
    let mut message = Message::of(input);
    let around = Around {
        topic: message.take("@topic").unwrap_or("outbox.event.order"),
        key: message.take("@key"),
        time: message.take("@time").and_then(|text| text.parse().ok()),
        source: message.take("@source").unwrap_or(ROUTER_SOURCE),
    };
    let texts = message.headers.iter();
    let texts = texts.filter_map(|(name, value)| Some((*name, std::str::from_utf8(value).ok()?)));
    let Ok((event, marks)) = format::parse(texts, message.body, &around) else { return };
    for format in [Format::Plain, Format::Debezium] {
        assert_eq!(again(&event, marks, format), (event.clone(), marks), "{format}");
    }
}

/// The event written in this format, and read: for a transport that carries any header, and for one that does not.
pub(crate) fn again(event: &Event, marks: Marks, format: Format) -> (Event, Marks) {
    let mut sent = Outgoing::new(Arc::new(event.clone()), "orders");
    sent.format = format;
    sent.marks = marks;
    let [any, few] = [true, false].map(|any| {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let carries = |name: &str, value: &str| any || (plain(name) && plain(value));
        let headers = format::headers(&sent, carries).expect("what was read can be written");
        assert!(format::is_ours(headers.iter().map(|header| &*header.name)));
        let around = Around { topic: "else.where", key: Some("7"), time: None, source: "else" };
        let texts = headers.iter().map(|header| (&*header.name, &*header.value));
        let body = Bytes::copy_from_slice(event.payload.as_bytes());
        format::parse(texts, body, &around).expect("what was written can be read")
    });
    assert_eq!(any, few);
    any
}
