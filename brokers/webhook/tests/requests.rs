//! What is sent: headers, bodies, marks, and what is refused before it is sent.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider_core::{ErrorKind, Event, EventId, Format, Marks, NewEvent, Outcome, Payload};
use postrider_webhook::receive::Received;
use postrider_webhook::signature::TOLERANCE;
use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};

use crate::support::*;

fn event() -> Event {
    let new = NewEvent::new("order", "42", "order.placed")
        .source("/shop")
        .tenant("Ünï \"quoted\" 100%")
        .header("traceparent", "00-ab-cd-01")
        .header("x-odd.name", "a\tb")
        .json(&serde_json::json!({ "total": 1250 }))
        .unwrap();
    new.event().clone()
}

/// R062, R063: the event's id is the id of every attempt, whatever became of the ones before.
#[tokio::test]
async fn every_attempt_carries_the_events_id() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(Arc::new(move |_| {
        match turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Some(status(503)),
            1 => None,
            _ => Some(status(200)),
        }
    }))
    .await;
    let broker = broker(&server.url("/hook?x=1"));
    let mut sent = outgoing_of(event());
    retried(publish(&broker, sent.clone()).await);
    sent.attempt = 2;
    retried(publish(&broker, sent.clone()).await);
    sent.attempt = 3;
    sent.marks = Marks { late: true, replay: true };
    assert_eq!(publish(&broker, sent.clone()).await, Outcome::Acked);

    let got = server.got();
    for (index, got) in got.iter().enumerate() {
        assert_eq!(got.header("webhook-id").unwrap(), sent.event.id.to_string());
        assert_eq!(got.header("content-type").unwrap(), "application/cloudevents+json");
        assert_eq!(got.header("postrider-attempt").unwrap(), (index + 1).to_string());
        let marked = (index == 2).then_some("true");
        assert_eq!(got.header("postrider-late"), marked);
        assert_eq!(got.header("postrider-replay"), marked);
        assert!(got.header("user-agent").unwrap().starts_with("Postrider/"));
        let seconds: u64 = got.header("webhook-timestamp").unwrap().parse().unwrap();
        let age = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
        assert!(age < Duration::from_secs(60), "the time of the attempt");
        let body = got.body.clone();
        let received = Received::verify(&got.headers, body, &verifying(), TOLERANCE).unwrap();
        assert_eq!(received.attempt(), Some(index as u32 + 1));
        let (read, marks) = received.event().unwrap();
        assert_eq!(read, *sent.event);
        assert_eq!(marks.late, index == 2);
    }
    assert_eq!(got.len(), 3);
}

/// The HTTP binding of CloudEvents: attributes percent-encoded, no content type among them, and the
/// payload's bytes as the body.
#[tokio::test]
async fn binary_mode_is_the_binding() {
    let server = answering(|| status(200)).await;
    let broker = broker(&server.url("/"));
    let mut sent = outgoing_of(event());
    sent.format = Format::Binary;
    sent.marks = Marks { late: true, replay: false };
    assert_eq!(publish(&broker, sent.clone()).await, Outcome::Acked);
    let got = server.got().remove(0);
    assert_eq!(got.body, sent.event.payload.as_bytes());
    for (name, value) in [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-type", "order.placed"),
        ("ce-source", "/shop"),
        ("ce-subject", "42"),
        ("ce-tenant", "%C3%9Cn%C3%AF%20%22quoted%22%20100%25"),
        ("ce-traceparent", "00-ab-cd-01"),
        ("ce-postriderlate", "true"),
        ("postrider-late", "true"),
    ] {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    assert_eq!(got.header("ce-id"), got.header("webhook-id"));
    for absent in ["ce-datacontenttype", "ce-data", "ce-postriderreplay", "ce-x-odd.name"] {
        assert!(got.headers.get(absent).is_none(), "{absent}");
    }
    let received = Received::verify(&got.headers, got.body, &verifying(), TOLERANCE).unwrap();
    assert_eq!(received.event().unwrap(), (Event::clone(&sent.event), sent.marks));
}

/// F21, F22: opaque, empty, and erased payloads, and hostile text, arrive or are refused; nothing
/// is smuggled into a header.
#[tokio::test]
async fn odd_events_are_sent_whole_or_refused() {
    let server = answering(|| status(200)).await;
    let broker = broker(&server.url("/"));
    for format in [Format::Structured, Format::Binary] {
        for payload in [
            Payload::bytes((0..=255).collect::<Vec<u8>>()),
            Payload::bytes(Vec::new()),
            Payload::Erased,
            Payload::json("\"\u{7f}\\u0000\"").unwrap(),
        ] {
            let mut odd = event();
            odd.tenant = Some("a\r\nwebhook-id: forged\r\n\r\n\u{0}".into());
            odd.payload = payload;
            let sent = postrider_core::Outgoing { format, ..outgoing_of(odd) };
            assert_eq!(publish(&broker, sent.clone()).await, Outcome::Acked);
            let got = server.got().pop().unwrap();
            let received = Received::verify(&got.headers, got.body, &verifying(), TOLERANCE);
            assert_eq!(received.unwrap().event().unwrap().0, *sent.event);
        }
    }
    let before = server.got().len();
    let mut odd = event();
    odd.content_type = postrider_core::Text::from("text/plain\r\nx: y");
    let sent = postrider_core::Outgoing { format: Format::Binary, ..outgoing_of(odd) };
    assert_eq!(rejected(publish(&broker, sent).await).kind, ErrorKind::Invalid);
    let mut torn = event();
    torn.payload = Payload::Json(b"{".to_vec().into());
    assert_eq!(rejected(publish(&broker, outgoing_of(torn)).await).kind, ErrorKind::Invalid);
    assert_eq!(server.got().len(), before, "what is refused was not sent");
}

/// F20: one byte over the limit is refused before it is sent; at the limit it is sent.
#[tokio::test]
async fn what_is_too_large_is_not_sent() {
    let server = answering(|| status(200)).await;
    let settings = WebhookSettings { request_bytes_max: 10, ..settings() };
    let settings = settings.endpoint("partner", Endpoint::new(server.url("/")));
    let broker = WebhookBroker::new(&settings).unwrap();
    let sized = |length: usize| {
        let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
        event.payload = Payload::bytes(vec![b'x'; length]);
        postrider_core::Outgoing { format: Format::Binary, ..outgoing_of(event) }
    };
    assert_eq!(publish(&broker, sized(10)).await, Outcome::Acked);
    let fault = rejected(publish(&broker, sized(11)).await);
    assert_eq!(fault.kind, ErrorKind::TooLarge);
    assert!(fault.detail.contains("11 bytes, at most 10"), "{fault}");
    assert_eq!(server.got().len(), 1);
}

/// A large event is sent whole, past every buffer.
#[tokio::test]
async fn a_megabyte_is_sent_whole() {
    let server = answering(|| status(200)).await;
    let mut large = event();
    large.payload = Payload::bytes((0..1024 * 1024).map(|n| n as u8).collect::<Vec<_>>());
    let sent = outgoing_of(large);
    assert_eq!(publish(&broker(&server.url("/")), sent.clone()).await, Outcome::Acked);
    let got = server.got().remove(0);
    let received = Received::verify(&got.headers, got.body, &verifying(), TOLERANCE).unwrap();
    assert_eq!(received.event().unwrap().0, *sent.event);
}

/// Headers of an endpoint are its own.
#[tokio::test]
async fn an_endpoints_headers_are_sent_to_it_alone() {
    let server = answering(|| status(200)).await;
    let with = Endpoint::new(server.url("/a")).header("Authorization", "Bearer hush");
    let settings = settings().endpoint("a", with).endpoint("b", Endpoint::new(server.url("/b")));
    let broker = WebhookBroker::new(&settings).unwrap();
    for topic in ["a", "b"] {
        let sent = postrider_core::Outgoing { topic: Arc::from(topic), ..outgoing(1) };
        assert_eq!(publish(&broker, sent).await, Outcome::Acked);
    }
    let authorization: Vec<_> =
        server.got().iter().map(|got| got.header("authorization").map(str::to_owned)).collect();
    assert_eq!(authorization, [Some("Bearer hush".to_owned()), None]);
    assert!(server.got()[1].headers.get("webhook-signature").is_none(), "no key, no signature");
    assert_eq!(server.got()[1].version, http::Version::HTTP_11);
}
