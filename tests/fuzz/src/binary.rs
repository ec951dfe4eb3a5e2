//! CloudEvents in binary mode: attributes as headers, and the payload as the body.

use postrider_core::cloudevents::binary as format;
use postrider_core::{Event, Marks};

use crate::message::Message;

/// Attributes as they come in headers of HTTP or NATS, where they are encoded.
pub fn binary(input: &[u8]) {
    let mut message = Message::of(input);
    let content_type = message.take("@content-type");
    let key = message.take("@key");
    let mut attributes = Vec::new();
    for (name, value) in &message.headers {
        match format::decode_value(value) {
            Ok(value) => attributes.push((*name, value)),
            Err(_) => return,
        }
    }
    let pairs = attributes.iter().map(|(name, value)| (*name, &**value));
    let Ok((event, marks)) = format::parse_keyed(pairs, content_type, message.body, key) else {
        return;
    };
    assert_eq!(again(&event, marks), (event, marks));
}

/// The event written in binary mode, and read.
pub(crate) fn again(event: &Event, marks: Marks) -> (Event, Marks) {
    let attributes = format::attributes(event, marks).expect("what was read can be written");
    let mut read = Vec::new();
    for (name, value) in &attributes {
        let header = format::encode_value(value);
        assert!(header.bytes().all(|byte| byte.is_ascii_graphic()), "{name}: {header}");
        let value = format::decode_value(header.as_bytes()).expect("what was encoded is decoded");
        read.push((*name, value));
    }
    let body = bytes::Bytes::copy_from_slice(event.payload.as_bytes());
    let read = read.iter().map(|(name, value)| (*name, &**value));
    format::parse(read, Some(&event.content_type), body).expect("what was written can be read")
}
