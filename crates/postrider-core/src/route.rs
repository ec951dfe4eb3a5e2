//! Routes: which events a destination takes, to which topic, and what happens when that fails.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Event, Glob, RecordKey, RetryPolicy, Template};

/// The rule that sends an event to a destination.
///
/// Routes of a destination are tried in order; the first that matches decides. An event that no
/// route of any destination matches becomes a dead letter with the reason `no route`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Route {
    /// Which events.
    #[serde(default)]
    pub matches: Match,
    /// Take the event and deliver it nowhere. Drops are counted.
    #[serde(default)]
    pub drop: bool,
    /// The topic, subject, queue, or endpoint within the destination.
    pub topic: Template,
    /// How the event is written on the wire.
    #[serde(default)]
    pub format: Format,
    /// Of what a message's key is made, where a broker has keys. If absent, the broker's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RecordKey>,
    /// Further headers of each message, in the formats [`Format::Plain`] and [`Format::Debezium`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Template>,
    /// When a failure is tried again.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// What happens to a key whose event has become a dead letter.
    #[serde(default)]
    pub dead_key: DeadKeyPolicy,
}

impl Route {
    /// A route for every event, to the topic of the template, with the defaults.
    pub fn all(topic: Template) -> Route {
        Route {
            matches: Match::default(),
            drop: false,
            topic,
            format: Format::default(),
            key: None,
            headers: BTreeMap::new(),
            retry: RetryPolicy::default(),
            dead_key: DeadKeyPolicy::default(),
        }
    }

    /// The same route for only those events.
    #[must_use]
    pub fn only(mut self, matches: Match) -> Route {
        self.matches = matches;
        self
    }

    /// The same route with another retry policy.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Route {
        self.retry = retry;
        self
    }

    /// The same route with another dead-key policy.
    #[must_use]
    pub fn dead_key(mut self, policy: DeadKeyPolicy) -> Route {
        self.dead_key = policy;
        self
    }

    /// The same route with another format.
    #[must_use]
    pub fn format(mut self, format: Format) -> Route {
        self.format = format;
        self
    }

    /// The same route with messages that are keyed by a template.
    #[must_use]
    pub fn keyed_by(mut self, key: RecordKey) -> Route {
        self.key = Some(key);
        self
    }

    /// The same route with a further header of each message.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: Template) -> Route {
        self.headers.insert(name.into(), value);
        self
    }

    /// What the route says about messages besides their format, if it says something.
    pub fn layout(&self) -> Option<Arc<Layout>> {
        let layout = Layout { key: self.key.clone(), headers: self.headers.clone() };
        (layout != Layout::default()).then(|| Arc::new(layout))
    }

    /// The same route, but the events are dropped.
    #[must_use]
    pub fn dropping(mut self) -> Route {
        self.drop = true;
        self
    }
}

/// Which events a route takes: all the conditions that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Match {
    /// The event's type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<Glob>,
    /// The aggregate's type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<Glob>,
    /// The tenant; an event without one does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Glob>,
}

impl Match {
    /// Events whose type matches the pattern.
    pub fn event_type(pattern: &str) -> Match {
        Match { event_type: Some(Glob::new(pattern)), ..Match::default() }
    }

    /// Whether the event is one of them.
    pub fn matches(&self, event: &Event) -> bool {
        let holds = |glob: &Option<Glob>, text: Option<&str>| match glob {
            None => true,
            Some(glob) => text.is_some_and(|text| glob.matches(text)),
        };
        holds(&self.event_type, Some(&event.event_type))
            && holds(&self.aggregate_type, Some(&event.aggregate_type))
            && holds(&self.tenant, event.tenant.as_deref())
    }
}

/// How an event is written on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// CloudEvents in structured mode: one JSON document holds attributes and data.
    #[default]
    Structured,
    /// CloudEvents in binary mode: attributes are headers, the body is the payload.
    Binary,
    /// The payload as it is, and what is known of the event in headers: see [`plain`](crate::plain).
    Plain,
    /// As Debezium's outbox event router writes it: the payload as it is, and the id in the header `id`.
    Debezium,
}

impl Format {
    /// The word of configurations and definitions.
    pub const fn word(self) -> &'static str {
        match self {
            Format::Structured => "structured",
            Format::Binary => "binary",
            Format::Plain => "plain",
            Format::Debezium => "debezium",
        }
    }

    /// Whether a message has headers that a route may add to.
    pub const fn has_open_headers(self) -> bool {
        matches!(self, Format::Plain | Format::Debezium)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a route says about messages besides their format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Of what a message's key is made.
    pub key: Option<RecordKey>,
    /// Further headers, by name.
    pub headers: BTreeMap<String, Template>,
}

/// What happens to the successors of a dead letter of the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadKeyPolicy {
    /// They wait behind it, in order, until a person decides. Other keys flow.
    #[default]
    Park,
    /// They flow. If the dead letter is sent again later, it is marked as late.
    Skip,
    /// There is no dead letter: the event is tried for ever, and its key waits.
    Halt,
}
