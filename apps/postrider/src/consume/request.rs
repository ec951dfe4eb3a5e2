//! What the endpoint is sent: the event as a CloudEvent, and what it needs to act once.
//!
//! Invariant: the idempotency key of an event and a handler is the same at every attempt, by every
//! sidecar, after every crash.

use std::sync::{Arc, PoisonError, RwLock};

use crate::otel;
use bytes::Bytes;
use clap::ValueEnum;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use postrider_config::CallFormat;
use postrider_core::cloudevents::{self, binary};
use postrider_core::{Delivery, Error, ErrorKind, Event, HandlerName, InboxKey, Result};

/// The step that the endpoint is: the last part of the idempotency key.
const STEP: &str = "call";

/// Headers of the event that are passed on as headers of the request.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON document with the attributes and the data
    Structured,
    /// The payload as it is, the attributes in headers
    Binary,
}

impl From<CallFormat> for Format {
    fn from(configured: CallFormat) -> Format {
        match configured {
            CallFormat::Structured => Format::Structured,
            CallFormat::Binary => Format::Binary,
        }
    }
}

/// One request, but for its address.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// How requests are written.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) handler: HandlerName,
    pub(crate) format: Format,
    pub(crate) extra: Extra,
}

/// The operator's own headers, secrets among them. Clones share them: a reload exchanges all of them at once.
#[derive(Clone, Debug)]
pub(crate) struct Extra(Arc<RwLock<Arc<HeaderMap>>>);

impl Extra {
    pub(crate) fn new(headers: HeaderMap) -> Extra {
        Extra(Arc::new(RwLock::new(Arc::new(headers))))
    }

    /// Takes over what the other says.
    pub(crate) fn follow(&self, other: &Extra) {
        let headers = other.present();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    fn present(&self) -> Arc<HeaderMap> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Writer {
    /// Writes the request for one attempt.
    ///
    /// # Errors
    /// `Invalid` if the event has no source, or cannot be written as a CloudEvent.
    pub(crate) fn write(&self, event: &Event, delivery: &Delivery) -> Result<Call> {
        let marks = delivery.marks;
        let (mut headers, body) = match self.format {
            Format::Structured => {
                let document = cloudevents::to_json(event, marks)?;
                let mut headers = HeaderMap::new();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(cloudevents::MEDIA_TYPE));
                (headers, Bytes::from(document))
            }
            Format::Binary => (attributes(event, delivery)?, payload(event)),
        };
        let key = InboxKey::of(event, &self.handler)?.step_key(STEP);
        put(&mut headers, "idempotency-key", &key)?;
        put(&mut headers, "postrider-attempt", &delivery.count.to_string())?;
        put(&mut headers, "postrider-handler", self.handler.as_str())?;
        put(&mut headers, "postrider-key", &binary::encode_value(&event.key()))?;
        for (name, marked) in [("postrider-late", marks.late), ("postrider-replay", marks.replay)] {
            if marked {
                put(&mut headers, name, "true")?;
            }
        }
        // The call's own span comes before the event's, where spans are kept.
        let present = otel::current_headers();
        for name in TRACE {
            // What somebody else wrote may be no header at all; the event is worth more.
            if let Some(value) = present.get(name).or_else(|| event.headers.get(name)) {
                let _ = put(&mut headers, name, value);
            }
        }
        for (name, value) in &*self.extra.present() {
            headers.insert(name, value.clone());
        }
        Ok(Call { headers, body })
    }
}

fn attributes(event: &Event, delivery: &Delivery) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    put(&mut headers, CONTENT_TYPE.as_str(), &event.content_type)?;
    for (name, value) in binary::attributes(event, delivery.marks)? {
        let name = format!("{}{name}", binary::PREFIX);
        put(&mut headers, &name, &binary::encode_value(&value))?;
    }
    Ok(headers)
}

fn payload(event: &Event) -> Bytes {
    Bytes::copy_from_slice(event.payload.as_bytes())
}

fn put(headers: &mut HeaderMap, name: &str, value: &str) -> Result<()> {
    let wrong = || {
        Error::new(ErrorKind::Invalid, "write request")
            .message(format!("header `{}` cannot be written", name.escape_debug()))
    };
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
    headers.insert(name, HeaderValue::from_str(value).map_err(|_| wrong())?);
    Ok(())
}

/// Names that the operator's own headers must not take: they are the request's own.
fn is_own(name: &HeaderName) -> bool {
    const OWN: [&str; 8] = [
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    let text = name.as_str();
    OWN.contains(&text) || text.starts_with("postrider-") || text.starts_with(binary::PREFIX)
}

/// Reads the operator's own headers, `NAME=env:VARIABLE`: their values never stand on a command line,
/// where every process can read them. They take the place of those of the same name.
///
/// # Errors
/// What is wrong with one, without its value.
pub(crate) fn extra_headers(
    headers: &mut HeaderMap,
    texts: &[String],
    variable: impl Fn(&str) -> Option<String>,
) -> std::result::Result<(), String> {
    for text in texts {
        let (name, source) = text
            .split_once('=')
            .ok_or("a header is written NAME=env:VARIABLE, like authorization=env:TOKEN")?;
        let source = source.strip_prefix("env:").ok_or_else(|| {
            let name = name.escape_debug();
            format!("the value of header `{name}` comes from the environment: {name}=env:VARIABLE")
        })?;
        let value = variable(source).ok_or_else(|| {
            format!("header `{}`: the variable {source} is not set", name.escape_debug())
        })?;
        add_header(headers, name.trim(), &value, source)?;
    }
    Ok(())
}

/// Adds a header of the operator's, whose value is a secret; `source` is where it comes from.
///
/// # Errors
/// What is wrong with it, without its value.
pub(crate) fn add_header(
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
    source: &str,
) -> std::result::Result<(), String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("`{}` is no name of a header", name.escape_debug()))?;
    if is_own(&name) {
        return Err(format!("header `{name}` is the sidecar's own"));
    }
    let mut value = HeaderValue::from_str(value.trim())
        .map_err(|_| format!("header `{name}`: the value of {source} is no header's value"))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// The payload as it came, also where it is encoded: the handler has the key, we do not.
pub(crate) struct AsItIs(pub(crate) Arc<Event>);

impl postrider_core::PayloadCodec for AsItIs {
    fn name(&self) -> &str {
        self.0.encoding.as_deref().unwrap_or("")
    }

    fn encode(&self, payload: &postrider_core::Payload, _: &str) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(payload.as_bytes()))
    }

    fn decode(&self, _: &[u8], _: &str) -> Result<postrider_core::Payload> {
        Ok(self.0.payload.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::subscription::Receipt;
    use postrider_core::{EventId, Marks};

    fn event() -> Event {
        let mut event = Event::new(EventId::from_u128(7), "order", "é 42", "order.placed");
        event.source = Arc::from("/shop");
        event.payload = postrider_core::Payload::Json(Bytes::from_static(b"{\"cents\":1}"));
        event.headers.insert("traceparent".to_owned(), "00-ab-cd-01".to_owned());
        event.headers.insert("tracestate".to_owned(), "not\na header".to_owned());
        event
    }

    fn delivery(event: &Event, count: u32) -> Delivery {
        let receipt = Receipt { message: 1, token: 1 };
        let mut delivery = Delivery::new(Ok(Arc::new(event.clone())), Arc::from("t"), receipt);
        delivery.count = count;
        delivery
    }

    fn writer(format: Format) -> Writer {
        let variable = |name: &str| (name == "TOKEN").then(|| "hunter2\n".to_owned());
        let mut extra = HeaderMap::new();
        extra_headers(&mut extra, &["authorization=env:TOKEN".to_owned()], variable).unwrap();
        Writer { handler: HandlerName::new("billing").unwrap(), format, extra: Extra::new(extra) }
    }

    /// R089: the key depends on the event and the handler, and on no attempt.
    #[test]
    fn the_idempotency_key_is_the_same_at_every_attempt() {
        let (event, writer) = (event(), writer(Format::Structured));
        let first = writer.write(&event, &delivery(&event, 1)).unwrap().headers;
        let tenth = writer.write(&event, &delivery(&event, 10)).unwrap().headers;
        let key = "00000000-0000-0000-0000-000000000007:billing:call:10a7e7121b975f59";
        for (headers, attempt) in [(first, "1"), (tenth, "10")] {
            assert_eq!(headers["idempotency-key"], key);
            assert_eq!(headers["postrider-attempt"], attempt);
        }
    }

    #[test]
    fn a_structured_request_holds_the_event_and_says_what_is_needed() {
        let event = event();
        let mut delivery = delivery(&event, 1);
        delivery.marks = Marks { late: true, replay: false };
        let call = writer(Format::Structured).write(&event, &delivery).unwrap();
        let (read, marks) = cloudevents::parse(&call.body).unwrap();
        assert!(read == event && marks.late);
        for (name, value) in [
            ("content-type", "application/cloudevents+json"),
            ("postrider-handler", "billing"),
            ("postrider-key", "order/%C3%A9%2042"),
            ("postrider-late", "true"),
            ("traceparent", "00-ab-cd-01"),
            ("authorization", "hunter2"),
        ] {
            assert_eq!(call.headers[name], value, "{name}");
        }
        for absent in ["postrider-replay", "tracestate"] {
            assert!(!call.headers.contains_key(absent), "{absent}");
        }
        assert!(!format!("{call:?}").contains("hunter2"), "{call:?}");
    }

    #[test]
    fn a_binary_request_is_the_payload_and_reads_back_equal() {
        let event = event();
        let call = writer(Format::Binary).write(&event, &delivery(&event, 1)).unwrap();
        assert_eq!(&*call.body, b"{\"cents\":1}");
        let attributes: Vec<(String, String)> = call
            .headers
            .iter()
            .filter_map(|(name, value)| {
                let name = name.as_str().strip_prefix(binary::PREFIX)?;
                Some((name.to_owned(), binary::decode_value(value.as_bytes()).unwrap()))
            })
            .collect();
        let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
        let media = call.headers["content-type"].to_str().unwrap();
        assert_eq!(binary::parse(pairs, Some(media), call.body.clone()).unwrap().0, event);
    }

    #[test]
    fn wrong_headers_are_refused_without_their_values() {
        let variable = |_: &str| Some("hunter2\u{1}".to_owned());
        for (text, expected) in [
            ("authorization", "NAME=env:VARIABLE"),
            ("authorization=hunter2", "comes from the environment"),
            ("Idempotency-Key=env:X", "the sidecar's own"),
            ("ce-id=env:X", "the sidecar's own"),
            ("postrider-attempt=env:X", "the sidecar's own"),
            ("no name=env:X", "no name of a header"),
            ("x=env:X", "no header's value"),
        ] {
            let said =
                extra_headers(&mut HeaderMap::new(), &[text.to_owned()], variable).unwrap_err();
            assert!(said.contains(expected) && !said.contains("hunter2"), "{text}: {said}");
        }
        let said = extra_headers(&mut HeaderMap::new(), &["x=env:NOT_SET".to_owned()], |_| None)
            .unwrap_err();
        assert!(said.contains("NOT_SET is not set"));
    }
}
