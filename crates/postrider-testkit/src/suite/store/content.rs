//! Content: what was said is what is read, byte for byte, and what cannot be said is refused.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Event, EventLimits, NewEvent, Payload};

use crate::suite::relay::{Relay, a, event, ids};
use crate::suite::{StoreHarness, skip};

async fn round_trip<H: StoreHarness>(harness: &H, relay: &Relay, event: NewEvent) -> Arc<Event> {
    let id = event.event().id;
    harness.commit(vec![event]).await.expect("commit");
    let (_, row) = relay.find(id).await;
    row.event.expect("a readable event")
}

/// R013: JSON text is kept exactly: spaces, big numbers, escapes, order and repetition of keys.
pub async fn json_is_kept_byte_for_byte<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let texts = [
        "null",
        "{ \"b\" : 1,\n\t\"a\":12345678901234567890.10, \"b\":2 }",
        "[1e400, -0, 0.1000, \"\\u00e9 é \\/ 🚀 \\ud83d\\ude80\"]",
        "\"\"",
    ];
    for text in texts {
        let payload = Payload::json(text).expect("JSON");
        let sent = event("1", 1).payload(payload.clone(), "application/json");
        let read = round_trip(&harness, &relay, sent).await;
        assert_eq!(read.payload, payload, "{text}");
        assert_eq!(&*read.content_type, "application/json");
    }
}

/// R013: opaque bytes are kept exactly, whatever they look like, as is UTF-8 text.
pub async fn opaque_bytes_are_kept_byte_for_byte<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let values: [(&[u8], &str); 4] = [
        (&every_byte, "application/octet-stream"),
        (b"", "application/octet-stream"),
        ("Grüße, 世界 🚀\r\n".as_bytes(), "text/plain; charset=utf-8"),
        (b"{\"looks\": \"like JSON\"}", "avro/binary"),
    ];
    for (bytes, content_type) in values {
        let sent = event("1", 1).bytes(bytes.to_vec(), content_type);
        let read = round_trip(&harness, &relay, sent).await;
        assert_eq!(read.payload, Payload::bytes(bytes.to_vec()), "{content_type}");
        assert_eq!(&*read.content_type, content_type);
    }
}

/// R012, R016: every field of the envelope comes back as it was given.
pub async fn every_field_survives<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let sent = NewEvent::new("Ordre «é»", "42/ü", "order.placed")
        .source("https://shop.example/orders")
        .ordered_by("customer/7")
        .version(3)
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("x-note", "a \"quoted\" ünïcode value")
        .tenant("acme")
        .json(&serde_json::json!({"total": 1250}))
        .expect("JSON");
    let expected = sent.event().clone();
    let read = round_trip(&harness, &relay, sent).await;
    assert_eq!(read.id, expected.id);
    assert_eq!(read.source, expected.source);
    assert_eq!(read.aggregate_type, expected.aggregate_type);
    assert_eq!(read.aggregate_id, expected.aggregate_id);
    assert_eq!(read.key(), "customer/7");
    assert_eq!(read.key_hash(), expected.key_hash());
    assert_eq!(read.event_type, expected.event_type);
    assert_eq!(read.event_version, 3);
    assert_eq!(read.headers, expected.headers);
    assert_eq!(read.tenant, expected.tenant);
    assert_eq!(read.encoding, None);
}

/// R015: `occurred_at` is the application's word, `created_at` the store's.
pub async fn the_fact_and_the_row_have_times_of_their_own<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let occurred = "2001-02-03T04:05:06.789Z".parse().expect("a time");
    let sent = event("1", 1).occurred_at(occurred);
    let read = round_trip(&harness, &relay, sent).await;
    assert_eq!(read.occurred_at, occurred);
    let now = harness.now().await;
    let minute = Duration::from_secs(60);
    assert!(now.since(read.created_at) < minute, "{read:?} at {now}");
    assert!(read.created_at.since(now) < minute, "{read:?} at {now}");
}

/// R119: an event that names no source gets the store's, so that ids have a namespace.
pub async fn the_store_signs_what_has_no_source<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let read = round_trip(&harness, &relay, event("1", 1)).await;
    assert!(!read.source.is_empty());
    let second = round_trip(&harness, &relay, event("2", 1)).await;
    assert_eq!(read.source, second.source);
}

/// R012, R123: what breaks a rule is refused in the producer's transaction, with all of it.
pub async fn what_breaks_a_rule_is_refused_with_its_whole_transaction<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().refuses_malformed {
        return skip(
            "what_breaks_a_rule_is_refused_with_its_whole_transaction",
            "the table is the application's own, and refuses what the application says",
        );
    }
    let relay = Relay::start(&harness).await;
    let limits = EventLimits::default();
    let payload = vec![0u8; usize::try_from(limits.payload_bytes_max).expect("small") + 1];
    let broken_json = Payload::Json("{\"a\": ".into());
    let bad = [
        ("no type", NewEvent::new("", "1", "order.placed")),
        ("no id", NewEvent::new("order", "", "order.placed")),
        ("no event type", NewEvent::new("order", "1", "")),
        ("version 0", event("1", 1).version(0)),
        ("a newline in a header", event("1", 1).header("a", "b\r\nc: d")),
        ("a newline in the key", event("1", 1).ordered_by("a\nb")),
        ("too large", event("1", 1).bytes(payload, "application/octet-stream")),
        ("no JSON", event("1", 1).payload(broken_json, "application/json")),
    ];
    for (what, bad) in bad {
        let refused = harness.commit(vec![event("9", 1), bad]).await;
        assert!(refused.is_err(), "{what} was accepted");
    }
    assert_eq!(relay.read_ids(&a()).await, [], "nothing of a refused transaction");
}

/// A row that is no event is handed out as malformed, in its place, and the rest is read.
pub async fn a_malformed_row_is_handed_out_as_such_and_stops_nobody<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (before, after) = (event("malformed", 1), event("malformed", 2));
    harness.commit(vec![before.clone()]).await.expect("commit");
    let Some(inserted) = harness.insert_malformed() else {
        return skip(
            "a_malformed_row_is_handed_out_as_such_and_stops_nobody",
            "nobody can insert a malformed row",
        );
    };
    inserted.await.expect("insert");
    harness.commit(vec![after.clone()]).await.expect("commit");
    let rows = relay.read(&a()).await;
    assert_eq!(rows.len(), 3);
    assert!(rows[1].1.event.is_err(), "in its key's order: {rows:?}");
    let readable: Vec<_> = [&rows[0], &rows[2]].map(|(_, row)| row.row.id).into();
    assert_eq!(readable, ids(&[before, after]));
}
