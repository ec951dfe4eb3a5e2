//! Every attribute is found again in the event.

use std::time::{Duration, SystemTime};

use postrider::{ErrorKind, Event, EventLimits, NewEvent, Timestamp, TypedEvent};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Event)]
#[event(type = "order.placed", version = 2, aggregate = "sales_order")]
struct Full {
    #[event(id)]
    order_id: u64,
    #[event(tenant)]
    shop: Option<String>,
    #[event(key, header = "x-customer")]
    customer: String,
    total_cents: i64,
    #[event(occurred_at)]
    at: Timestamp,
    #[event(header = "correlationid")]
    request: String,
    #[event(header = "causationid")]
    cause: Option<u32>,
}

fn full() -> Full {
    Full {
        order_id: 42,
        shop: Some("acme".to_owned()),
        customer: "ada".to_owned(),
        total_cents: 1250,
        at: Timestamp::from_micros(1_000_000),
        request: "r-17".to_owned(),
        cause: None,
    }
}

fn recorded(event: &impl TypedEvent) -> Event {
    let event: NewEvent = event.to_event().unwrap();
    EventLimits::default().check(event.event()).unwrap();
    event.event().clone()
}

/// R016: type and version are the struct's. R064: its key is what the struct says.
#[test]
fn every_attribute_reaches_the_event() {
    let event = recorded(&full());
    assert_eq!((Full::TYPE, Full::VERSION, Full::AGGREGATE), ("order.placed", 2, "sales_order"));
    assert_eq!((&*event.event_type, event.event_version), (Full::TYPE, Full::VERSION));
    assert_eq!((&*event.aggregate_type, &*event.aggregate_id), ("sales_order", "42"));
    assert_eq!(event.tenant.as_deref(), Some("acme"));
    assert_eq!(event.key(), "ada");
    assert_eq!(event.occurred_at, Timestamp::from_micros(1_000_000));
    assert!(event.created_at > event.occurred_at);
    let headers: Vec<(&str, &str)> = event.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(headers, [("correlationid", "r-17"), ("x-customer", "ada")]);
    let payload: serde_json::Value = serde_json::from_slice(event.payload.as_bytes()).unwrap();
    assert_eq!(payload["total_cents"], 1250);
    assert_eq!(Full::from_event(&event).unwrap(), full());
}

#[test]
fn what_is_none_is_left_out() {
    let event = recorded(&Full { shop: None, cause: Some(7), ..full() });
    assert_eq!(event.tenant, None);
    assert_eq!(event.headers["causationid"], "7");
}

#[derive(Serialize, Event)]
#[event(type = "pinged")]
struct Least<'a>(#[event(id)] &'a str);

/// R016: there is a version also where none was written. R064: the key is the aggregate.
#[test]
fn what_is_not_said_has_a_default() {
    let before = Timestamp::now();
    let event = recorded(&Least("7"));
    assert_eq!((&*event.event_type, event.event_version), ("pinged", 1));
    assert_eq!(event.key(), "pinged/7");
    assert_eq!(event.key, None);
    assert_eq!((event.tenant.is_none(), event.headers.is_empty()), (true, true));
    assert!(event.occurred_at >= before);
}

#[test]
fn the_aggregate_is_the_first_part_of_the_type() {
    #[derive(Serialize, Event)]
    #[event(type = "shop.order.placed")]
    struct Placed {
        #[event(id)]
        r#type: u8,
    }
    assert_eq!(recorded(&Placed { r#type: 3 }).key(), "shop/3");
}

#[test]
fn the_time_may_be_the_systems_and_may_be_missing() {
    #[derive(Serialize, Event)]
    #[event(type = "t")]
    struct Timed {
        #[event(id)]
        id: u8,
        #[event(occurred_at)]
        at: Option<SystemTime>,
    }
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let event = recorded(&Timed { id: 1, at: Some(at) });
    assert_eq!(event.occurred_at, Timestamp::from_micros(1_000_000));
    let before = Timestamp::now();
    assert!(recorded(&Timed { id: 1, at: None }).occurred_at >= before);
}

/// What only the value shows is left to the limits, which `enqueue` applies.
#[test]
fn an_empty_id_is_refused_later() {
    let event = Least("").to_event().unwrap();
    let error = EventLimits::default().check(event.event()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// R126: what the struct does not know is refused, with both sides named.
#[test]
fn another_version_is_not_read() {
    #[derive(Serialize, Event)]
    #[event(type = "order.placed", version = 3)]
    struct Newer {
        #[event(id)]
        order_id: u64,
    }
    let error = Full::from_event(&recorded(&Newer { order_id: 42 })).unwrap_err().to_string();
    assert!(error.contains("version 3") && error.contains("version 2"), "{error}");
}
