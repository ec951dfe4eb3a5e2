//! The two formats, over generated events, and what others wrote.

use super::*;
use crate::{Layout, Payload, Template};
use proptest::prelude::*;

const AROUND: Around<'_> =
    Around { topic: "outbox.event.order", key: Some("42"), time: None, source: ROUTER_SOURCE };

fn outgoing(event: Event, format: Format) -> Outgoing {
    let mut outgoing = Outgoing::new(Arc::new(event), "outbox.event.order");
    outgoing.format = format;
    outgoing
}

fn sample() -> Event {
    let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    event
}

fn read(outgoing: &Outgoing, carries: impl Fn(&str, &str) -> bool) -> Result<(Event, Marks)> {
    let headers = headers(outgoing, carries)?;
    parse(
        headers.iter().map(|header| (&*header.name, &*header.value)),
        Bytes::copy_from_slice(outgoing.event.payload.as_bytes()),
        &AROUND,
    )
}

fn names(outgoing: &Outgoing) -> Vec<String> {
    headers(outgoing, |_, _| true).unwrap().into_iter().map(|it| it.name.into_owned()).collect()
}

/// The id stands where each format has it, and nowhere else.
#[test]
fn the_two_formats_differ_in_the_id() {
    let plain = names(&outgoing(sample(), Format::Plain));
    let router = names(&outgoing(sample(), Format::Debezium));
    assert_eq!((&*plain[0], &*router[0]), ("postrider-id", "id"));
    assert_eq!(plain[1..], router[1..]);
}

#[test]
fn names_that_would_mislead_are_packed() {
    let mut event = sample();
    for name in ["id", "content-type", "ce_id", "ce-specversion", "postrider-id", "a b", ""] {
        event.headers.insert(name.into(), "x".into());
    }
    event.headers.insert("eventtype".into(), "mine".into());
    let mut sent = outgoing(event, Format::Debezium);
    let said: Template = "{event_type}".parse().unwrap();
    let headers = [("eventType".to_owned(), said)].into();
    sent.layout = Some(Arc::new(Layout { key: None, headers }));
    assert_eq!(names(&sent).iter().filter(|name| **name == "id").count(), 1);
    let (mut event, _) = read(&sent, |_, _| true).unwrap();
    // What the route added is a header at the other end.
    assert_eq!(event.headers.remove("eventType").as_deref(), Some("order.placed"));
    assert_eq!(event, *sent.event);
}

/// R086: the id comes from the message. What has none is no event.
#[test]
fn no_id_is_made_up() {
    let parse = |headers: &[(&'static str, &'static str)]| {
        parse(headers.iter().copied(), Bytes::from_static(b"{}"), &AROUND)
    };
    for headers in [
        &[][..],
        &[("id", "")],
        &[("id", "17")],
        &[("postrider-id", "x"), ("id", "0194d5e0-0000-7000-8000-000000000000")],
        &[("eventType", "order.placed")],
    ] {
        assert_eq!(parse(headers).unwrap_err().kind(), ErrorKind::Invalid, "{headers:?}");
    }
    assert!(parse(&[]).unwrap_err().to_string().contains("postrider-id"));
    assert!(parse(&[("id", "0194d5e0-0000-7000-8000-000000000000")]).is_ok());
}

/// What the router itself wrote is read, so that a consumer can change before its producer does.
#[test]
fn messages_of_the_router_are_read() {
    let id = "0194d5e0-0000-7000-8000-000000000000";
    let body = Bytes::from_static(br#"{"total": 12}"#);
    let time = Timestamp::from_micros(5_000_000);
    let around = Around { time: Some(time), ..AROUND };
    let bare = [("id", id), ("x-schema-id", "7")];
    let (event, _) = parse(bare, body.clone(), &around).unwrap();
    assert_eq!(event.id.to_string(), id);
    assert_eq!((&*event.aggregate_type, &*event.aggregate_id), ("order", "42"));
    assert_eq!((&*event.event_type, &*event.source), ("order", ROUTER_SOURCE));
    let told = Around { source: "/shop", ..around };
    let (event, _) = parse(bare, body.clone(), &told).unwrap();
    assert_eq!(&*event.source, "/shop");
    // What the router was told to place there says it itself, unless its column is null.
    for (placed, source) in [("/own", "/own"), ("", "/shop")] {
        let said = [("id", id), ("postrider-source", placed)];
        assert_eq!(&*parse(said, body.clone(), &told).unwrap().0.source, source);
    }
    let (event, _) = parse(bare, body.clone(), &around).unwrap();
    assert_eq!((event.occurred_at, &*event.content_type), (time, "application/json"));
    assert_eq!(event.payload, Payload::Json(body));
    assert_eq!(event.headers.get("x-schema-id").unwrap(), "7");
    let quoted = format!("\"{id}\"");
    let typed = [("id", &*quoted), ("eventType", "OrderCreated")];
    let elsewhere = Around { topic: "shop.customers", key: None, ..AROUND };
    let (event, _) = parse(typed, Bytes::from_static(b"\x00\x01"), &elsewhere).unwrap();
    assert_eq!((&*event.event_type, &*event.aggregate_type), ("OrderCreated", "customers"));
    assert_eq!(&*event.aggregate_id, id);
    assert_eq!(&*event.content_type, "application/octet-stream");
}

fn payloads() -> impl Strategy<Value = Payload> {
    prop_oneof![
        any::<Vec<u8>>().prop_map(Payload::bytes),
        any::<(i64, String)>()
            .prop_map(|value| Payload::json(serde_json::to_string(&value).unwrap()).unwrap()),
        Just(Payload::Bytes(Bytes::from_static(b"{}"))),
        Just(Payload::Erased),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// R013, R063: whatever an event holds, and whatever a transport can carry, it is read back equal.
    #[test]
    fn an_event_survives_both_formats(
        payload in payloads(),
        content_type in prop_oneof!["application/json", "text/plain", "application/cloudevents\\+json", "ä"],
        texts: [String; 5],
        headers in prop::collection::btree_map(
            prop_oneof!["[a-z0-9._-]{1,24}", "(id|type|content-type|ce_id|postrider-key)", any::<String>()],
            any::<String>(), 0..6),
        key: Option<String>,
        version in 1u32..,
        format in prop::sample::select(&[Format::Plain, Format::Debezium][..]),
        ascii: bool,
    ) {
        let [aggregate_type, aggregate_id, event_type, source, tenant] = texts;
        let mut event =
            Event::new(EventId::from_u128(7), &aggregate_type, &aggregate_id, &event_type);
        event.source = Arc::from(source);
        event.tenant = Some(tenant.into());
        event.event_version = version;
        event.key = key.filter(|key| *key != event.key()).map(Into::into);
        event.content_type = crate::Text::from(content_type);
        event.payload = payload;
        event.headers = headers;
        let mut sent = outgoing(event, format);
        sent.marks = Marks { late: ascii, replay: !ascii };
        let carries = |_: &str, value: &str| !ascii || value.is_ascii();
        prop_assert_eq!(read(&sent, carries).unwrap(), ((*sent.event).clone(), sent.marks));
    }

    /// F21, F22: no name, value, or body brings the reader down.
    #[test]
    fn arbitrary_input_never_panics(
        headers in prop::collection::vec(
            (prop_oneof!["postrider-[a-z-]{1,12}", "id", any::<String>()], any::<String>()), 0..8),
        body: Vec<u8>,
        topic: String,
    ) {
        let around = Around { topic: &topic, key: Some(&topic), ..AROUND };
        let texts = headers.iter().map(|(name, value)| (&**name, &**value));
        let _ = parse(texts, Bytes::from(body), &around);
    }
}
