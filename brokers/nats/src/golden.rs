//! What each format looks like on the wire, as files beside this: consumers depend on every byte of it.
//!
//! `BLESS=1` writes them anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use postrider_core::{
    Event, EventId, Format, Layout, Marks, Outgoing, Payload, Template, Timestamp,
};
use postrider_testkit::registries::{OF_REGISTRIES, with_headers_of_registries};

use crate::copy::identity;
use crate::encode::{Documents, Encoded, decode, encode};

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
        ("x-note", "a \"b\" %20"),
        ("x-price", "12 €"),
        ("nats-expected-stream", "other"),
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

fn shown(message: &Encoded) -> String {
    let line = |(name, values): (&async_nats::HeaderName, &Vec<async_nats::HeaderValue>)| {
        let name: &str = name.as_ref();
        let values = values.iter().map(|value| format!("{name}: {}", value.as_str()));
        values.collect::<Vec<_>>().join("\n")
    };
    let mut lines: Vec<String> = message.headers.iter().map(line).collect();
    // The client keeps them in no order.
    lines.sort();
    let mut text = lines.join("\n");
    let _ = writeln!(text, "\n\n{}", message.body.escape_ascii());
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
        let sent = outgoing(event(), format);
        let message = encode(&sent, identity(&sent), 1 << 20, &mut Documents::default()).unwrap();
        let found = shown(&message);
        compare(&format!("{format}.txt"), &found);
        if format != Format::Structured {
            let sent = outgoing(with_headers_of_registries(event()), format);
            let message = encode(&sent, identity(&sent), 1 << 20, &mut Documents::default());
            compare(&format!("{format}-registries.txt"), &shown(&message.unwrap()));
        }
    }
}

/// Registries' headers of somebody else's CloudEvent are the event's; and what was packed counts more than what stands
/// beside it, which anybody may have written.
#[test]
fn schema_ids_of_others_are_read() {
    let sent = outgoing(with_headers_of_registries(event()), Format::Binary);
    let message = encode(&sent, identity(&sent), 1 << 20, &mut Documents::default()).unwrap();
    let read = |headers| decode(&sent.topic, Some(&headers), message.body.clone()).unwrap().0;
    let mut bare = async_nats::HeaderMap::new();
    for (name, values) in message.headers.iter() {
        if AsRef::<str>::as_ref(name) != "ce-postriderheaders" {
            bare.insert(name.clone(), values[0].clone());
        }
    }
    let of_others = read(bare);
    for (name, value) in OF_REGISTRIES {
        assert_eq!(of_others.headers[name], value);
    }
    let mut twice = message.headers.clone();
    twice.insert("schema-id", "8");
    assert_eq!(read(twice), sent.event);
}

/// R013, R063: Avro, Protobuf, and raw bytes come through byte for byte, with their content type and the headers
/// that name their schema; and what was written is read back, but for headers that a route added.
#[test]
fn payloads_are_untouched_in_every_format_but_one() {
    for format in [Format::Binary, Format::Plain, Format::Debezium] {
        let mut event = with_headers_of_registries(event());
        event.payload = Payload::bytes(AVRO);
        event.content_type =
            postrider_core::Text::from("application/x-protobuf; messageType=\"Order\"");
        let sent = outgoing(event, format);
        let message = encode(&sent, identity(&sent), 1 << 20, &mut Documents::default()).unwrap();
        assert_eq!(&message.body[..], AVRO);
        let (read, marks) = decode(&sent.topic, Some(&message.headers), message.body).unwrap();
        let mut read = (*read).clone();
        read.headers.remove("eventType");
        assert_eq!((read, marks), ((*sent.event).clone(), Marks::default()));
    }
}

/// R086: a message without an id gets none here.
#[test]
fn a_message_without_an_id_is_no_event() {
    for format in [Format::Plain, Format::Debezium, Format::Binary] {
        let sent = outgoing(event(), format);
        let message = encode(&sent, identity(&sent), 1 << 20, &mut Documents::default()).unwrap();
        let read = |without: &[&str]| {
            let mut headers = async_nats::HeaderMap::new();
            for (name, values) in message.headers.iter() {
                if !without.contains(&AsRef::<str>::as_ref(name)) {
                    headers.insert(name.clone(), values[0].clone());
                }
            }
            decode(&sent.topic, Some(&headers), message.body.clone())
        };
        // The server's own id is not the event's.
        let refused = read(&["id", "postrider-id", "ce-id"]).unwrap_err();
        assert_eq!(refused.kind, postrider_core::ErrorKind::Invalid, "{format}");
        assert!(read(&[]).is_ok(), "{format}: the control");
    }
}
