//! What each format looks like on the wire, as files beside this: consumers depend on every byte of it.
//!
//! `BLESS=1` writes them anew.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::plain::ROUTER_SOURCE;
use postrider_core::{
    Event, EventId, Format, Layout, Marks, Outgoing, Payload, RecordKey, Template, Timestamp,
};
use postrider_testkit::registries::{OF_REGISTRIES, with_headers_of_registries};
use rdkafka::message::{Headers, Message, OwnedHeaders, OwnedMessage};

use crate::decode::decode;
use crate::encode::encode;

/// Bytes of a registry's wire format: a zero, the schema's number, and what only its readers understand.
const AVRO: &[u8] = b"\x00\x00\x00\x00\x07\xff\xfe\n\r\x00";

fn event() -> Event {
    let id = EventId::from_u128(0x0194_d5e0_0000_7000_8000_0000_0000_0007);
    let mut event = Event::new(id, "order", "42", "order.placed");
    event.source = Arc::from("/shop/ü");
    event.payload = Payload::json("{\"total\":  12.50}").unwrap();
    event.tenant = Some("acme".into());
    event.occurred_at = Timestamp::from_micros(1_767_323_045_000_000);
    event.created_at = Timestamp::from_micros(1_767_323_045_250_000);
    let headers = [
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-note", "a \"b\" % €"),
        ("schema-id", "7"),
    ];
    event.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    event
}

fn outgoing(event: Event, format: Format) -> Outgoing {
    let mut sent = Outgoing::new(Arc::new(event), "outbox.event.order");
    sent.format = format;
    if format == Format::Debezium {
        let said: Template = "{event_type}".parse().unwrap();
        let headers = [("eventType".to_owned(), said)].into();
        sent.layout = Some(Arc::new(Layout { key: None, headers }));
    }
    sent
}

fn message(sent: &Outgoing) -> OwnedMessage {
    let mut document = Vec::new();
    let record = encode(sent, &RecordKey::aggregate_id(), &mut document).unwrap();
    let (value, topic) = (record.value.map(<[u8]>::to_vec), sent.topic.to_string());
    let time = rdkafka::message::Timestamp::NotAvailable;
    OwnedMessage::new(
        value,
        record.key.map(Cow::into_owned),
        topic,
        time,
        0,
        0,
        Some(record.headers),
    )
}

fn shown(message: &OwnedMessage) -> String {
    let mut text = String::new();
    let bytes = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let _ = writeln!(text, "topic: {}", message.topic());
    let _ = writeln!(text, "key: {}", message.key().map_or_else(|| "none".to_owned(), bytes));
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        let value = header.value.unwrap();
        let value = String::from_utf8(value.to_vec())
            .ok()
            .filter(|value| !value.contains(char::is_control))
            .unwrap_or_else(|| bytes(value));
        let _ = writeln!(text, "{}: {value}", header.key);
    }
    let _ = writeln!(text, "\n{}", message.payload().map_or_else(|| "no value".to_owned(), bytes));
    text
}

fn compare(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn the_wire_is_what_it_was() {
    for format in [Format::Structured, Format::Binary, Format::Plain, Format::Debezium] {
        let found = shown(&message(&outgoing(event(), format)));
        compare(&format!("{format}.txt"), &found);
        let mut opaque = event();
        opaque.payload = Payload::bytes(AVRO);
        opaque.content_type = postrider_core::Text::from("application/vnd.apache.avro");
        opaque.key = Some("acme/order/42".into());
        let found = shown(&message(&outgoing(opaque.clone(), format)));
        compare(&format!("{format}-avro.txt"), &found);
        if format != Format::Structured {
            let found = shown(&message(&outgoing(with_headers_of_registries(opaque), format)));
            compare(&format!("{format}-registries.txt"), &found);
        }
    }
}

/// R013, R063: Avro, Protobuf, and raw bytes come through byte for byte, with their content type and the headers
/// that name their schema; and what was written is read back, but for headers that a route added.
#[test]
fn payloads_are_untouched_in_every_format_but_one() {
    for format in [Format::Binary, Format::Plain, Format::Debezium] {
        let mut event = with_headers_of_registries(event());
        event.payload = Payload::Bytes(Bytes::from_static(AVRO));
        event.content_type =
            postrider_core::Text::from("application/x-protobuf; messageType=\"Order\"");
        let sent = outgoing(event, format);
        let message = message(&sent);
        assert_eq!(message.payload(), Some(AVRO));
        let (read, marks) = decode(&message, ROUTER_SOURCE).unwrap();
        let mut read = (*read).clone();
        read.headers.remove("eventType");
        assert_eq!((read, marks), ((*sent.event).clone(), Marks::default()));
    }
}

/// Registries' headers of somebody else's CloudEvent are the event's, as texts; and what was packed counts more than what
/// stands beside it, which anybody may have written.
#[test]
fn schema_ids_of_others_are_read() {
    let sent = message(&outgoing(with_headers_of_registries(event()), Format::Binary));
    let headers = sent.headers().unwrap();
    let kept = headers.iter().filter(|header| header.key != "ce_postriderheaders");
    let kept = kept.fold(OwnedHeaders::new(), OwnedHeaders::insert);
    let (read, _) = decode(&sent.clone().replace_headers(Some(kept)), ROUTER_SOURCE).unwrap();
    for (name, value) in OF_REGISTRIES {
        assert_eq!(read.headers[name], value);
    }
    assert_eq!(read.headers["schema-id"], "7");
    let other = rdkafka::message::Header { key: "SCHEMA-ID", value: Some("8") };
    let twice = sent.clone().replace_headers(Some(headers.clone().insert(other)));
    let (read, _) = decode(&twice, ROUTER_SOURCE).unwrap();
    assert_eq!(*read, with_headers_of_registries(event()));
    // As whoever inserts rows by SQL may write it.
    let mut spelled = event();
    spelled.headers.insert("apicurio.value.globalId".to_owned(), "7".to_owned());
    let sent = message(&outgoing(spelled.clone(), Format::Binary));
    assert_eq!(*decode(&sent, ROUTER_SOURCE).unwrap().0, spelled);
}

/// Debezium's own output, as its documentation shows it, with nothing of ours.
#[test]
fn records_of_the_router_itself_are_read() {
    let id = "4d47e190-0402-4048-bc2c-89dd54343cdc";
    let header = |key, value: &'static [u8]| rdkafka::message::Header { key, value: Some(value) };
    // Some serialisers write bytes into headers.
    let headers = OwnedHeaders::new()
        .insert(header("id", id.as_bytes()))
        .insert(header("__value_schema_id", b"\x01\xff\xfe"));
    let (value, key) = (Some(b"{\"id\": 1}".to_vec()), Some(b"1".to_vec()));
    let time = rdkafka::message::Timestamp::CreateTime(1_556_890_294_484);
    let topic = "outbox.event.order".to_owned();
    let message = OwnedMessage::new(value, key, topic, time, 0, 0, Some(headers));
    let (event, _) = decode(&message, ROUTER_SOURCE).unwrap();
    assert_eq!(event.id.to_string(), id);
    assert_eq!(event.key(), "order/1");
    assert_eq!(event.occurred_at, Timestamp::from_micros(1_556_890_294_484_000));
}

/// R086: a record without an id gets none here.
#[test]
fn a_record_without_an_id_is_no_event() {
    for format in [Format::Plain, Format::Debezium, Format::Binary] {
        let message = message(&outgoing(event(), format));
        let ids = ["id", "postrider-id", "ce_id"];
        let kept = message.headers().unwrap().iter().filter(|header| !ids.contains(&header.key));
        let kept = kept.fold(OwnedHeaders::new(), OwnedHeaders::insert);
        let refused =
            decode(&message.clone().replace_headers(Some(kept)), ROUTER_SOURCE).unwrap_err();
        assert_eq!(refused.kind, postrider_core::ErrorKind::Invalid, "{format}");
        assert!(refused.detail.contains("id"), "{refused}");
        assert!(decode(&message, ROUTER_SOURCE).is_ok(), "{format}: the control");
    }
}
