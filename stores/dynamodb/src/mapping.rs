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
