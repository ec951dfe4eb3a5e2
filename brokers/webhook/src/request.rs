//! From an event to a request: body, CloudEvents headers, signature, and how it is marked.

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
    let mut headers = target.signer.headers.clone();
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
    };
    if body.len() > bytes_max {
        let detail = format!("the request has {} bytes, at most {bytes_max}", body.len());
        return Err(Fault::new(ErrorKind::TooLarge, detail));
    }
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let id = event.id.to_string();
    if !target.signer.keys.is_empty() {
        let signature = sign(&target.signer.keys, &id, seconds, &body);
        headers.insert(SIGNATURE, value(&signature)?);
    }
    headers.insert(ID, value(&id)?);
    headers.insert(TIMESTAMP, HeaderValue::from(seconds));
    headers.insert(ATTEMPT, HeaderValue::from(outgoing.attempt));
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
    headers.insert(header::CONTENT_TYPE, value(&event.content_type)?);
    let attributes = binary::attributes(event, outgoing.marks).map_err(|e| unfit(&e))?;
    headers.reserve(attributes.len());
    let mut name_text = String::with_capacity(32);
    for (name, text) in attributes {
        name_text.clear();
        name_text.push_str(binary::PREFIX);
        name_text.push_str(name);
        let name = HeaderName::from_bytes(name_text.as_bytes()).map_err(|_| unwritable())?;
        headers.insert(name, value(&binary::encode_value(&text))?);
    }
    Ok(())
}

fn value(text: &str) -> Result<HeaderValue, Fault> {
    HeaderValue::from_str(text).map_err(|_| unwritable())
}

fn unwritable() -> Fault {
    Fault::new(ErrorKind::Invalid, "the event's content type cannot stand in a header")
}

fn unfit(error: &postrider_core::Error) -> Fault {
    Fault::new(error.kind(), format!("{error:?}"))
}
