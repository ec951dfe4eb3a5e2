//! One line of `--ndjson`: a CloudEvent, or an event in the names of the flags.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use postrider_core::{EventId, NewEvent, Payload, Timestamp, cloudevents};
use serde::Deserialize;
use serde_json::value::RawValue;

/// An event in the names of the flags.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simple {
    aggregate_type: String,
    aggregate_id: String,
    #[serde(rename = "type", alias = "event_type")]
    event_type: String,
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    content_type: Option<String>,
    key: Option<String>,
    tenant: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    id: Option<EventId>,
    source: Option<String>,
    #[serde(alias = "event_version")]
    version: Option<u32>,
    occurred_at: Option<Timestamp>,
    deliver_after: Option<Timestamp>,
}

/// What tells a CloudEvent from the simple form.
#[derive(Deserialize)]
struct Probe {
    specversion: Option<serde::de::IgnoredAny>,
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(line: &[u8]) -> Result<NewEvent, String> {
    let probe: Probe = serde_json::from_slice(line).map_err(|e| plain(&e))?;
    if probe.specversion.is_some() {
        return cloudevent(line);
    }
    let simple: Simple = serde_json::from_slice(line).map_err(|e| plain(&e))?;
    let mut event = NewEvent::new(&simple.aggregate_type, &simple.aggregate_id, &simple.event_type);
    let content_type = simple.content_type.as_deref();
    event = match (simple.payload, simple.payload_base64) {
        (Some(_), Some(_)) => return Err("both payload and payload_base64 are given".to_owned()),
        (Some(json), None) => {
            let payload = Payload::json(json.get()).map_err(|e| e.to_string())?;
            event.payload(payload, content_type.unwrap_or("application/json"))
        }
        (None, Some(text)) => {
            let bytes = BASE64.decode(text).map_err(|e| format!("payload_base64: {e}"))?;
            event.payload(Payload::bytes(bytes), content_type.unwrap_or("application/octet-stream"))
        }
        (None, None) => event,
    };
    if let Some(key) = &simple.key {
        event = event.ordered_by(key);
    }
    if let Some(tenant) = &simple.tenant {
        event = event.tenant(tenant);
    }
    for (name, value) in simple.headers {
        event = event.header(name, value);
    }
    if let Some(id) = simple.id {
        event = event.id(id);
    }
    if let Some(source) = &simple.source {
        event = event.source(source);
    }
    if let Some(version) = simple.version {
        event = event.version(version);
    }
    if let Some(time) = simple.occurred_at {
        event = event.occurred_at(time);
    }
    if let Some(time) = simple.deliver_after {
        event = event.deliver_after(time);
    }
    Ok(event)
}

/// The message without the place, which is that of the line in a document of its own.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match error.is_data() {
        true => text
            .rsplit_once(" at line")
            .map_or_else(|| text.clone(), |(message, _)| message.to_owned()),
        false => format!("not JSON: {text}"),
    }
}

fn cloudevent(line: &[u8]) -> Result<NewEvent, String> {
    let (parsed, _) = cloudevents::parse(line).map_err(|e| e.to_string())?;
    if parsed.encoding.is_some() {
        return Err("its payload is encoded; only the producer's codec can enqueue it".to_owned());
    }
    if parsed.payload == Payload::Erased {
        return Err("it has no data".to_owned());
    }
    let mut event = NewEvent::new(&parsed.aggregate_type, &parsed.aggregate_id, &parsed.event_type)
        .id(parsed.id)
        .source(&parsed.source)
        .version(parsed.event_version)
        .occurred_at(parsed.occurred_at)
        .payload(parsed.payload, &parsed.content_type);
    if let Some(key) = &parsed.key {
        event = event.ordered_by(key);
    }
    if let Some(tenant) = &parsed.tenant {
        event = event.tenant(tenant);
    }
    for (name, value) in parsed.headers {
        event = event.header(name, value);
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use postrider_core::{Event, Marks};

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let simple = read(
            br#"{"aggregate_type":"order","aggregate_id":"42","type":"order.placed",
                 "payload":{"cents": 1e2},"key":"k","headers":{"a":"b"}}"#,
        )
        .unwrap();
        assert_eq!(simple.event().payload.as_bytes(), br#"{"cents": 1e2}"#);
        assert_eq!((simple.key().as_str(), &*simple.event().headers["a"]), ("k", "b"));

        let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
        event.source = "/shop".into();
        event.tenant = Some("acme".into());
        let line = cloudevents::to_json(&event, Marks::default()).unwrap();
        let read = read(&line).unwrap();
        assert_eq!((read.event().id, &*read.event().source), (event.id, "/shop"));
        assert_eq!(read.event().tenant, event.tenant);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            ("{", "not JSON"),
            ("[]", "invalid"),
            ("{\"aggregate_type\":\"a\",\"aggregate_id\":\"1\"}", "missing field `type`"),
            (
                "{\"aggregate_type\":\"a\",\"aggregate_id\":\"1\",\"type\":\"t\",\"keys\":1}",
                "unknown field `keys`",
            ),
            ("{\"specversion\":\"1.0\"}", "id"),
        ] {
            let message = read(line.as_bytes()).map(|_| ()).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
