//! Between an event and a message: CloudEvents' NATS binding 1.0.2, in structured and binary mode, or the payload as
//! it is with headers beside it.
//!
//! Invariant: what is written here is read back equal, and what cannot be sent is refused here, alone.

use std::borrow::Cow;
use std::sync::Arc;

use async_nats::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use postrider_core::cloudevents::{self, binary};
use postrider_core::plain::{self, Around};
use postrider_core::{
    ErrorKind, Event, Fault, Format, Marks, Outgoing, Payload, Result, TopicRule, schema_id,
};

/// The header by which a stream knows an event that it has already.
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The content type of a binary message, as the binding has it: an attribute like the others.
const CONTENT_TYPE: &str = "datacontenttype";
/// Headers that tracing looks for beside the event.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// A message, ready to be sent.
#[derive(Clone)]
pub(crate) struct Encoded {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Where documents are written. A message keeps its share until it is sent; one allocation serves many.
#[derive(Default)]
pub(crate) struct Documents {
    text: Vec<u8>,
    shared: BytesMut,
}

/// How much is allocated at once for documents.
const SHARED_BYTES: usize = 64 * 1024;

impl Documents {
    fn write(&mut self, outgoing: &Outgoing) -> postrider_core::Result<Bytes> {
        self.text.clear();
        cloudevents::append_json(&outgoing.event, outgoing.marks, &mut self.text)?;
        if self.shared.capacity() < self.text.len() {
            self.shared.reserve(self.text.len().max(SHARED_BYTES));
        }
        self.shared.extend_from_slice(&self.text);
        Ok(self.shared.split().freeze())
    }
}

/// The payload as it is, which nobody copies.
fn body_of(event: &Event) -> Bytes {
    match &event.payload {
        Payload::Json(bytes) | Payload::Bytes(bytes) => bytes.clone(),
        Payload::Erased => Bytes::new(),
    }
}

/// The message that the stream shall know as `id`.
pub(crate) fn encode(
    outgoing: &Outgoing,
    id: Option<String>,
    bytes_max: usize,
    documents: &mut Documents,
) -> Result<Encoded, Fault> {
    let subject = &outgoing.topic;
    if let Some(wrong) = TopicRule::Subject.unusable(subject) {
        let detail = format!("`{}` is no subject of NATS: {wrong}", subject.escape_debug());
        return Err(Fault::new(ErrorKind::Invalid, detail));
    }
    let event = &outgoing.event;
    let said = |error: postrider_core::Error| Fault::new(error.kind(), format!("{error:?}"));
    let mut headers = HeaderMap::new();
    if let Some(id) = id {
        headers.insert(MESSAGE_ID, id);
    }
    let body = match outgoing.format {
        Format::Structured => {
            headers.insert("content-type", cloudevents::MEDIA_TYPE);
            documents.write(outgoing).map_err(said)?
        }
        Format::Binary => {
            for (name, value) in binary::attributes(event, outgoing.marks).map_err(said)? {
                headers.insert(format!("{}{name}", binary::PREFIX), &*binary::encode_value(&value));
            }
            let content_type = binary::encode_value(&event.content_type).into_owned();
            headers.insert(format!("{}{CONTENT_TYPE}", binary::PREFIX), content_type);
            // Beside the attribute that holds them: who looks for them does not look there.
            for (name, value) in schema_id::of(event).filter(|(_, value)| is_plain(value)) {
                headers.insert(name, value);
            }
            body_of(event)
        }
        Format::Plain | Format::Debezium => {
            for header in plain::headers(outgoing, carries).map_err(said)? {
                let value = match !header.own && is_plain(&header.value) {
                    true => header.value,
                    false => Cow::Owned(binary::encode_value(&header.value).into_owned()),
                };
                headers.insert(&*header.name, &*value);
            }
            body_of(event)
        }
    };
    // Where the application's headers stand under their own names, these do already.
    for name in TRACE.iter().filter(|_| !outgoing.format.has_open_headers()) {
        if let Some(value) = event.headers.get(*name) {
            headers.insert(*name, &*binary::encode_value(value));
        }
    }
    let bytes = body.len() + headers_bytes(&headers);
    if bytes > bytes_max {
        let detail = format!(
            "the message has {bytes} bytes with its headers, the server takes {bytes_max} \
             (`max_payload`)"
        );
        return Err(Fault::new(ErrorKind::TooLarge, detail));
    }
    Ok(Encoded { headers, body })
}

/// Whether a header can stand in a message as it is: the server has names of its own.
fn carries(name: &str, value: &str) -> bool {
    !is_servers(name) && is_plain(value)
}

/// Whether a header is one by which the server is told what to do with a message.
pub(crate) fn is_servers(name: &str) -> bool {
    name.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("nats-"))
}

/// Whether a value comes out as it went in.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value
}

/// What headers take on the wire: a status line, and a line each.
fn headers_bytes(headers: &HeaderMap) -> usize {
    const FRAME: usize = "NATS/1.0\r\n\r\n".len();
    let line = |(name, values): (&async_nats::header::HeaderName, &Vec<HeaderValue>)| {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + value.as_str().len() + 4).sum::<usize>()
    };
    FRAME + headers.iter().map(line).sum::<usize>()
}

/// Reads what arrived.
pub(crate) fn decode(
    subject: &str,
    headers: Option<&HeaderMap>,
    body: Bytes,
) -> Result<(Arc<Event>, Marks), Fault> {
    let none = HeaderMap::new();
    let headers = headers.unwrap_or(&none);
    let content_type = || headers.get(plain::CONTENT_TYPE).map(HeaderValue::as_str);
    let read = if plain::is_ours(names(headers)) {
        read_plain(subject, headers, body)
    } else if is_binary(headers) {
        read_binary(headers, body)
    } else if !content_type().is_some_and(cloudevents::is_structured)
        && names(headers).any(|name| name == plain::ROUTER_ID)
    {
        read_plain(subject, headers, body)
    } else {
        cloudevents::parse(&body)
    };
    let (event, marks) =
        read.map_err(|error| Fault::new(ErrorKind::Invalid, format!("{error:?}")))?;
    Ok((Arc::new(event), marks))
}

fn names(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers.iter().map(|(name, _)| AsRef::<str>::as_ref(name))
}

/// A message whose body is the payload. The server's own headers are not the event's.
fn read_plain(subject: &str, headers: &HeaderMap, body: Bytes) -> Result<(Event, Marks)> {
    let mut texts = Vec::new();
    for (name, values) in headers.iter() {
        let name: &str = name.as_ref();
        let Some(value) = values.first() else { continue };
        let begins = |with: &str| {
            name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
        };
        match begins(plain::PREFIX) {
            true => texts.push((name, binary::decode_value(value.as_str().as_bytes())?)),
            false if begins("nats-") => {}
            false => texts.push((name, value.as_str().to_owned())),
        }
    }
    let pairs = texts.iter().map(|(name, value)| (*name, &**value));
    let around = Around { topic: subject, key: None, time: None, source: plain::ROUTER_SOURCE };
    plain::parse(pairs, body, &around)
}

fn is_binary(headers: &HeaderMap) -> bool {
    attributes(headers).any(|(name, _)| name == "specversion")
}

/// Attributes by their plain names. Names of headers have no case that could be relied on.
fn attributes(headers: &HeaderMap) -> impl Iterator<Item = (String, &str)> {
    headers.iter().filter_map(|(name, values)| {
        let name: &str = name.as_ref();
        let name = name.to_ascii_lowercase();
        let plain = name.strip_prefix(binary::PREFIX)?.to_owned();
        Some((plain, values.first()?.as_str()))
    })
}

fn read_binary(headers: &HeaderMap, body: Bytes) -> Result<(Event, Marks)> {
    let mut texts = Vec::new();
    let mut content_type = None;
    for (name, value) in attributes(headers) {
        let value = binary::decode_value(value.as_bytes())?;
        match &*name {
            CONTENT_TYPE => content_type = Some(value),
            _ => texts.push((name, value)),
        }
    }
    let pairs = texts.iter().map(|(name, value)| (&**name, &**value));
    let (mut event, marks) = binary::parse(pairs, content_type.as_deref(), body)?;
    // Where only the message says them, as those of somebody else do.
    for (name, values) in headers.iter() {
        if let Some(value) = values.first() {
            schema_id::take(&mut event.headers, name.as_ref(), value.as_str().as_bytes());
        }
    }
    Ok((event, marks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::identity;
    use postrider_core::{Destination, DestinationId, NewEvent, Preflight, Route};

    fn outgoing(topic: &str, format: Format) -> Outgoing {
        let new = NewEvent::new("order", "4 2", "order.placed")
            .source("/shop/ü")
            .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .header("x-note", "a \"b\" % €")
            .bytes(vec![0u8, 255, 10], "application/octet-stream");
        let marks = Marks::default();
        let event = Arc::new(new.event().clone());
        Outgoing { event, topic: topic.into(), format, layout: None, marks, attempt: 1 }
    }

    fn written(
        sent: &Outgoing,
        bytes_max: usize,
        documents: &mut Documents,
    ) -> Result<Encoded, Fault> {
        encode(sent, identity(sent), bytes_max, documents)
    }

    /// R062, R063: whatever an event holds, it survives the message, in every format.
    #[test]
    fn an_event_survives_every_format() {
        let formats = [Format::Structured, Format::Binary, Format::Plain, Format::Debezium];
        let marks = [(false, false), (true, false), (false, true)];
        let marked = |(late, replay)| formats.map(|format| (format, Marks { late, replay }));
        for (format, marks) in marks.into_iter().flat_map(marked) {
            let sent = Outgoing { marks, ..outgoing("orders.4", format) };
            let message = written(&sent, 1 << 20, &mut Documents::default()).unwrap();
            // What is sent again on purpose is no copy to the stream.
            let known_as = message.headers.get(MESSAGE_ID).map(|id| id.as_str().to_owned());
            let first = marks == Marks::default();
            assert_eq!(known_as, first.then(|| sent.event.id.to_string()));
            assert!(message.headers.get("traceparent").is_some());
            let (read, marks) = decode("orders", Some(&message.headers), message.body).unwrap();
            assert_eq!((read, marks), (sent.event, sent.marks));
        }
        let message =
            written(&outgoing("orders", Format::Binary), 1 << 20, &mut Documents::default())
                .unwrap();
        assert_eq!(&message.body[..], [0, 255, 10]);
        let header = |name: &str| message.headers.get(name).unwrap().as_str().to_owned();
        assert_eq!(header("ce-source"), "/shop/%C3%BC");
        assert_eq!(header("ce-datacontenttype"), "application/octet-stream");
    }

    /// What shares an allocation stays apart: also behind one that could not be written, and beside one that is
    /// larger than all that is shared.
    #[test]
    fn documents_of_a_batch_stay_apart() {
        let of = |payload: Payload| {
            let mut sent = outgoing("orders", Format::Structured);
            Arc::get_mut(&mut sent.event).unwrap().payload = payload;
            sent
        };
        let sound = [10, SHARED_BYTES, 1, 2 * SHARED_BYTES, 10]
            .map(|bytes| of(Payload::Bytes(vec![7; bytes].into())));
        let broken = of(Payload::Json(Bytes::from_static(b"{")));
        let mut documents = Documents::default();
        let mut bodies = Vec::new();
        for sent in &sound {
            assert!(written(&broken, 1 << 20, &mut documents).is_err());
            bodies.push(written(sent, 1 << 20, &mut documents).unwrap().body);
        }
        for (sent, body) in sound.iter().zip(bodies) {
            let alone = written(sent, 1 << 20, &mut Documents::default()).unwrap().body;
            assert!(body == alone, "{} bytes", alone.len());
        }
    }

    #[test]
    fn what_is_no_subject_is_refused() {
        for topic in ["", "a b", "a..b", ".a", "a.", "a.*", "a.>", "$JS.API", "a\r\nPUB b 0"] {
            let refused =
                written(&outgoing(topic, Format::Binary), 1 << 20, &mut Documents::default())
                    .err()
                    .unwrap();
            assert_eq!(refused.kind, ErrorKind::Invalid, "{topic}");
        }
        let long = "a".repeat(1_025);
        assert!(
            written(&outgoing(&long, Format::Binary), 1 << 20, &mut Documents::default()).is_err()
        );
    }

    #[test]
    fn what_the_server_would_not_take_is_refused() {
        let sent = outgoing("orders", Format::Binary);
        let message = written(&sent, 1 << 20, &mut Documents::default()).unwrap();
        let bytes = message.body.len() + headers_bytes(&message.headers);
        assert!(written(&sent, bytes, &mut Documents::default()).is_ok());
        assert_eq!(
            written(&sent, bytes - 1, &mut Documents::default()).err().unwrap().kind,
            ErrorKind::TooLarge
        );
    }

    /// The least limit that takes something.
    fn least(takes: impl Fn(usize) -> bool) -> usize {
        let (mut refused, mut taken) = (0, 1 << 24);
        while taken - refused > 1 {
            let middle = usize::midpoint(refused, taken);
            if takes(middle) { taken = middle } else { refused = middle }
        }
        taken
    }

    /// R123: the pre-flight weighs what is sent: never more, and less by no more than the frame of its headers, the
    /// id for the stream, and the copies of the trace.
    #[test]
    fn the_pre_flight_weighs_what_is_sent() {
        for format in [Format::Structured, Format::Binary, Format::Plain, Format::Debezium] {
            for note in ["plain".repeat(200), "ü€\"%".repeat(200), "💶".repeat(300)] {
                let mut sent = outgoing("orders", format);
                let mut event = Event::clone(&sent.event);
                event.headers.insert("x-note".to_owned(), note);
                (sent.event, sent.marks) = (Arc::new(event), Marks::default());
                let encoded = written(&sent, usize::MAX, &mut Documents::default()).unwrap();
                let real = least(|max| written(&sent, max, &mut Documents::default()).is_ok());
                let weighed = least(|max| {
                    let id = DestinationId::new("only").unwrap();
                    let route = Route::all("orders".parse().unwrap()).format(format);
                    let mut only = Destination::new(id, "queue", vec![route]);
                    only.topics = TopicRule::Subject;
                    only.limits.message_bytes_max = Some(max as u64);
                    Preflight::of(vec![only]).check(&sent.event).is_ok()
                });
                let frame = 12 + 4 * encoded.headers.len() + MESSAGE_ID.len() + 36 + 6 + 70;
                let margin = real.checked_sub(weighed).unwrap();
                assert!(margin <= frame, "{format}: {weighed} of {real}");
            }
        }
    }

    /// F22: what is no event is said to be none.
    #[test]
    fn what_is_no_event_has_a_reason() {
        for body in [&b""[..], b"{}", b"\xff", b"[]"] {
            let fault = decode("orders", None, Bytes::from_static(body)).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Invalid);
        }
        let mut headers = HeaderMap::new();
        headers.insert("ce-specversion", "1.0");
        headers.insert("ce-id", "%zz");
        assert!(decode("orders", Some(&headers), Bytes::new()).is_err());
    }
}
