//! Between an event and a message of SQS or SNS: CloudEvents in structured mode, or the payload as it is with
//! attributes beside it.
//!
//! There is no binding of CloudEvents to SQS, and a message has ten attributes: an event in binary mode has more.
//! In the format `plain` the attributes that say what is the same without them are left out, and where the
//! application's headers do not fit, they go into `postrider-headers`.
//!
//! Invariant: what is written here is read back equal, and what cannot be sent is refused here, alone.

use std::collections::BTreeMap;

use bytes::Bytes;
use postrider_core::cloudevents;
use postrider_core::plain::{self, Around, Header};
use postrider_core::{ErrorKind, Event, Fault, Format, Marks, Outgoing, Payload, Result};

/// Attributes of a message.
pub(crate) const ATTRIBUTES_MAX: usize = 10;
/// Characters of an attribute's name.
const NAME_MAX: usize = 256;
/// Headers that tracing looks for beside the event.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];
/// The type of every attribute that is written here. It counts as bytes of the message.
pub(crate) const TEXT: &str = "String";
const JSON: &str = "application/json";

/// A message, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) body: String,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Message {
    /// What it weighs, as the services count.
    pub(crate) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let bytes = attributes.map(|(name, value)| name.len() + TEXT.len() + value.len());
        self.body.len() + bytes.sum::<usize>()
    }
}

pub(crate) fn encode(outgoing: &Outgoing, bytes_max: usize) -> Result<Message, Fault> {
    let message = match outgoing.format {
        Format::Structured => structured(outgoing)?,
        Format::Plain => as_it_is(outgoing)?,
        other => {
            let detail = format!(
                "there is no format {other} for messages of AWS: write structured, or plain"
            );
            return Err(invalid(detail));
        }
    };
    if message.body.is_empty() {
        return Err(invalid("a message has a body: an empty payload needs the format structured"));
    }
    let texts = message.attributes.values().chain([&message.body]);
    if let Some(found) = texts.filter_map(|text| text.chars().find(|c| !is_legal(*c))).next() {
        let detail = format!(
            "it holds the character {}, which no message of SQS can carry: encode the payload",
            found.escape_unicode()
        );
        return Err(invalid(detail));
    }
    let bytes = message.bytes();
    if bytes > bytes_max {
        let detail =
            format!("the message has {bytes} bytes with its attributes, the limit is {bytes_max}");
        return Err(Fault::new(ErrorKind::TooLarge, detail));
    }
    Ok(message)
}

fn structured(outgoing: &Outgoing) -> Result<Message, Fault> {
    let event = &outgoing.event;
    let body = cloudevents::to_json(event, outgoing.marks).map_err(|error| said(&error))?;
    let body = text(body)?;
    let content_type = (plain::CONTENT_TYPE.to_owned(), cloudevents::MEDIA_TYPE.to_owned());
    let traced = |name: &&str| event.headers.get(*name).filter(|value| carries(name, value));
    let traces = TRACE.iter().filter_map(|name| Some(((*name).to_owned(), traced(name)?.clone())));
    Ok(Message { body, attributes: [content_type].into_iter().chain(traces).collect() })
}

fn as_it_is(outgoing: &Outgoing) -> Result<Message, Fault> {
    let event = &outgoing.event;
    let body = text(event.payload.as_bytes().to_vec())?;
    let open = plain::headers(outgoing, carries).map_err(|error| said(&error))?;
    let mut attributes = kept(event, open);
    if attributes.len() > ATTRIBUTES_MAX {
        let packed = |name: &str, _: &str| name == plain::CONTENT_TYPE;
        let packed = plain::headers(outgoing, packed).map_err(|error| said(&error))?;
        attributes = kept(event, packed);
    }
    if attributes.len() > ATTRIBUTES_MAX {
        let detail = format!(
            "it needs {} attributes, and a message has {ATTRIBUTES_MAX}: write the format structured",
            attributes.len()
        );
        return Err(invalid(detail));
    }
    if let Some((name, _)) = attributes.iter().find(|(name, value)| !carries(name, value)) {
        return Err(invalid(format!(
            "the attribute {name} cannot be written as it is: write the format structured"
        )));
    }
    Ok(Message { body, attributes })
}

/// The headers without those that a reader knows all the same.
fn kept(event: &Event, headers: Vec<Header<'_>>) -> BTreeMap<String, String> {
    let is_json = &*event.content_type == JSON && matches!(event.payload, Payload::Json(_));
    let known = |header: &Header<'_>| match &*header.name {
        "postrider-key" => event.key.is_none(),
        "postrider-version" => event.event_version == 1,
        "postrider-recorded" => event.created_at == event.occurred_at,
        plain::CONTENT_TYPE => is_json,
        _ => false,
    };
    let headers = headers.into_iter().filter(|header| !known(header));
    headers.map(|header| (header.name.into_owned(), header.value.into_owned())).collect()
}

/// Whether a header can stand in an attribute as it is.
fn carries(name: &str, value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins =
        |with: &str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    let reserved = begins("aws.") || begins("amazon.");
    (1..=NAME_MAX).contains(&name.len())
        && name.chars().all(plain)
        && !dots
        && !reserved
        && !value.is_empty()
        && value.chars().all(is_legal)
}

/// What XML 1.0 has: the service takes nothing else.
pub(crate) fn is_legal(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn text(body: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(body).map_err(|_| {
        invalid("the payload is no text, and a message is: write the format structured, which encodes it")
    })
}

fn invalid(detail: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Invalid, detail)
}

fn said(error: &postrider_core::Error) -> Fault {
    Fault::new(error.kind(), format!("{error:?}"))
}

/// Reads an event from a body and its attributes, as they were written above.
pub(crate) fn read(
    topic: &str,
    attributes: &BTreeMap<String, String>,
    body: Bytes,
) -> Result<(Event, Marks), Fault> {
    let pairs = || attributes.iter().map(|(name, value)| (&**name, &**value));
    let read = match plain::is_ours(pairs().map(|(name, _)| name)) {
        true => {
            let around = Around { topic, key: None, time: None, source: plain::ROUTER_SOURCE };
            plain::parse(pairs(), body, &around)
        }
        false => cloudevents::parse(&body),
    };
    read.map_err(|error| Fault::new(ErrorKind::Invalid, format!("{error:?}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::NewEvent;

    use super::*;

    fn outgoing(new: NewEvent, format: Format) -> Outgoing {
        let mut event = new.source("/shop").event().clone();
        event.created_at = event.occurred_at;
        let mut sent = Outgoing::new(Arc::new(event), "orders");
        sent.format = format;
        sent
    }

    fn order() -> NewEvent {
        NewEvent::new("order", "42", "order.placed").json(&serde_json::json!({"n": 1})).unwrap()
    }

    /// R062, R063: what is written is read back equal, in both formats, whatever is said besides.
    #[test]
    fn what_is_written_is_read_back() {
        let headers = |count: usize| {
            (0..count).fold(order(), |new, n| new.header(format!("x-{n}"), format!("{n} €")))
        };
        let mut all = vec![
            order(),
            order().ordered_by("customer/7").version(2),
            order().tenant("acme").header("x-empty", "").header("aws.x", "y"),
            headers(3),
            headers(12),
            NewEvent::new("order", "42", "order.placed").bytes("raw, text", "text/plain"),
        ];
        for new in all.drain(..) {
            for format in [Format::Structured, Format::Plain] {
                let mut sent = outgoing(new.clone(), format);
                sent.marks.late = format == Format::Structured;
                let message = encode(&sent, 1 << 20).unwrap();
                assert!(message.attributes.len() <= ATTRIBUTES_MAX, "{message:?}");
                let body = message.body.clone().into();
                let (read, marks) = read("orders", &message.attributes, body).unwrap();
                assert_eq!((&read, marks), (&*sent.event, sent.marks), "{message:?}");
            }
        }
    }

    /// F20, F22: what no message can carry is refused before it is sent, with the reason.
    #[test]
    fn what_no_message_can_carry_is_refused() {
        let bytes = |bytes: Vec<u8>| NewEvent::new("o", "1", "t").bytes(bytes, "application/x");
        let illegal = || {
            let payload = Payload::json("\"\u{ffff}\"").unwrap();
            NewEvent::new("o", "1", "t").payload(payload, JSON)
        };
        let full =
            order().tenant("acme").ordered_by("k").version(2).header("x", "y").header("z", "");
        let refused = |new: NewEvent, format, words: &str| {
            let mut sent = outgoing(new, format);
            Arc::make_mut(&mut sent.event).encoding = Some("aead".into());
            let fault = encode(&sent, 1 << 20).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Invalid);
            assert!(fault.detail.contains(words), "{fault}");
        };
        refused(bytes(vec![0xff]), Format::Plain, "format structured");
        refused(bytes(vec![1]), Format::Plain, "\\u{1}");
        refused(bytes(Vec::new()), Format::Plain, "empty payload");
        refused(illegal(), Format::Plain, "\\u{ffff}");
        refused(illegal(), Format::Structured, "\\u{ffff}");
        refused(full, Format::Plain, "attributes");
        refused(order(), Format::Binary, "no format binary");
        for new in [bytes(vec![0xff]), bytes(vec![1]), bytes(Vec::new())] {
            assert!(encode(&outgoing(new, Format::Structured), 1 << 20).is_ok());
        }
    }

    /// F18: what weighs too much is refused by itself.
    #[test]
    fn what_weighs_too_much_is_refused() {
        for format in [Format::Structured, Format::Plain] {
            let sent = outgoing(order(), format);
            let bytes = encode(&sent, 1 << 20).unwrap().bytes();
            assert!(encode(&sent, bytes).is_ok());
            assert_eq!(encode(&sent, bytes - 1).unwrap_err().kind, ErrorKind::TooLarge);
        }
    }
}
