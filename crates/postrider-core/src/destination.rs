//! Destinations: rows in the store, with a stable id and a version, not lines in one relay's file.

use serde::{Deserialize, Serialize};

use crate::{
    BrokerCapabilities, DestinationId, Error, ErrorKind, Event, EventLimits, Format, Result, Route,
    Timestamp, TopicRule,
};

/// The definition of a destination, shared by all relays of a store.
///
/// Addresses, secrets, and times are not part of it: they belong to each relay and may change
/// without a new version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Destination {
    /// The stable id.
    pub id: DestinationId,
    /// The kind of broker, like `local` or `kafka`.
    pub kind: String,
    /// Which events it takes, tried in order.
    pub routes: Vec<Route>,
    /// What it can carry.
    #[serde(default)]
    pub limits: EventLimits,
    /// Which names its topics may have.
    #[serde(default, skip_serializing_if = "TopicRule::is_any")]
    pub topics: TopicRule,
}

impl Destination {
    /// The name of the built-in destination that turns events without a route into dead letters.
    pub const UNROUTED: &'static str = "unrouted";

    /// A destination with its routes, the default limits, and topics of any name. Whoever wants a pre-flight to know what
    /// the broker takes says it in [`limits`](Destination::limits) and [`topics`](Destination::topics).
    pub fn new(id: DestinationId, kind: impl Into<String>, routes: Vec<Route>) -> Destination {
        let (limits, topics) = (EventLimits::default(), TopicRule::Any);
        Destination { id, kind: kind.into(), routes, limits, topics }
    }

    /// The built-in destination that takes what no other destination takes.
    pub fn unrouted() -> Destination {
        let id = DestinationId::new(Destination::UNROUTED).expect("the name is valid");
        Destination::new(id, Destination::UNROUTED, Vec::new())
    }

    /// Whether this is the built-in destination.
    pub fn is_unrouted(&self) -> bool {
        self.id.as_str() == Destination::UNROUTED
    }

    /// The route that takes an event, if one does.
    pub fn route(&self, event: &Event) -> Option<&Route> {
        self.routes.iter().find(|route| route.matches.matches(event))
    }

    /// Checks that a broker can write what the routes ask for.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming what it can write.
    pub fn check(&self, broker: &BrokerCapabilities) -> Result<()> {
        let refuse = |message: String| {
            Err(Error::new(ErrorKind::Config, "check routes")
                .message(message)
                .context("destination", &self.id))
        };
        for route in self.routes.iter().filter(|route| !route.drop) {
            if !broker.formats.contains(&route.format) {
                let known: Vec<&str> = broker.formats.iter().map(|format| format.word()).collect();
                return refuse(format!(
                    "a destination of the kind {} writes {}, and a route asks for {}",
                    self.kind,
                    known.join(" or "),
                    route.format
                ));
            }
            if route.key.is_some() && !broker.message_keys {
                return refuse(format!(
                    "messages of a destination of the kind {} have no key, and a route gives one",
                    self.kind
                ));
            }
            if !route.headers.is_empty() && !route.format.has_open_headers() {
                return refuse(format!(
                    "a route adds headers, and in the format {} there is no place for them: take {} \
                     or {}",
                    route.format,
                    Format::Plain,
                    Format::Debezium
                ));
            }
        }
        Ok(())
    }

    /// The definition as stored: JSON with fields in a fixed order, so that equal definitions have
    /// equal text.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if it cannot be written as JSON.
    pub fn to_definition(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| {
            Error::new(ErrorKind::Internal, "write definition")
                .context("destination", &self.id)
                .source(e)
        })
    }

    /// Reads what [`Destination::to_definition`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is not a definition this version understands.
    pub fn from_definition(text: &str) -> Result<Destination> {
        serde_json::from_str(text).map_err(|e| {
            Error::new(ErrorKind::Config, "read definition")
                .message("the stored definition of a destination cannot be read")
                .source(e)
        })
    }
}

/// A destination as it stands in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationRow {
    /// The definition.
    pub definition: Destination,
    /// Grows by one with each change of the definition.
    pub version: u64,
    /// Whether its events flow.
    pub state: DestinationState,
}

/// Whether a destination's events flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationState {
    /// They flow.
    Active,
    /// They wait in the outbox; the cursors stand, and pin what they have not passed.
    Paused,
}

/// Where a new destination begins to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With what is committed after it was added. The default of a destination added later.
    #[default]
    Now,
    /// With the oldest event still in the outbox. The default in a store that has no destinations.
    Beginning,
    /// With the first event created at or after a moment.
    At(Timestamp),
}
