//! What Kafka Connect's JSON converter makes of what Debezium's router gives it, by default: a document with the schema and,
//! beside it, what it is about.
//!
//! Invariant: only what has exactly this shape is unwrapped; everything else is what it was, byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A document of the converter's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<'a> {
    schema: Schema,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// As much of it as says that it is one.
#[derive(Deserialize)]
struct Schema {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "optional")]
    _optional: bool,
}

/// A body, without what the converter put around it: a text or bytes as they were, and anything else as its JSON.
pub(super) fn unwrapped(body: Bytes) -> Bytes {
    match wrapped(&body).and_then(|it| it.content()) {
        Some(content) => Bytes::from(content),
        None => body,
    }
}

/// The same of a key. None at all is an empty one.
pub(super) fn unwrapped_key(key: &str) -> String {
    let content = wrapped(key.as_bytes()).and_then(|it| it.content());
    content.and_then(|text| String::from_utf8(text).ok()).unwrap_or_else(|| key.to_owned())
}

/// A header's text. Written by a converter that makes JSON of headers it has quotes, and a schema or not.
pub(super) fn text(value: &str) -> String {
    unwrapped_key(value).trim_matches('"').to_owned()
}

fn wrapped(bytes: &[u8]) -> Option<Wrapped<'_>> {
    // Most are not, and are read no further.
    bytes.starts_with(b"{\"schema\":").then(|| serde_json::from_slice(bytes).ok()).flatten()
}

impl Wrapped<'_> {
    fn content(&self) -> Option<Vec<u8>> {
        let json = self.payload.get();
        match &*self.schema.kind {
            _ if json == "null" => Some(Vec::new()),
            "string" => serde_json::from_str(json).ok().map(String::into_bytes),
            "bytes" => BASE64.decode(serde_json::from_str::<String>(json).ok()?).ok(),
            _ => Some(json.as_bytes().to_vec()),
        }
    }
}
