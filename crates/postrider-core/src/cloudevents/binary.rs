//! Binary mode: attributes travel as headers beside the body, and the body is the payload, byte for
//! byte.
//!
//! Every transport writes the attributes its own way: HTTP and NATS as `ce-NAME` with
//! [percent-encoded](encode_value) values, Kafka as `ce_NAME` in UTF-8. So this module gives and
//! takes plain names and values, and the adapter puts its prefix before them. The content type is
//! the transport's own header, never an attribute.
//!
//! A body does not say whether it is JSON text, opaque bytes, or nothing at all. Its media type and
//! its length decide; where they would mislead, the extension `postriderpayload` says it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::envelope::{self, Attributes, unreadable};
use super::{DOCUMENT_BYTES_MAX, PAYLOAD, invalid};
use crate::{Error, ErrorKind, Event, Marks, Payload, Result};

/// The prefix of attributes in HTTP and NATS headers.
pub const PREFIX: &str = "ce-";

/// Names and values of an event's attributes, without the content type and without a prefix.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the headers cannot be written.
///
/// ```
/// use postrider_core::cloudevents::binary;
/// use postrider_core::{Event, EventId, Marks};
/// let event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
/// let attributes = binary::attributes(&event, Marks::default())?;
/// assert!(attributes.iter().any(|(name, value)| *name == "subject" && value == "42"));
/// let (back, _) = binary::parse(
///     attributes.iter().map(|(name, value)| (*name, &**value)),
///     Some(&event.content_type),
///     bytes::Bytes::copy_from_slice(event.payload.as_bytes()),
/// )?;
/// assert_eq!(back, event);
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn attributes(event: &Event, marks: Marks) -> Result<Vec<(&str, Cow<'_, str>)>> {
    let mut attributes = Vec::with_capacity(16 + event.headers.len());
    envelope::visit(event, marks, |name, value| {
        attributes.push((name, value.into_text()));
        Ok::<(), serde_json::Error>(())
    })
    .map_err(|e| {
        Error::new(ErrorKind::Invalid, "write cloudevent").context("event", event.id).source(e)
    })?;
    let kind = payload_kind(event);
    attributes.extend(kind.map(|kind| (PAYLOAD, Cow::Borrowed(kind))));
    Ok(attributes)
}

/// What the body is, where its media type and its length would mislead.
pub(crate) fn payload_kind(event: &Event) -> Option<&'static str> {
    match &event.payload {
        Payload::Json(_) if !is_json(&event.content_type) => Some("json"),
        Payload::Bytes(bytes) if is_json(&event.content_type) || bytes.is_empty() => Some("bytes"),
        _ => None,
    }
}

/// The attributes of a message.
struct Texts(BTreeMap<String, String>);

impl Attributes for Texts {
    fn text(&mut self, name: &str) -> Result<Option<String>> {
        Ok(self.0.remove(name))
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>> {
        let text = self.0.remove(name);
        text.map(|text| text.parse().map_err(|e| unreadable(name, &e))).transpose()
    }

    fn rest(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter()
    }
}

/// Reads an event in binary mode, and how it is marked, from the names and decoded values of its
/// attributes, its content type, and its body. Of an attribute that comes twice the last counts.
/// Messages that Postrider did not write are read as [`super::parse`] reads documents.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if attributes and body are over [`DOCUMENT_BYTES_MAX`];
/// [`ErrorKind::Invalid`] if it is no CloudEvent of version 1.0.
pub fn parse<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
    content_type: Option<&str>,
    body: Bytes,
) -> Result<(Event, Marks)> {
    parse_keyed(attributes, content_type, body, None)
}

/// As [`parse`], of a message that has a key besides, which counts as in [`super::parse_keyed`].
///
/// # Errors
/// As [`parse`].
pub fn parse_keyed<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
    content_type: Option<&str>,
    body: Bytes,
    message_key: Option<&str>,
) -> Result<(Event, Marks)> {
    let mut texts = BTreeMap::new();
    let mut size = body.len();
    for (name, value) in attributes {
        size = size.saturating_add(name.len() + value.len());
        if size > DOCUMENT_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "read cloudevent")
                .message(format!("{size} bytes or more, at most {DOCUMENT_BYTES_MAX}")));
        }
        texts.insert(name.to_owned(), value.to_owned());
    }
    let kind = texts.remove(PAYLOAD);
    // The transport's own header is the content type; an attribute of that name is not allowed.
    texts.remove("datacontenttype");
    if let Some(content_type) = content_type {
        texts.insert("datacontenttype".to_owned(), content_type.to_owned());
    }
    let (mut event, marks) = envelope::assemble(Texts(texts), message_key)?;
    event.payload = payload(kind.as_deref(), &event.content_type, body)?;
    Ok((event, marks))
}

/// The payload that a body is.
pub(crate) fn payload(kind: Option<&str>, content_type: &str, body: Bytes) -> Result<Payload> {
    Ok(match kind {
        Some("bytes") => Payload::Bytes(body),
        Some("json") => json(body)?,
        _ if body.is_empty() => Payload::Erased,
        _ if is_json(content_type) => {
            // Bytes that only claim to be JSON are kept as they are.
            json(body.clone()).unwrap_or(Payload::Bytes(body))
        }
        _ => Payload::Bytes(body),
    })
}

fn json(body: Bytes) -> Result<Payload> {
    serde_json::from_slice::<&RawValue>(&body)
        .map_err(|e| invalid(format!("the body is not JSON: {e}")))?;
    Ok(Payload::Json(body))
}

/// Whether a media type says JSON: `application/json`, `text/json`, or a `+json` suffix.
fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    media == "application/json" || media == "text/json" || media.ends_with("+json")
}

/// A value as it stands in an HTTP header: space, `"`, `%`, and all that is not printable ASCII are
/// percent-encoded (HTTP binding 1.0.2, 3.1.3.2), so nothing in it can end the header.
///
/// ```
/// use postrider_core::cloudevents::binary::{decode_value, encode_value};
/// assert_eq!(encode_value("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
/// assert_eq!(decode_value(b"Euro%20%E2%82%AC%20%F0%9F%98%80")?, "Euro € 😀");
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn encode_value(value: &str) -> Cow<'_, str> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let plain = |byte: &u8| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'%');
    if value.as_bytes().iter().all(plain) {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len() + 16);
    for byte in value.bytes() {
        if plain(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    Cow::Owned(text)
}

/// The value of an HTTP header: a quoted string is unquoted, then one round of percent-decoding.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a broken escape or quotation, or bytes that are not UTF-8.
pub fn decode_value(header: &[u8]) -> Result<String> {
    let header = header.trim_ascii();
    let unquoted = match header {
        [b'"', quoted @ ..] => Cow::Owned(unquote(quoted)?),
        plain => Cow::Borrowed(plain),
    };
    let mut bytes = Vec::with_capacity(unquoted.len());
    let mut rest = &*unquoted;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low, after @ ..] = rest else {
            return Err(invalid("a percent sign without two digits in an attribute"));
        };
        match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => return Err(invalid("a percent sign without two digits in an attribute")),
        }
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| invalid("an attribute is not UTF-8"))
}

fn unquote(quoted: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(quoted.len());
    let mut rest = quoted;
    loop {
        match rest {
            [b'"'] => return Ok(bytes),
            [b'\\', byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
            [b'"' | b'\\', ..] | [] => {
                return Err(invalid("an attribute's quotation does not end"));
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventId, Text};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn read(event: &Event, marks: Marks) -> Result<(Event, Marks)> {
        let attributes = attributes(event, marks)?;
        // As HTTP has it: encoded on the way out, decoded on the way in.
        let wire: Vec<(&str, String)> = attributes
            .iter()
            .map(|(name, value)| Ok((*name, decode_value(encode_value(value).as_bytes())?)))
            .collect::<Result<_>>()?;
        parse(
            wire.iter().map(|(name, value)| (*name, &**value)),
            Some(&event.content_type),
            Bytes::copy_from_slice(event.payload.as_bytes()),
        )
    }

    #[test]
    fn values_are_encoded_as_the_binding_says() {
        for (value, header) in [
            ("plain/value~!#", "plain/value~!#"),
            ("a b", "a%20b"),
            ("\"%\"", "%22%25%22"),
            ("\r\nx: y\u{0}\u{7f}", "%0D%0Ax:%20y%00%7F"),
            ("ä", "%C3%A4"),
            ("", ""),
        ] {
            assert_eq!(encode_value(value), header);
            assert_eq!(decode_value(header.as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn values_are_decoded_leniently_and_never_wrongly() {
        for (header, value) in [
            (&b"%41%42c"[..], "ABc"),
            (b"%c3%a4", "ä"),
            (b"\"a b\"", "a b"),
            (br#""a\"%20\\""#, "a\" \\"),
            (b"  padded ", "padded"),
            ("ä".as_bytes(), "ä"),
            (b"%2541", "%41"),
        ] {
            assert_eq!(decode_value(header).unwrap(), value);
        }
        for broken in
            [&b"%"[..], b"%4", b"%zz", b"%C0%A0", b"\xff", b"\"open", b"\"a\"b", b"\"", b"\"\\"]
        {
            let error = decode_value(broken).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{broken:?}");
        }
    }

    #[test]
    fn what_is_no_cloudevent_is_refused() {
        let id = ("id", "0194d5e0-0000-7000-8000-000000000000");
        let full = [("specversion", "1.0"), id, ("source", "/s"), ("type", "order.placed")];
        assert!(parse(full, None, Bytes::new()).is_ok());
        for left_out in 0..full.len() {
            let partial = full.iter().enumerate().filter(|(n, _)| *n != left_out);
            let partial = partial.map(|(_, attribute)| *attribute);
            assert!(parse(partial, None, Bytes::new()).is_err(), "{:?}", full[left_out]);
        }
        let large = Bytes::from(vec![b' '; DOCUMENT_BYTES_MAX + 1]);
        assert_eq!(parse(full, None, large).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn foreign_events_are_read() {
        let attributes = [
            ("specversion", "1.0"),
            ("id", "0194d5e0-0000-7000-8000-000000000000"),
            ("source", "/s"),
            ("type", "order.placed"),
            ("subject", "42"),
            ("datacontenttype", "text/html"),
            ("sequence", "0017"),
        ];
        let body = Bytes::from_static(b"{\"a\": 1}");
        let (event, _) = parse(attributes, Some("application/json"), body.clone()).unwrap();
        assert_eq!((event.key(), &*event.content_type), ("order/42".into(), "application/json"));
        assert_eq!(event.payload, Payload::Json(body));
        assert_eq!(event.headers["sequence"], "0017");
        // F21: bytes that only claim to be JSON are kept, and do not fail the event.
        let torn = Bytes::from_static(b"{\"a\"\xff");
        let (event, _) = parse(attributes, Some("application/json"), torn.clone()).unwrap();
        assert_eq!(event.payload, Payload::Bytes(torn));
    }

    fn payloads() -> impl Strategy<Value = Payload> {
        prop_oneof![
            any::<Vec<u8>>().prop_map(Payload::bytes),
            any::<(i64, String)>().prop_map(|value| {
                Payload::json(serde_json::to_string(&value).unwrap()).unwrap()
            }),
            Just(Payload::Bytes(Bytes::from_static(b"{}"))),
            Just(Payload::Erased),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// R013, R063: whatever an event holds, it survives the headers.
        #[test]
        fn an_event_survives_binary_mode(
            payload in payloads(),
            content_type in prop_oneof!["application/json", "text/plain", "a/b\\+json; x=1"],
            texts: [String; 5],
            headers in prop::collection::btree_map("[a-z0-9._-]{1,24}", any::<String>(), 0..6),
            key: Option<String>,
            version in 1u32..,
            marks: (bool, bool),
        ) {
            let [aggregate_type, aggregate_id, event_type, source, tenant] = texts;
            let mut event =
                Event::new(EventId::from_u128(7), &aggregate_type, &aggregate_id, &event_type);
            event.source = Arc::from(source);
            event.tenant = Some(tenant.into());
            event.event_version = version;
            event.key = key.filter(|key| *key != event.key()).map(Into::into);
            event.content_type = Text::from(content_type);
            event.payload = payload;
            event.headers = headers;
            let marks = Marks { late: marks.0, replay: marks.1 };
            // Surrounding blanks belong to the header line; they are encoded, so nothing is lost.
            prop_assert_eq!(read(&event, marks).unwrap(), (event, marks));
        }

        /// F21, F22: no name, value, or body brings the reader down.
        #[test]
        fn arbitrary_input_never_panics(
            attributes in prop::collection::vec((any::<String>(), any::<String>()), 0..6),
            known in prop::collection::vec(
                (prop::sample::select(&super::super::RESERVED[..]), any::<String>()), 0..8),
            content_type: Option<String>,
            body: Vec<u8>,
        ) {
            let mut all = attributes;
            all.extend(known.into_iter().map(|(name, value)| (name.to_owned(), value)));
            all.push(("specversion".to_owned(), "1.0".to_owned()));
            let texts = all.iter().map(|(name, value)| (&**name, &**value));
            let _ = parse(texts, content_type.as_deref(), Bytes::from(body.clone()));
            let _ = decode_value(&body);
        }

        #[test]
        fn encoded_values_cannot_end_a_header(value: String) {
            let header = encode_value(&value);
            prop_assert!(header.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'"'));
            prop_assert_eq!(decode_value(header.as_bytes()).unwrap(), value);
        }
    }
}
