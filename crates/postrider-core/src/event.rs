//! Events: what an application enqueues, and the envelope that travels unchanged after that.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::{EventId, KeyHash, Payload, Result, Text, Timestamp};

/// Headers of an event, sorted by name. Names are `[a-z0-9._-]`; values have no control characters.
pub type Headers = BTreeMap<String, String>;

/// An event that is about to be staged in the caller's transaction.
///
/// It does nothing by itself: pass it to `enqueue` together with the transaction, or it never
/// happened, which is why the compiler warns when it is dropped.
///
/// ```
/// use postrider_core::NewEvent;
/// # fn main() -> Result<(), postrider_core::Error> {
/// let event = NewEvent::new("order", "42", "order.placed")
///     .json(&serde_json::json!({"total": 1250}))?
///     .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
/// assert_eq!(event.key(), "order/42");
/// # Ok(()) }
/// ```
#[must_use = "an event that is not enqueued in a transaction never happened"]
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub(crate) event: Event,
    pub(crate) deliver_after: Option<Timestamp>,
}

/// A recorded event: the envelope and the payload, as every relay, broker, and handler sees it.
///
/// `source` and `id` together identify it for ever. `occurred_at` is when the fact happened, as the
/// application says; `created_at` is when the row was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Minted once, at enqueue.
    pub id: EventId,
    /// Who says it: a URI reference, by default the store's. Empty in a [`NewEvent`] that leaves it
    /// to the store.
    pub source: Arc<str>,
    /// The kind of thing it happened to, like `order`.
    pub aggregate_type: Text,
    /// Which one of them.
    pub aggregate_id: Text,
    /// The ordering key; `None` means `aggregate_type/aggregate_id`.
    pub key: Option<Text>,
    /// What happened, like `order.placed`.
    pub event_type: Text,
    /// The version of the payload's schema, from 1.
    pub event_version: u32,
    /// What it says.
    pub payload: Payload,
    /// The payload's media type.
    pub content_type: Text,
    /// The name of the [`PayloadCodec`](crate::PayloadCodec) that encoded the payload, if any.
    pub encoding: Option<Text>,
    /// Trace context and whatever else travels along.
    pub headers: Headers,
    /// The tenant, where there are tenants.
    pub tenant: Option<Text>,
    /// When the fact happened.
    pub occurred_at: Timestamp,
    /// When the row was written.
    pub created_at: Timestamp,
}

const JSON: &str = "application/json";

impl Event {
    /// An event with the given identity and defaults for the rest, as stores build them.
    pub fn new(id: EventId, aggregate_type: &str, aggregate_id: &str, event_type: &str) -> Event {
        Event {
            id,
            source: Arc::from(""),
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            key: None,
            event_type: event_type.into(),
            event_version: 1,
            payload: Payload::Json(bytes::Bytes::from_static(b"null")),
            content_type: JSON.into(),
            encoding: None,
            headers: Headers::new(),
            tenant: None,
            occurred_at: Timestamp::default(),
            created_at: Timestamp::default(),
        }
    }

    /// The ordering key as text: what was given, or `aggregate_type/aggregate_id`.
    pub fn key(&self) -> String {
        match &self.key {
            Some(key) => key.to_string(),
            None => format!("{}/{}", self.aggregate_type, self.aggregate_id),
        }
    }

    /// The ordering key's hash, without building its text.
    pub fn key_hash(&self) -> KeyHash {
        match &self.key {
            Some(key) => KeyHash::of(key),
            None => KeyHash::of_aggregate(&self.aggregate_type, &self.aggregate_id),
        }
    }

    /// What the event takes in memory and on the wire, roughly: payload, headers, and envelope.
    pub fn size_bytes(&self) -> u64 {
        const ENVELOPE: usize = 256;
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let names = self.aggregate_type.len() + self.aggregate_id.len() + self.event_type.len();
        (ENVELOPE + names + headers + self.payload.len()) as u64
    }
}

impl NewEvent {
    /// An event about one aggregate, with a fresh UUIDv7, version 1, the payload `null`, and now as
    /// the time it occurred.
    pub fn new(
        aggregate_type: impl AsRef<str>,
        aggregate_id: impl AsRef<str>,
        event_type: impl AsRef<str>,
    ) -> NewEvent {
        let mut event = Event::new(
            EventId::mint(),
            aggregate_type.as_ref(),
            aggregate_id.as_ref(),
            event_type.as_ref(),
        );
        event.occurred_at = Timestamp::now();
        event.created_at = event.occurred_at;
        NewEvent { event, deliver_after: None }
    }

    /// Sets the payload to a value serialised as JSON: a snapshot of this moment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value cannot be written as JSON.
    pub fn json(self, value: &impl Serialize) -> Result<NewEvent> {
        let text = serde_json::to_string(value).map_err(|e| {
            crate::Error::new(crate::ErrorKind::Invalid, "payload")
                .message("the value cannot be written as JSON")
                .source(e)
        })?;
        Ok(self.payload(Payload::Json(bytes::Bytes::from(text)), JSON))
    }

    /// Sets the payload to opaque bytes of a media type.
    pub fn bytes(self, bytes: impl Into<bytes::Bytes>, content_type: &str) -> NewEvent {
        self.payload(Payload::Bytes(bytes.into()), content_type)
    }

    /// Sets the payload and its media type.
    pub fn payload(mut self, payload: Payload, content_type: &str) -> NewEvent {
        self.event.payload = payload;
        self.event.content_type = content_type.into();
        self
    }

    /// Sets the identity, for a caller that derives ids from its own facts. It must be unique.
    pub fn id(mut self, id: EventId) -> NewEvent {
        self.event.id = id;
        self
    }

    /// Sets who says it; the store's own source is the default.
    pub fn source(mut self, source: &str) -> NewEvent {
        self.event.source = Arc::from(source);
        self
    }

    /// Sets the ordering key, where it is not the aggregate.
    pub fn ordered_by(mut self, key: &str) -> NewEvent {
        self.event.key = Some(key.into());
        self
    }

    /// Sets the version of the payload's schema.
    pub fn version(mut self, version: u32) -> NewEvent {
        self.event.event_version = version;
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> NewEvent {
        self.event.headers.insert(name.into(), value.into());
        self
    }

    /// Takes a header away, if it is there.
    pub fn without_header(mut self, name: &str) -> NewEvent {
        self.event.headers.remove(name);
        self
    }

    /// Sets the tenant.
    pub fn tenant(mut self, tenant: &str) -> NewEvent {
        self.event.tenant = Some(tenant.into());
        self
    }

    /// Sets when the fact happened, where that is not now.
    pub fn occurred_at(mut self, time: Timestamp) -> NewEvent {
        self.event.occurred_at = time;
        self
    }

    /// Delivers not before a moment of the database's clock. The event enters the outbox, and its
    /// key's order, when it is due.
    pub fn deliver_after(mut self, time: Timestamp) -> NewEvent {
        self.deliver_after = Some(time);
        self
    }

    /// Encodes the payload, so that nothing between here and the handler can read it.
    ///
    /// # Errors
    /// Whatever the codec says.
    pub fn encode(mut self, codec: &dyn crate::PayloadCodec) -> Result<NewEvent> {
        let encoded = codec.encode(&self.event.payload, &self.event.content_type)?;
        self.event.payload = Payload::bytes(encoded);
        self.event.encoding = Some(codec.name().into());
        Ok(self)
    }

    /// The ordering key as text.
    pub fn key(&self) -> String {
        self.event.key()
    }

    /// The event as it will be recorded.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// When it is due, if it is scheduled.
    pub fn due(&self) -> Option<Timestamp> {
        self.deliver_after
    }
}
