//! What each format looks like on the wire, as files beside this: consumers depend on every byte of it.
//!
//! `BLESS=1` writes them anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use postrider_core::{Event, EventId, Format, Marks, Outgoing, Payload, Timestamp};

use crate::message::{Message, encode, read};

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
    ];
    event.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    event
}

fn outgoing(event: Event, format: Format) -> Outgoing {
    let mut sent = Outgoing::new(Arc::new(event), "orders");
    sent.format = format;
    sent
}

fn shown(message: &Message) -> String {
    let mut text = String::new();
    for (name, value) in &message.attributes {
        let _ = writeln!(text, "{name}: {value}");
    }
    let _ = writeln!(text, "\n{}", message.body);
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

/// R062: an envelope that consumers can rely on.
#[test]
fn the_wire_is_what_it_was() {
    for format in [Format::Structured, Format::Plain] {
        compare(
            &format!("{format}.txt"),
            &shown(&encode(&outgoing(event(), format), 1 << 20).unwrap()),
        );
    }
    // More headers than there are attributes left.
    let mut packed = event();
    packed.headers.insert("x-price".to_owned(), "12 €".to_owned());
    compare(
        "plain-packed.txt",
        &shown(&encode(&outgoing(packed, Format::Plain), 1 << 20).unwrap()),
    );
}

/// R086: a message without an id gets none here.
#[test]
fn a_message_without_an_id_is_no_event() {
    let message = encode(&outgoing(event(), Format::Plain), 1 << 20).unwrap();
    let body = || bytes::Bytes::from(message.body.clone());
    let mut without = message.attributes.clone();
    without.remove("postrider-id");
    assert!(read("orders", &without, body()).is_err());
    let (_, marks) = read("orders", &message.attributes, body()).unwrap();
    assert_eq!(marks, Marks::default(), "the control");
}
