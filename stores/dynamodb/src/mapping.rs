//! Mappings: events of business items by the names of attributes, where nothing has to be worked out.

use postrider_core::{Error, ErrorKind, NewEvent, Payload, Result};

use crate::document;
use crate::version::Version;
use aws_sdk_dynamodb::types::AttributeValue;

/// The media type of JSON.
const JSON: &str = "application/json";
/// The media type of bytes of which nothing is known.
const BYTES: &str = "application/octet-stream";

/// Which attributes of a business item an event is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    aggregate_type: String,
    id: String,
    event_type: EventType,
    payload: Option<String>,
}

/// Where the type of an event comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EventType {
    Always(String),
    Attribute(String),
}

impl Mapping {
    /// Events of one type: about which kind of thing, the attribute that says which one of them it is (text or a
    /// number), and the type. The payload is the whole item as JSON, without what the stamp put there.
    pub fn new(
        aggregate_type: impl Into<String>,
        id_attribute: impl Into<String>,
        event_type: impl Into<String>,
    ) -> Mapping {
        Mapping {
            aggregate_type: aggregate_type.into(),
            id: id_attribute.into(),
            event_type: EventType::Always(event_type.into()),
            payload: None,
        }
    }

    /// With the type that a text attribute says.
    #[must_use]
    pub fn event_type_from(mut self, attribute: impl Into<String>) -> Mapping {
        self.event_type = EventType::Attribute(attribute.into());
        self
    }

    /// With one attribute as the payload: text that is JSON as it is, bytes as they are, and any other value as JSON.
    #[must_use]
    pub fn payload_from(mut self, attribute: impl Into<String>) -> Mapping {
        self.payload = Some(attribute.into());
        self
    }

    pub(crate) fn event(&self, version: &Version<'_>) -> Result<NewEvent> {
        let id = match version.item().get(&self.id) {
            Some(AttributeValue::S(id) | AttributeValue::N(id)) => id,
            _ => return Err(absent(&self.id, "text or number")),
        };
        let event_type = match &self.event_type {
            EventType::Always(event_type) => event_type,
            EventType::Attribute(name) => version.text(name).ok_or_else(|| absent(name, "text"))?,
        };
        let event = version.event(&self.aggregate_type, id, event_type);
        let Some(name) = &self.payload else {
            return Ok(event.payload(version.document()?, JSON));
        };
        let value = version.item().get(name).ok_or_else(|| absent(name, "value"))?;
        Ok(match value {
            AttributeValue::S(json) => event.payload(Payload::json(json.clone())?, JSON),
            AttributeValue::B(bytes) => event.bytes(bytes.as_ref().to_vec(), BYTES),
            other => event.payload(Payload::json(document::value(other)?)?, JSON),
        })
    }
}

fn absent(name: &str, kind: &str) -> Error {
    Error::new(ErrorKind::Invalid, "derive")
        .message(format!("the attribute `{}` has no {kind}", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Item, b, n, s};
    use crate::record::{AT, EVENT_ID, Place, VERSION};

    /// What a mapping says of an order.
    fn of(mapping: &Mapping, more: &[(&str, AttributeValue)]) -> Result<NewEvent> {
        let mut item = Item::from([
            ("number".to_owned(), n(42)),
            ("status".to_owned(), s("order.paid")),
            (AT.to_owned(), n(7)),
            (EVENT_ID.to_owned(), s(postrider_core::EventId::mint().to_string())),
            (VERSION.to_owned(), n(3)),
        ]);
        item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let place = Place::new("order/42", "ORDER");
        mapping.event(&Version::of(&item, &place).unwrap())
    }

    /// R027: an event is made of attributes by their names: id, type, and what it says.
    #[test]
    fn attributes_become_an_event() {
        let plain = Mapping::new("order", "number", "order.changed");
        let event = of(&plain, &[]).unwrap();
        let (event, key) = (event.event(), event.key());
        assert_eq!((&*key, &*event.event_type), ("order/42", "order.changed"));
        assert_eq!(event.payload.as_bytes(), br#"{"number":42,"status":"order.paid"}"#);
        assert_eq!(event.occurred_at.as_micros(), 7_000);
        let typed = plain.clone().event_type_from("status").payload_from("body");
        for (value, said, kind) in [
            (s(r#"{"a": 1}"#), &br#"{"a": 1}"#[..], JSON),
            (b([0, 1]), &[0, 1][..], BYTES),
            (AttributeValue::L(vec![n(1)]), &b"[1]"[..], JSON),
        ] {
            let event = of(&typed, &[("body", value)]).unwrap();
            let event = event.event();
            assert_eq!(&*event.event_type, "order.paid");
            assert_eq!((event.payload.as_bytes(), &*event.content_type), (said, kind));
        }
    }

    #[test]
    fn what_is_absent_is_named() {
        let plain = Mapping::new("order", "no", "order.changed");
        let typed = Mapping::new("order", "number", "").event_type_from("kind");
        let bodied = Mapping::new("order", "number", "order.changed").payload_from("body");
        for (mapping, name) in [(plain, "no"), (typed, "kind"), (bodied.clone(), "body")] {
            let error = of(&mapping, &[]).unwrap_err();
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        }
        assert!(of(&bodied, &[("body", s("no JSON"))]).is_err());
    }
}
