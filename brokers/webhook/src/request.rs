//! From an event to a request: body, CloudEvents headers, signature, and how it is marked.

use std::borrow::Cow;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use http_body_util::Full;
use postrider_core::cloudevents::{self, binary};
use postrider_core::{ErrorKind, Fault, Format, Outgoing, Payload};

use crate::signature::{ID, SIGNATURE, TIMESTAMP, sign};
use crate::target::Target;

/// The plain header that marks a delivery out of its key's order on purpose.
pub const LATE: &str = "postrider-late";
/// The plain header that marks a delivery of a replay.
pub const REPLAY: &str = "postrider-replay";
/// The plain header with the number of the attempt, from 1.
pub const ATTEMPT: &str = "postrider-attempt";

/// Writes a request.
///
/// # Errors
/// Why the event can never be sent: not encodable, or too large.
pub(crate) fn encode(
    target: &Target,
    outgoing: &Outgoing,
    bytes_max: usize,
    now: SystemTime,
) -> Result<Request<Full<Bytes>>, Fault> {
    let event = &*outgoing.event;
    let mut headers = HeaderMap::with_capacity(match outgoing.format {
        Format::Binary => {
            target.signer.headers.len() + OWN_HEADERS + NAMES.len() + event.headers.len()
        }
        _ => target.signer.headers.len() + OWN_HEADERS,
    });
    headers.extend(target.signer.headers.iter().map(|(name, text)| (name.clone(), text.clone())));
    let body = match outgoing.format {
        Format::Structured => {
            let content_type = HeaderValue::from_static(cloudevents::MEDIA_TYPE);
            headers.insert(header::CONTENT_TYPE, content_type);
            Bytes::from(cloudevents::to_json(event, outgoing.marks).map_err(|e| unfit(&e))?)
        }
        Format::Binary => {
            write_attributes(outgoing, &mut headers)?;
            match &event.payload {
                Payload::Json(bytes) | Payload::Bytes(bytes) => bytes.clone(),
                Payload::Erased => Bytes::new(),
            }
        }
        other => {
            let detail = format!("a webhook is sent as structured or binary, not as {other}");
            return Err(Fault::new(ErrorKind::Config, detail));
        }
    };
    if body.len() > bytes_max {
        let detail = format!("the request has {} bytes, at most {bytes_max}", body.len());
        return Err(Fault::new(ErrorKind::TooLarge, detail));
    }
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let id = event.id.to_string();
    if !target.signer.keys.is_empty() {
        let signature = sign(&target.signer.keys, &id, seconds, &body);
        headers.insert(SIGNATURE_NAME, value(signature)?);
    }
    headers.insert(ID_NAME, value(id)?);
    headers.insert(TIMESTAMP_NAME, HeaderValue::from(seconds));
    headers.insert(ATTEMPT_NAME, HeaderValue::from(outgoing.attempt));
    if outgoing.marks.late {
        headers.insert(LATE, HeaderValue::from_static("true"));
    }
    if outgoing.marks.replay {
        headers.insert(REPLAY, HeaderValue::from_static("true"));
    }
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.uri.clone();
    *request.headers_mut() = headers;
    Ok(request)
}

fn write_attributes(outgoing: &Outgoing, headers: &mut HeaderMap) -> Result<(), Fault> {
    let event = &*outgoing.event;
    headers.insert(header::CONTENT_TYPE, value(event.content_type.to_string())?);
    for (name, text) in binary::attributes(event, outgoing.marks).map_err(|e| unfit(&e))? {
        let text = match binary::encode_value(&text) {
            Cow::Owned(encoded) => encoded,
            Cow::Borrowed(_) => text.into_owned(),
        };
        headers.insert(header_name(name)?, value(text)?);
    }
    Ok(())
}

/// Headers besides an endpoint's own and the attributes.
const OWN_HEADERS: usize = 8;
/// Names that stand in every request are not read anew for each.
const ID_NAME: HeaderName = HeaderName::from_static(ID);
const TIMESTAMP_NAME: HeaderName = HeaderName::from_static(TIMESTAMP);
const SIGNATURE_NAME: HeaderName = HeaderName::from_static(SIGNATURE);
const ATTEMPT_NAME: HeaderName = HeaderName::from_static(ATTEMPT);
static NAMES: [HeaderName; 12] = [
    HeaderName::from_static("ce-specversion"),
    HeaderName::from_static("ce-id"),
    HeaderName::from_static("ce-source"),
    HeaderName::from_static("ce-type"),
    HeaderName::from_static("ce-subject"),
    HeaderName::from_static("ce-time"),
    HeaderName::from_static("ce-recordedtime"),
    HeaderName::from_static("ce-partitionkey"),
    HeaderName::from_static("ce-aggregatetype"),
    HeaderName::from_static("ce-aggregateid"),
    HeaderName::from_static("ce-eventversion"),
    HeaderName::from_static("ce-traceparent"),
];

fn header_name(attribute: &str) -> Result<HeaderName, Fault> {
    let known = |name: &&HeaderName| name.as_str().strip_prefix(binary::PREFIX) == Some(attribute);
    if let Some(name) = NAMES.iter().find(known) {
        return Ok(name.clone());
    }
    let name = format!("{}{attribute}", binary::PREFIX);
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| unwritable())
}

fn value(text: String) -> Result<HeaderValue, Fault> {
    HeaderValue::try_from(text).map_err(|_| unwritable())
}

fn unwritable() -> Fault {
    Fault::new(ErrorKind::Invalid, "the event's content type cannot stand in a header")
}

fn unfit(error: &postrider_core::Error) -> Fault {
    Fault::new(error.kind(), format!("{error:?}"))
}
