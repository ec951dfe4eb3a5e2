//! Which record key an event has.
//!
//! Invariant: events with the same ordering key have the same record key, and so stand in one partition.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Event, Result};

/// A template of record keys, over the ordering key's own parts.
///
/// `{key}` is the ordering key. `{aggregate_type}` is what stands before its first slash, and `{aggregate_id}`
/// what stands behind it: for an event that was given no ordering key of its own, these are its aggregate's.
/// A key without a slash is all `{aggregate_id}`. `{{` and `}}` stand for braces.
///
/// ```
/// use postrider_core::RecordKey;
/// assert!("{aggregate_type}:{aggregate_id}".parse::<RecordKey>().is_ok());
/// // Two events of one key could come to two partitions.
/// let refused = "{event_type}".parse::<RecordKey>().unwrap_err();
/// assert!(refused.to_string().contains("aggregate_id"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RecordKey {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Type,
    Id,
    Key,
}

impl RecordKey {
    /// `{aggregate_id}`, the default.
    pub fn aggregate_id() -> RecordKey {
        RecordKey { text: "{aggregate_id}".to_owned(), parts: vec![Part::Id] }
    }

    /// No key at all: records go to any partition, and consumers see no order. A compacted topic refuses
    /// them.
    pub fn none() -> RecordKey {
        RecordKey { text: String::new(), parts: Vec::new() }
    }

    /// The key of an event's record.
    ///
    /// ```
    /// use postrider_core::{Event, EventId, RecordKey};
    /// let event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
    /// assert_eq!(RecordKey::aggregate_id().of(&event).as_deref(), Some("42"));
    /// ```
    pub fn of<'a>(&self, event: &'a Event) -> Option<Cow<'a, str>> {
        if self.parts.is_empty() {
            return None;
        }
        // What most events have needs no copy of the key.
        if self.parts == [Part::Id] && event.key.is_none() && !event.aggregate_type.contains('/') {
            return Some(Cow::Borrowed(&event.aggregate_id));
        }
        let key = event.key();
        let (aggregate_type, aggregate_id) = key.split_once('/').unwrap_or(("", &key));
        let mut text = String::new();
        for part in &self.parts {
            text.push_str(match part {
                Part::Text(literal) => literal,
                Part::Type => aggregate_type,
                Part::Id => aggregate_id,
                Part::Key => &key,
            });
        }
        Some(Cow::Owned(text))
    }
}

impl FromStr for RecordKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<RecordKey> {
        let refuse = |why: &str| {
            Error::new(ErrorKind::Config, "parse record key")
                .message(format!("`{}`: {why}", text.escape_debug()))
        };
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if (c == '{' || c == '}') && chars.peek() == Some(&c) {
                chars.next();
                literal.push(c);
            } else if c == '{' {
                let name: String = chars.by_ref().take_while(|c| *c != '}').collect();
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(match &*name {
                    "aggregate_type" => Part::Type,
                    "aggregate_id" => Part::Id,
                    "key" => Part::Key,
                    _ => {
                        return Err(refuse(
                            "it is made of `{key}`, `{aggregate_type}`, and `{aggregate_id}` alone: any \
                             other field may differ between two events of one ordering key, and part them; \
                             order by a key that holds it (`ordered_by`), and write `{key}`",
                        ));
                    }
                });
            } else if c == '}' {
                return Err(refuse("a `}` without its `{`; write `}}` for a brace"));
            } else {
                literal.push(c);
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        if parts.is_empty() {
            return Err(refuse("it is empty"));
        }
        Ok(RecordKey { text: text.to_owned(), parts })
    }
}

impl TryFrom<String> for RecordKey {
    type Error = Error;
    fn try_from(text: String) -> Result<RecordKey> {
        text.parse()
    }
}

impl From<RecordKey> for String {
    fn from(key: RecordKey) -> String {
        key.text
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventId;

    fn event(aggregate_type: &str, aggregate_id: &str, key: Option<&str>) -> Event {
        let mut event = Event::new(EventId::from_u128(1), aggregate_type, aggregate_id, "changed");
        event.key = key.map(Into::into);
        event
    }

    /// R070: the record key is the aggregate's id, and whoever orders by another key is keyed by that.
    #[test]
    fn the_key_follows_from_the_ordering_key_alone() {
        fn of<'a>(template: &str, event: &'a Event) -> Cow<'a, str> {
            template.parse::<RecordKey>().unwrap().of(event).unwrap()
        }
        let order = event("order", "42", None);
        assert_eq!(of("{aggregate_id}", &order), "42");
        assert_eq!(of("{aggregate_type}:{aggregate_id}", &order), "order:42");
        assert_eq!(of("{key}", &order), "order/42");
        assert_eq!(of("{{{aggregate_id}}}", &order), "{42}");
        // An invoice that is ordered with its order goes where the order's events go.
        let invoice = event("invoice", "9", Some("order/42"));
        for template in ["{aggregate_id}", "{aggregate_type}:{aggregate_id}", "{key}"] {
            assert_eq!(of(template, &invoice), of(template, &order));
        }
        assert_eq!(of("{aggregate_id}", &event("invoice", "9", Some("acme"))), "acme");
        let odd = event("a/b", "1", None);
        let same = event("x", "y", Some("a/b/1"));
        assert_eq!(of("{aggregate_id}", &odd), of("{aggregate_id}", &same));
        assert_eq!(RecordKey::none().of(&order), None);
        assert_eq!(RecordKey::aggregate_id(), "{aggregate_id}".parse().unwrap());
    }

    #[test]
    fn what_could_part_a_key_is_refused() {
        for bad in ["", "{", "a}", "{}", "{tenant}", "{event_type}", "{id}", "{key}{source}"] {
            assert!(bad.parse::<RecordKey>().is_err(), "{bad}");
        }
    }
}
