//! Our layout beside what Debezium's router really wrote for the same rows: `golden/router` has its records, and says how they came
//! about.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::plain::ROUTER_SOURCE;
use postrider_core::{Event, EventId, Format, Layout, Outgoing, Payload, RecordKey};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage, Timestamp};
use serde_json::Value;

use crate::TOMBSTONE;
use crate::decode::decode;
use crate::encode::encode;

const OBJECT: &str = "{\"a\": null, \"of\": [\"ü\", 1000], \"total\": 12.50}";
const SPACED: &str = "{\"total\":  12.50,\"of\":\"ü\"}";
const AVRO: &[u8] = b"\x00\x00\x00\x00\x07\xff\xfe\n\r\x00";

/// A row of `rows.sql`: the end of its id, its aggregate's type and id, its type, and its payload as the server writes it.
type Row = (u8, &'static str, Option<&'static str>, &'static str, Option<&'static [u8]>);

const ROWS: [Row; 15] = [
    (0x01, "order", Some("1"), "order.placed", Some(OBJECT.as_bytes())),
    (0x02, "Order", Some("1"), "OrderPaid", Some(b"\"a text\"")),
    (0x03, "order", Some("2"), "order.counted", Some(b"7")),
    (0x04, "order", Some("ü 2"), "order.nothing", Some(b"null")),
    (0x05, "order", Some("3"), "order.deleted", None),
    (0x06, "order", None, "order.keyless", Some(b"{}")),
    (0x07, "order", Some("4"), "order.list", Some(b"[]")),
    (0x11, "order", Some("1"), "order.placed", Some(SPACED.as_bytes())),
    (0x12, "order", Some("1"), "order.noted", Some("no JSON: ü".as_bytes())),
    (0x13, "order", Some("2"), "order.empty", Some(b"")),
    (0x14, "order", Some("3"), "order.deleted", None),
    (0x21, "order", Some("1"), "order.placed", Some(AVRO)),
    (0x22, "order", Some("1"), "order.empty", Some(b"")),
    (0x23, "order", Some("2"), "order.deleted", None),
    (0x24, "order", Some("2"), "order.placed", Some(b"{\"total\":  12.50}")),
];

fn bytes(value: &Value) -> Option<Vec<u8>> {
    let hex = |text: &str| {
        let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digits).collect()
    };
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone().into_bytes()),
        other => Some(hex(other["hex"].as_str().unwrap())),
    }
}

/// What a run of the router wrote.
fn written(name: &str) -> Vec<OwnedMessage> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/router");
    let text = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))).unwrap();
    let read = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let headers = record["headers"].as_array().unwrap().iter();
        let headers = headers.fold(OwnedHeaders::new(), |headers, pair| {
            let value = bytes(&pair[1]);
            headers.insert(Header { key: pair[0].as_str().unwrap(), value: value.as_ref() })
        });
        let (topic, time) = (record["topic"].as_str().unwrap(), record["time"].as_i64().unwrap());
        let time = Timestamp::CreateTime(time);
        let (key, value) = (bytes(&record["key"]), bytes(&record["value"]));
        OwnedMessage::new(value, key, topic.to_owned(), time, 0, 0, Some(headers))
    };
    text.lines().map(read).collect()
}

fn row(id: EventId) -> Row {
    let end = u8::from_str_radix(&id.to_string()[34..], 16).unwrap();
    *ROWS.iter().find(|row| row.0 == end).unwrap()
}

/// The row's event as our relay has it.
fn event(id: EventId, row: &Row) -> Event {
    let (_, aggregate_type, aggregate_id, event_type, payload) = row;
    let aggregate_id = aggregate_id.map_or_else(|| id.to_string(), str::to_owned);
    let mut event = Event::new(id, aggregate_type, &aggregate_id, event_type);
    event.source = Arc::from(ROUTER_SOURCE);
    event.payload = Payload::Bytes(Bytes::from_static(payload.unwrap_or_default()));
    if payload.is_none() {
        event.headers.insert(TOMBSTONE.to_owned(), "true".to_owned());
    }
    event
}

/// The router's headers that its consumers were promised.
fn promised(message: &OwnedMessage) -> BTreeMap<String, Option<Vec<u8>>> {
    let all = message.headers().into_iter().flat_map(Headers::iter);
    let own = all.filter(|header| !header.key.starts_with("__debezium.context."));
    own.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
}

/// Whatever its converters are, each of its events is read with the id, the key, and, where they leave it whole, the payload of
/// the row, and of one source.
#[test]
fn what_the_router_wrote_is_read() {
    let whole = [
        "text",
        "connect",
        "placed",
        "emptied",
        "quoted",
        "quotedschema",
        "bytype",
        "plaintext",
        "textemptied",
        "bytes",
        "binary",
        "bytesconnect",
    ];
    let changed = ["json", "expanded", "enveloped", "plainjson", "textexpanded"];
    for name in whole.into_iter().chain(changed) {
        let records = written(name);
        assert!(records.len() >= 4, "{name}");
        for record in records {
            let (read, _) = decode(&record, ROUTER_SOURCE)
                .unwrap_or_else(|fault| panic!("{name}: {fault:?}: {record:?}"));
            let row = row(read.id);
            let expected = event(read.id, &row);
            if whole.contains(&name) {
                assert_eq!(read.payload.as_bytes(), expected.payload.as_bytes(), "{name}");
                assert_eq!(read.payload.hash(), expected.payload.hash(), "{name}");
            }
            if name != "bytype" {
                assert_eq!(read.key(), expected.key(), "{name}");
            }
            let placed = promised(&record).get("postrider-source").cloned().flatten();
            let source = placed.map(|source| String::from_utf8(source).unwrap());
            assert_eq!(&*read.source, source.as_deref().unwrap_or(ROUTER_SOURCE), "{name}");
            if ["quoted", "quotedschema", "placed"].contains(&name) {
                assert_eq!(&*read.event_type, row.3, "{name}");
            }
        }
    }
}

/// R060: topic, key, value, and headers are the router's, whose consumers need not notice who writes. What they get besides begins
/// with `postrider-`, or is the content type.
#[test]
fn what_we_write_is_what_the_router_writes() {
    let (mut compared, key) = (0, RecordKey::aggregate_id());
    for name in ["text", "emptied", "placed", "plaintext", "bytes", "binary", "bytype"] {
        for record in written(name) {
            let id = decode(&record, ROUTER_SOURCE).unwrap().0.id;
            let row = row(id);
            // An event of ours has an aggregate, and a text that is no JSON is a dead letter.
            if row.2.is_none() || row.0 == 0x12 {
                continue;
            }
            let said = |name: &str| (name == "placed").then(|| "{event_type}".parse().unwrap());
            let headers = said(name).map(|type_| ("eventType".to_owned(), type_));
            let topic = match name {
                "bytype" => format!("router.{name}.{}", row.3),
                _ => format!("router.{name}.{}", row.1),
            };
            let mut sent = Outgoing::new(Arc::new(event(id, &row)), &*topic);
            sent.format = Format::Debezium;
            sent.layout =
                Some(Arc::new(Layout { key: None, headers: headers.into_iter().collect() }));
            let mut document = Vec::new();
            let ours = encode(&sent, &key, &mut document).unwrap();
            assert_eq!(record.topic(), &*sent.topic);
            // The ordering key is what our record keys are made of: not the event's type.
            if name != "bytype" {
                assert_eq!(record.key(), ours.key.as_deref(), "{name}");
            }
            assert_eq!(record.payload(), ours.value, "{name}: {id}");
            let found: BTreeMap<_, _> =
                ours.headers.iter().map(|header| (header.key, header.value)).collect();
            let of_ours = ["id", "eventType"];
            for (key, value) in promised(&record) {
                if of_ours.contains(&&*key) {
                    assert_eq!(found[&*key], value.as_deref(), "{name}: {key}");
                }
            }
            let besides = |key: &&str| {
                !(key.starts_with("postrider-") || of_ours.contains(key) || *key == "content-type")
            };
            let others: Vec<&str> = found.keys().copied().filter(besides).collect();
            assert!(others.is_empty() || others == [TOMBSTONE], "{name}: {others:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 4 * 6 + 3 + 2 * 4);
}

/// An id that is no UUID is refused, in words that name the header.
#[test]
fn an_id_that_is_no_uuid_is_named() {
    let refused = decode(&written("number")[0], ROUTER_SOURCE).unwrap_err();
    assert!(refused.detail.contains("the header with the id"), "{refused:?}");
}
