//! Payload codecs: encrypt at enqueue, decrypt in the handler, and nothing between needs the key.

use bytes::Bytes;

use crate::{Error, ErrorKind, Event, Payload, Result};

/// Turns a payload into bytes that only a handler with the same codec can read.
///
/// The codec's name travels in the event's `encoding`; relay, brokers, and dead letters carry the
/// bytes as they are. The content type stays that of the decoded payload.
///
/// ```
/// use bytes::Bytes;
/// use postrider_core::{codec, Event, EventId, NewEvent, Payload, PayloadCodec, Result};
///
/// /// Not encryption: it only shows where encryption goes.
/// struct Flip;
/// impl PayloadCodec for Flip {
///     fn name(&self) -> &str { "flip" }
///     fn encode(&self, payload: &Payload, _: &str) -> Result<Bytes> {
///         Ok(payload.as_bytes().iter().map(|b| !b).collect())
///     }
///     fn decode(&self, bytes: &[u8], _: &str) -> Result<Payload> {
///         Ok(Payload::bytes(bytes.iter().map(|b| !b).collect::<Vec<u8>>()))
///     }
/// }
///
/// let event = NewEvent::new("card", "7", "card.charged").bytes("4111", "text/plain").encode(&Flip)?;
/// assert_eq!(event.event().encoding.as_deref(), Some("flip"));
/// assert_ne!(event.event().payload.as_bytes(), b"4111");
/// assert_eq!(codec::decode(event.event(), &[&Flip])?.as_bytes(), b"4111");
/// assert!(codec::decode(event.event(), &[]).is_err());
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub trait PayloadCodec: Send + Sync {
    /// The name that stands in the event's `encoding`, with the key's version if keys rotate.
    fn name(&self) -> &str;
    /// Encodes a payload.
    ///
    /// # Errors
    /// If it cannot; the event is then not enqueued.
    fn encode(&self, payload: &Payload, content_type: &str) -> Result<Bytes>;
    /// Decodes what [`PayloadCodec::encode`] made.
    ///
    /// # Errors
    /// If the bytes are not of this codec or its key; the handler is then not called.
    fn decode(&self, bytes: &[u8], content_type: &str) -> Result<Payload>;
}

/// The payload of an event, decoded by the codec that its `encoding` names, or as it is.
///
/// # Errors
/// [`ErrorKind::Config`] if no codec of that name is given; otherwise the codec's own.
pub fn decode(event: &Event, codecs: &[&dyn PayloadCodec]) -> Result<Payload> {
    let Some(name) = event.encoding.as_deref() else {
        return Ok(event.payload.clone());
    };
    match codecs.iter().find(|codec| codec.name() == name) {
        Some(codec) => codec.decode(event.payload.as_bytes(), &event.content_type),
        None => Err(Error::new(ErrorKind::Config, "decode payload")
            .message(format!("no codec named `{}` is configured", name.escape_debug()))
            .context("event", event.id)),
    }
}
