//! The attributes of an event, written and read the same way whatever carries them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{HEADERS, LATE, REPLAY, invalid, is_attribute_name};
use crate::{Event, EventId, Headers, Marks, Result, Text, Timestamp};

/// The value of an attribute. Documents keep the type, headers take the text. What has to be made out of
/// something else is made where it is written: a document needs no copy of it.
pub(super) enum Value<'a> {
    Text(&'a str),
    Owned(String),
    Number(u32),
    Id(EventId),
    Time(Timestamp),
    /// Two texts with a slash between them.
    Pair(&'a str, &'a str),
}

impl<'a> Value<'a> {
    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            Value::Text(text) => Cow::Borrowed(text),
            Value::Owned(text) => Cow::Owned(text),
            Value::Number(number) => Cow::Owned(number.to_string()),
            Value::Id(id) => Cow::Owned(id.to_string()),
            Value::Time(time) => Cow::Owned(time.to_string()),
            Value::Pair(first, second) => Cow::Owned(format!("{first}/{second}")),
        }
    }
}

/// Gives every attribute but the content type to `put`, in a fixed order.
pub(super) fn visit<'a, E: From<serde_json::Error>>(
    event: &'a Event,
    marks: Marks,
    mut put: impl FnMut(&'a str, Value<'a>) -> Result<(), E>,
) -> Result<(), E> {
    use Value::{Id, Number, Owned, Pair, Text, Time};
    put("specversion", Text("1.0"))?;
    put("id", Id(event.id))?;
    put("source", Text(&event.source))?;
    put("type", Text(&event.event_type))?;
    put("subject", Text(&event.aggregate_id))?;
    put("time", Time(event.occurred_at))?;
    put("recordedtime", Time(event.created_at))?;
    put(
        "partitionkey",
        match &event.key {
            Some(key) => Text(key),
            None => Pair(&event.aggregate_type, &event.aggregate_id),
        },
    )?;
    put("aggregatetype", Text(&event.aggregate_type))?;
    put("aggregateid", Text(&event.aggregate_id))?;
    put("eventversion", Number(event.event_version))?;
    if let Some(tenant) = &event.tenant {
        put("tenant", Text(tenant))?;
    }
    if let Some(encoding) = &event.encoding {
        put("encoding", Text(encoding))?;
    }
    if marks.late {
        put(LATE, Text("true"))?;
    }
    if marks.replay {
        put(REPLAY, Text("true"))?;
    }
    if event.headers.is_empty() {
        return Ok(());
    }
    let mut others: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in &event.headers {
        if is_attribute_name(name) {
            put(name, Text(value))?;
        } else {
            others.insert(name, value);
        }
    }
    if !others.is_empty() {
        put(HEADERS, Owned(serde_json::to_string(&others)?))?;
    }
    Ok(())
}

/// Attributes as they were read, each taken once by its name; what is left are extensions.
pub(super) trait Attributes {
    /// Takes one as text.
    fn text(&mut self, name: &str) -> Result<Option<String>>;
    /// Takes one as a whole number.
    fn number(&mut self, name: &str) -> Result<Option<u32>>;
    /// All that were not taken.
    fn rest(self) -> impl Iterator<Item = (String, String)>;
}

/// Builds the event, without its payload, and its marks. What Postrider did not write is read too:
/// without `aggregatetype` the part of the type before its first dot is taken, without `aggregateid`
/// the subject, then the id. One that says nothing it could be ordered by, neither of these nor a
/// `partitionkey`, is ordered by the key of its message.
pub(super) fn assemble(
    mut attributes: impl Attributes,
    message_key: Option<&str>,
) -> Result<(Event, Marks)> {
    let version = need(&mut attributes, "specversion")?;
    if version != "1.0" {
        return Err(invalid(format!("specversion `{}`", version.escape_debug())));
    }
    let id: EventId = need(&mut attributes, "id")?.parse().map_err(|e| unreadable("id", &e))?;
    let event_type = need(&mut attributes, "type")?;
    let subject = attributes.text("subject")?;
    let aggregate_type = attributes.text("aggregatetype")?.unwrap_or_else(|| {
        event_type.split_once('.').map_or(&*event_type, |(first, _)| first).to_owned()
    });
    let about = attributes.text("aggregateid")?.or(subject);
    let message_key = message_key.filter(|key| about.is_none() && !key.is_empty());
    let aggregate_id = about.unwrap_or_else(|| id.to_string());
    let mut event = Event::new(id, &aggregate_type, &aggregate_id, &event_type);
    let default_key = event.key();
    let key = attributes.text("partitionkey")?.or_else(|| message_key.map(ToOwned::to_owned));
    event.key = key.filter(|key| *key != default_key).map(Into::into);
    event.source = Arc::from(need(&mut attributes, "source")?);
    event.event_version = attributes.number("eventversion")?.unwrap_or(1);
    event.tenant = attributes.text("tenant")?.map(Into::into);
    event.encoding = attributes.text("encoding")?.map(Into::into);
    let occurred = time(&mut attributes, "time")?;
    let recorded = time(&mut attributes, "recordedtime")?;
    event.occurred_at = occurred.or(recorded).unwrap_or_default();
    event.created_at = recorded.or(occurred).unwrap_or_default();
    if let Some(content_type) = attributes.text("datacontenttype")? {
        event.content_type = Text::from(content_type);
    }
    let mut is_true = |name| Ok(attributes.text(name)?.as_deref() == Some("true"));
    let marks = Marks { late: is_true(LATE)?, replay: is_true(REPLAY)? };
    let mut headers: Headers = match attributes.text(HEADERS)? {
        None => Headers::new(),
        Some(text) => serde_json::from_str(&text)
            .map_err(|e| invalid(format!("{HEADERS} is not an object of strings: {e}")))?,
    };
    headers.extend(attributes.rest());
    event.headers = headers;
    Ok((event, marks))
}

fn need(attributes: &mut impl Attributes, name: &str) -> Result<String> {
    attributes.text(name)?.ok_or_else(|| invalid(format!("attribute `{name}` is missing")))
}

fn time(attributes: &mut impl Attributes, name: &str) -> Result<Option<Timestamp>> {
    let text = attributes.text(name)?;
    text.map(|text| text.parse().map_err(|e| unreadable(name, &e))).transpose()
}

pub(super) fn unreadable(name: &str, problem: &dyn std::fmt::Display) -> crate::Error {
    invalid(format!("attribute `{name}`: {problem}"))
}
