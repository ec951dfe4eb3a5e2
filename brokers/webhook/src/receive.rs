//! For receivers in Rust: from headers and a body to a verified event.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, header};
use postrider_core::cloudevents::{self, binary};
use postrider_core::{Error, ErrorKind, Event, EventId, Marks, Result};

use crate::VerifyingKey;
use crate::request::{ATTEMPT, LATE, REPLAY};
use crate::signature::{ID, SIGNATURE, Signed, TIMESTAMP, Unverified, verify};

/// A request whose signature was verified.
///
/// The signature covers the id, the time, and the body, and no other header. In structured mode the
/// whole event is in the body. In binary mode its attributes (type, source, key, tenant) are headers,
/// which the signature does not cover: there TLS alone vouches for them.
///
/// ```
/// use std::time::SystemTime;
/// use http::HeaderMap;
/// use postrider_webhook::{SigningKey, sign, signature::TOLERANCE};
/// use postrider_webhook::receive::Received;
///
/// let key: SigningKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
/// let (id, body) = ("0194d5e0-0000-7000-8000-000000000000", "{}");
/// let mut headers = HeaderMap::new();
/// headers.insert("webhook-id", id.parse()?);
/// headers.insert("webhook-timestamp", now.into());
/// headers.insert("webhook-signature", sign(&[key.clone()], id, now, body.as_bytes()).parse()?);
///
/// let keys = [key.verifying_key()];
/// let received = Received::verify(&headers, body, &keys, TOLERANCE)?;
/// assert_eq!(received.id(), id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Received {
    id: String,
    time: SystemTime,
    headers: HeaderMap,
    body: Bytes,
}

impl Received {
    /// Verifies a request against any of the keys, by the system's clock. The body must be the
    /// request's, byte for byte, and its length bounded by whoever read it.
    ///
    /// # Errors
    /// Why it is not accepted: answer 401, and do nothing else.
    pub fn verify(
        headers: &HeaderMap,
        body: impl Into<Bytes>,
        keys: &[VerifyingKey],
        tolerance: Duration,
    ) -> Result<Received, Unverified> {
        let signed = Signed {
            id: single(headers, ID)?,
            timestamp: single(headers, TIMESTAMP)?,
            signature: single(headers, SIGNATURE)?,
        };
        let body = body.into();
        let time = verify(signed, &body, keys, tolerance, SystemTime::now())?;
        Ok(Received { id: signed.id.to_owned(), time, headers: headers.clone(), body })
    }

    /// The event's id, the same in every attempt: what to remember so as to act once.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When this attempt was made, by the sender's clock.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// The body as it was received.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Which attempt this is, if the sender says so. Not covered by the signature.
    pub fn attempt(&self) -> Option<u32> {
        self.headers.get(ATTEMPT)?.to_str().ok()?.parse().ok()
    }

    /// The event, from either mode, and how it is marked.
    ///
    /// # Errors
    /// `Invalid` or `TooLarge` if it is no CloudEvent, or if its id is not the one that was signed.
    pub fn event(&self) -> Result<(Event, Marks)> {
        let content_type = match self.headers.get(header::CONTENT_TYPE) {
            None => None,
            Some(value) => Some(value.to_str().map_err(|_| invalid("the content type"))?),
        };
        let structured = content_type.is_some_and(|text| {
            let media = text.split(';').next().unwrap_or_default().trim();
            media.eq_ignore_ascii_case(cloudevents::MEDIA_TYPE)
        });
        let (event, mut marks) = if structured {
            cloudevents::parse(&self.body)?
        } else {
            self.read_binary(content_type)?
        };
        // The same id in another spelling is the same id.
        if self.id.parse::<EventId>().ok() != Some(event.id) {
            return Err(invalid("the event's id is not the one that was signed"));
        }
        marks.late |= self.is_marked(LATE);
        marks.replay |= self.is_marked(REPLAY);
        Ok((event, marks))
    }

    fn read_binary(&self, content_type: Option<&str>) -> Result<(Event, Marks)> {
        let mut attributes = Vec::new();
        for (name, value) in &self.headers {
            if let Some(name) = name.as_str().strip_prefix(binary::PREFIX) {
                attributes.push((name, binary::decode_value(value.as_bytes())?));
            }
        }
        let attributes = attributes.iter().map(|(name, value)| (*name, &**value));
        binary::parse(attributes, content_type, self.body.clone())
    }

    fn is_marked(&self, name: &str) -> bool {
        self.headers.get(name).is_some_and(|value| value == "true")
    }
}

/// A header that stands there once: of two it would not be known which one was signed.
fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Unverified> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| Unverified::Header(name)),
        _ => Err(Unverified::Header(name)),
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, "read webhook").message(message)
}
