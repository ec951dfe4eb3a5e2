//! CloudEvents 1.0: structured mode (one JSON document) and binary mode (attributes beside the
//! payload), and what both share.
//!
//! Attribute names are lower-case letters and digits only, as the specification demands
//! (CloudEvents 1.0.2, "Naming Conventions"), so the envelope's own fields are extensions named
//! `aggregatetype`, `aggregateid`, `eventversion`, `tenant`, `encoding`; `recordedtime` and
//! `partitionkey` are documented extensions of the specification. Headers that are valid attribute
//! names (`traceparent`, `correlationid`) become attributes; all others travel in the one extension
//! `postriderheaders`, a string that holds a JSON object. Payloads keep their bytes: in structured
//! mode JSON stands in `data` and opaque bytes in `data_base64`, in binary mode both are the body.
//!
//! Invariant: whatever is written here is read back equal, in either mode.

pub mod binary;
mod envelope;
mod structured;

pub use structured::{append_json, parse, parse_keyed, to_json};

use crate::{Error, ErrorKind};

/// The media type of a structured event.
pub const MEDIA_TYPE: &str = "application/cloudevents+json";

/// The largest document [`parse`] accepts, in bytes: 1 MiB of payload in base64, and its envelope.
pub const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The attribute that marks an event delivered out of its key's order on purpose.
pub const LATE: &str = "postriderlate";

/// The attribute that marks an event of a replay: its destination was rewound.
pub const REPLAY: &str = "postriderreplay";

/// The attribute that says what a body in binary mode is, where its media type misleads.
pub const PAYLOAD: &str = "postriderpayload";

/// Names that a header must not take, because the envelope uses them.
const RESERVED: [&str; 20] = [
    "id",
    "source",
    "specversion",
    "type",
    "datacontenttype",
    "dataschema",
    "subject",
    "time",
    "data",
    "partitionkey",
    "recordedtime",
    "aggregatetype",
    "aggregateid",
    "eventversion",
    "tenant",
    "encoding",
    HEADERS,
    LATE,
    REPLAY,
    PAYLOAD,
];

/// The attribute that holds the headers that are no attributes.
const HEADERS: &str = "postriderheaders";

/// Whether a content type says that the body is a structured event.
///
/// ```
/// use postrider_core::cloudevents::{MEDIA_TYPE, is_structured};
/// assert!(is_structured(MEDIA_TYPE));
/// assert!(is_structured("Application/CloudEvents+json; charset=UTF-8"));
/// assert!(!is_structured("application/json"));
/// ```
pub fn is_structured(content_type: &str) -> bool {
    let begin = content_type.trim_start().get(..MEDIA_TYPE.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(MEDIA_TYPE))
}

fn is_attribute_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=20).contains(&name.len()) && name.chars().all(plain) && !RESERVED.contains(&name)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "read cloudevent").message(message)
}
