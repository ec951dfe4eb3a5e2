//! What lies in a queue: an event as SQS carries it, or one that SNS or EventBridge wrapped on its way.
//!
//! Invariant: an event is read, never made up: what has no event inside is said to be none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::{ErrorKind, Event, Fault, Marks, cloudevents, plain};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::message;

/// Envelopes around an event: EventBridge to SNS to SQS has two.
const ENVELOPES_MAX: usize = 3;

/// A message without its envelopes.
pub(crate) struct Unwrapped {
    /// The event, or why there is none.
    pub(crate) event: Result<(Arc<Event>, Marks), Fault>,
    /// The topic of SNS that it came by, if its envelope says so.
    pub(crate) topic: Option<Arc<str>>,
}

/// Reads a message of a queue, whoever put it there.
pub(crate) fn unwrap(
    queue: &str,
    mut body: String,
    mut attributes: BTreeMap<String, String>,
) -> Unwrapped {
    let mut topic: Option<Arc<str>> = None;
    for _ in 0..=ENVELOPES_MAX {
        let structured = attributes.get(plain::CONTENT_TYPE);
        let is_ours = plain::is_ours(attributes.keys().map(String::as_str));
        if is_ours || structured.is_some_and(|it| cloudevents::is_structured(it)) {
            break;
        }
        match inside(&body) {
            Some(Inside::Notification { message, said, from }) => {
                (body, attributes, topic) = (message, said, Some(from.into()));
            }
            Some(Inside::Detail(detail)) => (body, attributes) = (detail, BTreeMap::new()),
            None => break,
        }
    }
    let around = topic.as_deref().unwrap_or(queue);
    let read = message::read(around, &attributes, Bytes::from(body));
    Unwrapped { event: read.map(|(event, marks)| (Arc::new(event), marks)), topic }
}

/// What an envelope holds.
enum Inside {
    Notification { message: String, said: BTreeMap<String, String>, from: String },
    Detail(String),
}

fn inside(body: &str) -> Option<Inside> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(body).ok()?;
    let text = |name: &str| serde_json::from_str::<String>(members.get(name)?.get()).ok();
    if members.contains_key("specversion") {
        return None;
    }
    if text("Type").as_deref() == Some("Notification") {
        let said = members
            .get("MessageAttributes")
            .map_or(Value::Null, |said| serde_json::from_str(said.get()).unwrap_or(Value::Null));
        let said =
            said.as_object().into_iter().flatten().filter_map(|(name, value)| {
                Some((name.clone(), value["Value"].as_str()?.to_owned()))
            });
        let (message, from) = (text("Message")?, text("TopicArn")?);
        return Some(Inside::Notification { message, said: said.collect(), from });
    }
    let is_bus = members.contains_key("detail-type") && members.contains_key("source");
    is_bus.then(|| members.get("detail").map(|detail| Inside::Detail(detail.get().to_owned())))?
}

/// What says that a message cannot be carried on.
pub(crate) fn one_line(reason: &str) -> String {
    const REASON_CHARS_MAX: usize = 1_000;
    let plain = |c: char| if c.is_control() || !message::is_legal(c) { ' ' } else { c };
    reason.chars().take(REASON_CHARS_MAX).map(plain).collect()
}

/// A fault that stands for a message without a body.
pub(crate) fn empty() -> Fault {
    Fault::new(ErrorKind::Invalid, "the message has no body")
}

#[cfg(test)]
mod tests {
    use postrider_core::{Format, NewEvent, Outgoing};
    use serde_json::json;

    use super::*;

    fn sent(format: Format) -> Outgoing {
        let new = NewEvent::new("order", "42", "order.placed").source("/shop").header("x", "y");
        let new = new.json(&json!({"n": 1})).unwrap();
        let mut sent = Outgoing::new(Arc::new(new.event().clone()), "orders");
        sent.format = format;
        sent
    }

    fn notification(body: &str, attributes: &BTreeMap<String, String>) -> String {
        let attribute = |(name, value): (&String, &String)| {
            (name.clone(), json!({"Type": "String", "Value": value}))
        };
        let attributes: serde_json::Map<_, _> = attributes.iter().map(attribute).collect();
        json!({"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:r:1:orders",
               "Message": body, "MessageAttributes": attributes})
        .to_string()
    }

    fn from_bus(detail: &str) -> String {
        let detail: Value = serde_json::from_str(detail).unwrap();
        json!({"version": "0", "id": "i", "detail-type": "order.placed", "source": "/shop",
               "account": "1", "time": "2026-01-02T03:04:05Z", "region": "r", "resources": [],
               "detail": detail})
        .to_string()
    }

    /// R062: an event is the same by whichever way it came.
    #[test]
    fn an_event_is_found_in_its_envelopes() {
        for format in [Format::Structured, Format::Plain] {
            let sent = sent(format);
            let message = message::encode(&sent, 1 << 20).unwrap();
            let wrapped = notification(&message.body, &message.attributes);
            let mut ways = vec![
                (message.body.clone(), message.attributes.clone(), None),
                (wrapped, BTreeMap::new(), Some("arn:aws:sns:r:1:orders")),
            ];
            if format == Format::Structured {
                // Who sends by hand says no content type.
                ways.push((message.body.clone(), BTreeMap::new(), None));
                ways.push((from_bus(&message.body), BTreeMap::new(), None));
                let both = notification(&from_bus(&message.body), &BTreeMap::new());
                ways.push((both, BTreeMap::new(), Some("arn:aws:sns:r:1:orders")));
            }
            for (body, attributes, topic) in ways {
                let found = unwrap("orders", body, attributes);
                assert_eq!(found.topic.as_deref(), topic);
                assert_eq!(found.event.unwrap().0, sent.event);
            }
        }
    }

    /// F22, R086: what is no event is said to be none, however it is wrapped.
    #[test]
    fn what_is_no_event_is_said_to_be_none() {
        let mut deep = "{}".to_owned();
        for _ in 0..10 {
            deep = notification(&deep, &BTreeMap::new());
        }
        let bodies = ["", "x", "{}", "[]", "\"a\"", "{\"Type\":\"Notification\"}", &deep];
        for body in bodies.map(str::to_owned).into_iter().chain([from_bus("{\"id\":\"7\"}")]) {
            let found = unwrap("orders", body.clone(), BTreeMap::new());
            assert_eq!(found.event.unwrap_err().kind, ErrorKind::Invalid, "{body}");
        }
    }

    #[test]
    fn a_reason_is_one_line_of_what_can_be_written() {
        assert_eq!(one_line("a\nb\u{ffff}c"), "a b c");
        assert_eq!(one_line(&"x".repeat(2_000)).len(), 1_000);
    }
}
