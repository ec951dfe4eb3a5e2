//! Templates of topics and record keys: text with `{field}` of the event.

use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Event, Result};

/// A template like `shop.{aggregate_type}.{event_type}`.
///
/// Fields are `aggregate_type`, `aggregate_id`, `event_type`, `event_version`, `key`, `tenant`,
/// `source`, and `id`; `{{` and `}}` stand for braces. An unknown field is refused when the template
/// is read, with the nearest known name.
///
/// `{partition:8}` is a number from 0 to 7 that follows from the ordering key alone: the [key's
/// hash](crate::KeyHash), modulo 8. Consumers that take one partition each share the work, and each key
/// stays in order. There are 1 to [`Template::PARTITIONS_MAX`]. Another count moves keys to other partitions.
///
/// ```
/// use postrider_core::{Event, EventId, Template};
/// let event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
/// let topic: Template = "shop.{event_type}".parse()?;
/// assert_eq!(topic.render(&event), "shop.order.placed");
/// let error = "shop.{event_tipe}".parse::<Template>().unwrap_err();
/// assert!(error.to_string().contains("did you mean `event_type`"));
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

/// A field of an event that a template may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    AggregateType,
    AggregateId,
    EventType,
    EventVersion,
    Key,
    Tenant,
    Source,
    Id,
    /// One of so many.
    Partition(u16),
}

/// The field that has a count.
const PARTITION: &str = "partition";

const FIELDS: [(&str, Field); 8] = [
    ("aggregate_type", Field::AggregateType),
    ("aggregate_id", Field::AggregateId),
    ("event_type", Field::EventType),
    ("event_version", Field::EventVersion),
    ("key", Field::Key),
    ("tenant", Field::Tenant),
    ("source", Field::Source),
    ("id", Field::Id),
];

impl Template {
    /// The most partitions that a template may have: each has consumers of its own, which a server keeps.
    pub const PARTITIONS_MAX: u16 = 256;

    /// The text for an event. A missing tenant renders as nothing.
    pub fn render(&self, event: &Event) -> String {
        let mut text = String::new();
        self.render_into(event, &mut text);
        text
    }

    /// The text up to the first field, and whether there is one: where the topics of a route lie, whatever the
    /// events.
    pub fn prefix(&self) -> (String, bool) {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field(_) => return (text, true),
            }
        }
        (text, false)
    }

    /// How many partitions it has, if it has any.
    pub fn partitions(&self) -> Option<u16> {
        self.fields().find_map(|field| match field {
            Field::Partition(count) => Some(count),
            _ => None,
        })
    }

    /// As [`Template::prefix`], with the number of a partition in its place: it ends at the first other field.
    pub fn prefix_within(&self, partition: u16) -> (String, bool) {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                // Writing to a String cannot fail.
                Part::Field(Field::Partition(_)) => _ = write!(text, "{partition}"),
                Part::Field(_) => return (text, true),
            }
        }
        (text, false)
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The fields that it names, in their order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Field> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(field) => Some(*field),
            Part::Text(_) => None,
        })
    }

    /// Like [`Template::render`], into a buffer that is used again and again.
    pub fn render_into(&self, event: &Event, text: &mut String) {
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field(field) => push_field(*field, event, text),
            }
        }
    }
}

fn push_field(field: Field, event: &Event, text: &mut String) {
    match field {
        Field::AggregateType => text.push_str(&event.aggregate_type),
        Field::AggregateId => text.push_str(&event.aggregate_id),
        Field::EventType => text.push_str(&event.event_type),
        Field::Tenant => text.push_str(event.tenant.as_deref().unwrap_or_default()),
        Field::Source => text.push_str(&event.source),
        Field::Key => text.push_str(&event.key()),
        // Writing to a String cannot fail.
        Field::EventVersion => _ = write!(text, "{}", event.event_version),
        Field::Id => _ = write!(text, "{}", event.id),
        Field::Partition(count) => {
            _ = write!(text, "{}", event.key_hash().0 % u64::from(count));
        }
    }
}

impl FromStr for Template {
    type Err = Error;

    fn from_str(text: &str) -> Result<Template> {
        let refuse = |why: String| {
            Error::new(ErrorKind::Config, "parse template")
                .message(format!("`{}`: {why}", text.escape_debug()))
        };
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.peek() == Some(&c) => {
                    chars.next();
                    literal.push(c);
                }
                '{' => {
                    let name: String = chars.by_ref().take_while(|c| *c != '}').collect();
                    let field = field_named(&name).map_err(&refuse)?;
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Field(field));
                }
                '}' => {
                    return Err(refuse("a `}` without its `{`; write `}}` for a brace".into()));
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        if parts.is_empty() {
            return Err(refuse("the template is empty".into()));
        }
        if let Some((first, other)) = counts(&parts) {
            return Err(refuse(format!(
                "it counts partitions as {first} and as {other}: an event is in one of them, so write \
                 one count"
            )));
        }
        Ok(Template { text: text.to_owned(), parts })
    }
}

/// Two counts of partitions that are not the same, if there are.
fn counts(parts: &[Part]) -> Option<(u16, u16)> {
    let mut counts = parts.iter().filter_map(|part| match part {
        Part::Field(Field::Partition(count)) => Some(*count),
        _ => None,
    });
    let first = counts.next()?;
    counts.find(|other| *other != first).map(|other| (first, other))
}

/// The field, or why there is none.
fn field_named(name: &str) -> Result<Field, String> {
    if let Some(count) = partition_count(name) {
        return count.map(Field::Partition);
    }
    let known = FIELDS.iter().find(|(known, _)| *known == name);
    known.map(|(_, field)| *field).ok_or_else(|| unknown_field(name))
}

/// The count of `partition:8`, or why it is none; nothing, if this is about something else.
///
/// ```
/// use postrider_core::template::partition_count;
/// assert_eq!(partition_count("partition:8"), Some(Ok(8)));
/// assert_eq!(partition_count("tenant"), None);
/// assert!(partition_count("partition").unwrap().unwrap_err().contains("{partition:8}"));
/// ```
pub fn partition_count(name: &str) -> Option<Result<u16, String>> {
    let count = name.strip_prefix(PARTITION)?;
    let count = count.strip_prefix(':').and_then(|count| count.parse().ok());
    let fits = count.filter(|count| (1..=Template::PARTITIONS_MAX).contains(count));
    Some(fits.ok_or_else(|| {
        let most = Template::PARTITIONS_MAX;
        format!("partitions are counted, 1 to {most}: write {{partition:8}}")
    }))
}

fn unknown_field(name: &str) -> String {
    let names = FIELDS.map(|(name, _)| name);
    let nearest = nearest(name, &names);
    format!("unknown field `{}`; did you mean `{nearest}`?", name.escape_debug())
}

/// The known name with the fewest edits from what was written: for messages that suggest.
///
/// ```
/// assert_eq!(postrider_core::template::nearest("tennant", &["key", "tenant"]), "tenant");
/// assert_eq!(postrider_core::template::nearest("knid", &["id", "kind"]), "kind");
/// ```
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> &'a str {
    known.iter().min_by_key(|name| edits(written, name)).copied().unwrap_or_default()
}

/// Letters that are put in, left out, or exchanged; two neighbours in each other's place are one slip.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut last) = (Vec::new(), (0..=b.len()).collect::<Vec<usize>>());
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let exchanged = last[j] + usize::from(ca != cb);
            let least = exchanged.min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *ca == b[j - 1] && a[i - 1] == *cb;
            row.push(if swapped { least.min(before[j - 1] + 1) } else { least });
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Template {
    type Error = Error;
    fn try_from(text: String) -> Result<Template> {
        text.parse()
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventId;

    /// R064: events and commands are routed by their type, keyed by their aggregate.
    #[test]
    fn fields_are_filled_in_and_braces_escaped() {
        let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
        event.tenant = Some("acme".into());
        let render = |text: &str| text.parse::<Template>().unwrap().render(&event);
        assert_eq!(render("{tenant}.{event_type}.v{event_version}"), "acme.order.placed.v1");
        assert_eq!(render("{key}"), "order/42");
        assert_eq!(render("{{{aggregate_id}}}"), "{42}");
    }

    /// R070: the partition follows from the ordering key alone, and is the same on every machine.
    #[test]
    fn a_partition_follows_from_the_key() {
        let order = |id: &str, event_type: &str, key: Option<&str>| {
            let mut event = Event::new(EventId::mint(), "order", id, event_type);
            event.key = key.map(Into::into);
            event
        };
        let template: Template = "shop.{partition:8}.{event_type}".parse().unwrap();
        let placed = template.render(&order("42", "order.placed", None));
        // FNV-1a of `order/42`, computed elsewhere: it must never change.
        assert_eq!(placed, "shop.2.order.placed");
        let same = template.render(&order("7", "order.paid", Some("order/42")));
        assert_eq!(same, "shop.2.order.paid");
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..200 {
            seen.insert(template.render(&order(&n.to_string(), "x", None)));
        }
        assert_eq!(seen.len(), 8, "{seen:?}");
        assert_eq!(template.partitions(), Some(8));
        assert_eq!(template.prefix(), ("shop.".to_owned(), true));
        assert_eq!(template.prefix_within(3), ("shop.3.".to_owned(), true));
        let bare: Template = "orders.{partition:2}".parse().unwrap();
        assert_eq!(bare.prefix_within(1), ("orders.1".to_owned(), false));
        assert_eq!("shop.{event_type}".parse::<Template>().unwrap().partitions(), None);
    }

    /// Whoever looks for the subjects of a partition fills in one number: a second count would lead past what is written.
    #[test]
    fn a_topic_counts_its_partitions_once() {
        let refused = "shop.{partition:5}.{partition:7}".parse::<Template>().unwrap_err();
        assert!(refused.to_string().contains("as 5 and as 7"), "{refused}");
        let twice: Template = "shop.{partition:5}.{partition:5}".parse().unwrap();
        assert_eq!(twice.prefix_within(3), ("shop.3.3".to_owned(), false));
    }

    #[test]
    fn broken_templates_are_refused() {
        for counted in ["partition", "partition:", "partition:0", "partition:257", "partition:x"] {
            let error = format!("{{{counted}}}").parse::<Template>().unwrap_err();
            assert!(error.to_string().contains("{partition:8}"), "{error}");
        }
        for bad in ["", "a}", "{", "{}", "{nope}"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }
}
