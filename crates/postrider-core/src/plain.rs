//! The formats `plain` and `debezium`: the body is the payload, byte for byte, and headers beside it say the
//! rest.
//!
//! What Postrider knows of an event stands in headers that begin with [`PREFIX`], which no application may use.
//! In the format `debezium` the event's id stands in the header `id`, where Debezium's outbox event router puts
//! it. The application's headers keep their names, those that name a [schema](crate::schema_id) in the spelling of their
//! readers; what a transport cannot carry under its own name goes into one header, `postrider-headers`, as a JSON object.
//!
//! Invariant: whatever is written here is read back equal, and an id is read, never made up.

mod connect;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::cloudevents::{DOCUMENT_BYTES_MAX, binary};
use crate::{
    Error, ErrorKind, Event, EventId, Format, Headers, Marks, Outgoing, Result, Timestamp,
    schema_id,
};

/// What Postrider's own headers begin with.
pub const PREFIX: &str = "postrider-";
/// The header with the event's id, in the format `plain`.
pub const ID: &str = "postrider-id";
/// The header with the event's id, in the format `debezium`.
pub const ROUTER_ID: &str = "id";
/// The header that says what the body is.
pub const CONTENT_TYPE: &str = "content-type";
/// The source of what Debezium's router wrote, which says none, unless its reader is told another one: with its id it is how an
/// inbox knows an event. Where Postrider takes over the router's table, its rows have the same source, so that an event that
/// came by both is one.
pub const ROUTER_SOURCE: &str = "debezium";

/// The header with who says it: with it, a message is ours.
const SOURCE: &str = "postrider-source";
/// Headers that Debezium's users give the event's type, most often first.
const TYPES: [&str; 4] = ["eventType", "event_type", "type", "eventtype"];
/// The name that the router puts before the aggregate's type, by default.
const ROUTER_TOPIC: &str = "outbox.event.";

/// One header of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Letters, digits, `.`, `_`, and `-`.
    pub name: Cow<'a, str>,
    /// Any text.
    pub value: Cow<'a, str>,
    /// One of Postrider's own: a transport that cannot carry any text may encode its value, and decode it
    /// before [`parse`].
    pub own: bool,
}

/// The headers of a message. `carries` says whether the transport can carry a header as it is; one of the
/// application's that it cannot goes into `postrider-headers`.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the headers cannot be written.
///
/// ```
/// use std::sync::Arc;
/// use postrider_core::plain::{self, Around};
/// use postrider_core::{Event, EventId, Format, Outgoing};
/// let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
/// event.headers.insert("traceparent".into(), "00-ab-cd-01".into());
/// let mut sent = Outgoing::new(Arc::new(event), "orders");
/// sent.format = Format::Plain;
/// let headers = plain::headers(&sent, |_, _| true)?;
/// assert!(headers.iter().any(|header| header.name == "traceparent"));
/// let read = plain::parse(
///     headers.iter().map(|header| (&*header.name, &*header.value)),
///     bytes::Bytes::copy_from_slice(sent.event.payload.as_bytes()),
///     &Around { topic: "orders", key: None, time: None, source: plain::ROUTER_SOURCE },
/// )?;
/// assert_eq!(read, ((*sent.event).clone(), sent.marks));
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn headers(
    outgoing: &Outgoing,
    carries: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Header<'_>>> {
    let event = &*outgoing.event;
    let is_router = outgoing.format == Format::Debezium;
    let mut headers = own(event, outgoing.marks, is_router);
    let open = |name, value| Header { name, value, own: false };
    if carries(CONTENT_TYPE, &event.content_type) {
        headers.push(open(Cow::Borrowed(CONTENT_TYPE), Cow::Borrowed(&*event.content_type)));
    } else {
        headers.push(mine("postrider-content-type", &*event.content_type));
    }
    let said = outgoing.layout.as_deref().map(|layout| &layout.headers);
    let said = || said.into_iter().flatten();
    for (name, template) in said() {
        headers.push(open(Cow::Borrowed(&**name), Cow::Owned(template.render(event))));
    }
    let mut packed: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in &event.headers {
        let taken =
            is_reserved(name, is_router) || said().any(|(said, _)| said.eq_ignore_ascii_case(name));
        if !taken && carries(name, value) {
            let name = schema_id::spelling(name).unwrap_or(name);
            headers.push(open(Cow::Borrowed(name), Cow::Borrowed(&**value)));
        } else {
            packed.insert(name, value);
        }
    }
    if !packed.is_empty() {
        let text = serde_json::to_string(&packed).map_err(|e| {
            Error::new(ErrorKind::Invalid, "write headers").context("event", event.id).source(e)
        })?;
        headers.push(mine("postrider-headers", text));
    }
    Ok(headers)
}

fn mine<'a>(name: &'static str, value: impl Into<Cow<'a, str>>) -> Header<'a> {
    Header { name: Cow::Borrowed(name), value: value.into(), own: true }
}

/// What Postrider knows of the event.
fn own(event: &Event, marks: Marks, is_router: bool) -> Vec<Header<'_>> {
    let mut headers = Vec::with_capacity(16 + event.headers.len());
    headers.push(mine(if is_router { ROUTER_ID } else { ID }, event.id.to_string()));
    headers.push(mine(SOURCE, &*event.source));
    headers.push(mine("postrider-type", &*event.event_type));
    headers.push(mine("postrider-version", event.event_version.to_string()));
    headers.push(mine("postrider-aggregate-type", &*event.aggregate_type));
    headers.push(mine("postrider-aggregate-id", &*event.aggregate_id));
    headers.push(mine("postrider-key", event.key()));
    headers.push(mine("postrider-time", event.occurred_at.to_string()));
    headers.push(mine("postrider-recorded", event.created_at.to_string()));
    if let Some(tenant) = &event.tenant {
        headers.push(mine("postrider-tenant", &**tenant));
    }
    if let Some(encoding) = &event.encoding {
        headers.push(mine("postrider-encoding", &**encoding));
    }
    if let Some(kind) = binary::payload_kind(event) {
        headers.push(mine("postrider-payload", kind));
    }
    if marks.late {
        headers.push(mine("postrider-late", "true"));
    }
    if marks.replay {
        headers.push(mine("postrider-replay", "true"));
    }
    headers
}

/// Names that the message itself uses, or that would make it look like another kind of message.
fn is_reserved(name: &str, is_router: bool) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins =
        |with: &str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    name.is_empty()
        || !name.chars().all(plain)
        || [PREFIX, "ce_", "ce-"].iter().any(|with| begins(with))
        || name.eq_ignore_ascii_case(CONTENT_TYPE)
        || (is_router && name.eq_ignore_ascii_case(ROUTER_ID))
}

/// Whether names of headers are those of a message in one of these formats that Postrider wrote.
pub fn is_ours<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| name.eq_ignore_ascii_case(ID) || name.eq_ignore_ascii_case(SOURCE))
}

/// What is known of a message besides its headers and its body.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The topic or subject that it came by.
    pub topic: &'a str,
    /// Its key, where a transport has one.
    pub key: Option<&'a str>,
    /// Its own time, where a transport has one.
    pub time: Option<Timestamp>,
    /// Who said it, where it does not say so itself: usually [`ROUTER_SOURCE`].
    pub source: &'a str,
}

/// Reads an event, and how it is marked, from the names and decoded values of a message's headers, and its body.
///
/// What Debezium's router wrote is read too. It says little: the id is the header `id`, the aggregate's id the
/// message's key, the aggregate's type what the topic has behind `outbox.event.` (or its last part), the event's
/// type a header `eventType`, `event_type`, or `type` if there is one, else the aggregate's type, and the source
/// what is said [around](Around::source) it. What a converter of Kafka Connect wrapped, its schema beside it, is unwrapped.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if headers and body are over [`DOCUMENT_BYTES_MAX`]; [`ErrorKind::Invalid`] if there
/// is no id, or something cannot be read.
pub fn parse<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: Bytes,
    around: &Around<'_>,
) -> Result<(Event, Marks)> {
    let mut texts = Texts::read(headers, body.len())?;
    // What we wrote is as it was; the router may have been told to write some of the same headers.
    let is_routers = !texts.has("recorded");
    let source = texts.own("source").map(|source| match is_routers {
        true => connect::text(&source),
        false => source,
    });
    // A column of the router's table that is null is a header without a value.
    let source = source.filter(|source| !source.is_empty() || !is_routers);
    let body = if is_routers { connect::unwrapped(body) } else { body };
    let id = match texts.own("id") {
        Some(id) => id,
        None => connect::text(&texts.take(ROUTER_ID).ok_or_else(without_id)?),
    };
    let id: EventId = id.parse().map_err(|e| wrong(format!("the header with the id: {e}")))?;
    let aggregate_type = texts.own("aggregate-type").unwrap_or_else(|| type_of(around.topic));
    let aggregate_id = texts.own("aggregate-id");
    let key = around.key.map(|key| match is_routers {
        true => connect::unwrapped_key(key),
        false => key.to_owned(),
    });
    let key = key.filter(|key| !key.is_empty());
    let aggregate_id = aggregate_id.or(key).unwrap_or_else(|| id.to_string());
    let event_type = texts.own("type").or_else(|| texts.event_type());
    let event_type = event_type.unwrap_or_else(|| aggregate_type.clone());
    let mut event = Event::new(id, &aggregate_type, &aggregate_id, &event_type);
    let default_key = event.key();
    event.key = texts.own("key").filter(|key| *key != default_key).map(Into::into);
    event.source = Arc::from(source.as_deref().unwrap_or(around.source));
    event.event_version = texts.parsed("version")?.unwrap_or(1);
    event.tenant = texts.own("tenant").map(Into::into);
    event.encoding = texts.own("encoding").map(Into::into);
    let occurred: Option<Timestamp> = texts.parsed("time")?.or(around.time);
    let recorded: Option<Timestamp> = texts.parsed("recorded")?;
    event.occurred_at = occurred.or(recorded).unwrap_or_default();
    event.created_at = recorded.or(occurred).unwrap_or_default();
    let mut is_true = |name| texts.own(name).as_deref() == Some("true");
    let marks = Marks { late: is_true("late"), replay: is_true("replay") };
    let kind = texts.own("payload");
    let content_type = texts.own("content-type").or_else(|| texts.take(CONTENT_TYPE));
    event.content_type = content_type.unwrap_or_else(|| guess(&body)).into();
    event.payload = binary::payload(kind.as_deref(), &event.content_type, body)?;
    let mut headers: Headers = match texts.own("headers") {
        None => Headers::new(),
        Some(text) => serde_json::from_str(&text)
            .map_err(|e| wrong(format!("postrider-headers is not an object of strings: {e}")))?,
    };
    headers.extend(texts.rest());
    event.headers = headers;
    Ok((event, marks))
}

/// The headers of a message; ours, and those that name a schema, in lower case.
struct Texts(BTreeMap<String, String>);

impl Texts {
    fn read<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        body_bytes: usize,
    ) -> Result<Texts> {
        let mut texts = BTreeMap::new();
        let mut size = body_bytes;
        for (name, value) in headers {
            size = size.saturating_add(name.len() + value.len());
            if size > DOCUMENT_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLarge, "read message")
                    .message(format!("{size} bytes or more, at most {DOCUMENT_BYTES_MAX}")));
            }
            let lower = name.to_ascii_lowercase();
            let known = lower.starts_with(PREFIX)
                || lower == CONTENT_TYPE
                || schema_id::spelling(&lower).is_some();
            texts.insert(if known { lower } else { name.to_owned() }, value.to_owned());
        }
        Ok(Texts(texts))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(&format!("{PREFIX}{name}"))
    }

    fn own(&mut self, name: &str) -> Option<String> {
        self.0.remove(&format!("{PREFIX}{name}"))
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>> {
        let text = self.own(name);
        let unreadable = |e: T::Err| wrong(format!("header `{PREFIX}{name}`: {e}"));
        text.map(|text| text.parse().map_err(unreadable)).transpose()
    }

    /// It stays what it is besides: a header.
    fn event_type(&self) -> Option<String> {
        let said = connect::text(TYPES.iter().find_map(|name| self.0.get(*name))?);
        (!said.is_empty()).then_some(said)
    }

    fn rest(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter().filter(|(name, _)| !name.starts_with(PREFIX))
    }
}

/// The aggregate's type that a topic stands for.
fn type_of(topic: &str) -> String {
    let routed = topic.strip_prefix(ROUTER_TOPIC).filter(|rest| !rest.is_empty());
    let last = || topic.rsplit('.').find(|part| !part.is_empty());
    routed.or_else(last).unwrap_or("event").to_owned()
}

/// What a body is that nobody names.
fn guess(body: &[u8]) -> String {
    let is_json = serde_json::from_slice::<&serde_json::value::RawValue>(body).is_ok();
    if is_json { "application/json" } else { "application/octet-stream" }.to_owned()
}

fn without_id() -> Error {
    wrong("it has no header `postrider-id` or `id`: who sends an event says which it is")
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "read message").message(message)
}

#[cfg(test)]
mod tests;
