//! What is refused, and that the quick look agrees with the close one.

use super::*;
use crate::{DestinationId, EventId, Match, NewEvent, Payload};
use proptest::prelude::*;

fn destination(name: &str, routes: Vec<Route>) -> Destination {
    Destination::new(DestinationId::new(name).unwrap(), "queue", routes)
}

fn route(topic: &str) -> Route {
    Route::all(topic.parse().unwrap())
}

fn order(bytes: usize) -> NewEvent {
    NewEvent::new("order", "42", "order.placed").bytes(vec![b'x'; bytes], "text/plain")
}

/// R123: what a destination cannot carry is refused where it is enqueued, with the destination, the size, and the
/// limit; and only by a destination that takes it.
#[test]
fn what_a_destination_cannot_carry_is_refused() {
    let mut small = destination("small", vec![route("x").only(Match::event_type("order.*"))]);
    small.limits.payload_bytes_max = 100;
    let mut dropping = destination("dropping", vec![route("x").dropping()]);
    dropping.limits.payload_bytes_max = 1;
    let preflight = Preflight::of(vec![small, dropping]);
    assert!(preflight.check(order(100).event()).is_ok());
    let refused = preflight.check(order(101).event()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    let said = format!("{refused:?}");
    for word in ["small", "101", "100"] {
        assert!(said.contains(word), "{said}");
    }
    let other = NewEvent::new("user", "1", "user.left").bytes(vec![0; 101], "a/b");
    assert!(preflight.check(other.event()).is_ok(), "another route's limit is not its");
    let mut few = destination("few", vec![route("x")]);
    few.limits.headers_max = 1;
    let event = order(1).header("a", "1").header("b", "2");
    assert!(Preflight::of(vec![few]).check(event.event()).is_err());
}

/// The same bytes weigh more in one format than in another.
#[test]
fn a_message_is_weighed_as_it_is_written() {
    let carried_by = |format: Format, max: u64| {
        let mut only = destination("only", vec![route("x").format(format)]);
        only.limits.message_bytes_max = Some(max);
        Preflight::of(vec![only]).check(order(90_000).event()).is_ok()
    };
    // Opaque bytes are base64 in a document.
    assert!(carried_by(Format::Structured, 121_000));
    assert!(!carried_by(Format::Structured, 119_000));
    for format in [Format::Binary, Format::Plain, Format::Debezium] {
        assert!(carried_by(format, 91_000), "{format}");
        assert!(!carried_by(format, 90_100), "{format}");
    }
}

/// Where topics are subjects, headers are percent-encoded, and three bytes of a text become nine.
#[test]
fn headers_are_weighed_as_they_are_encoded() {
    let event = order(1_000).header("note", "€".repeat(1_000));
    for format in [Format::Binary, Format::Plain, Format::Debezium] {
        let carried = |rule: TopicRule, max: u64| {
            let mut only = destination("only", vec![route("x").format(format)]);
            only.limits.message_bytes_max = Some(max);
            only.topics = rule;
            Preflight::of(vec![only]).check(event.event()).is_ok()
        };
        assert!(carried(TopicRule::Name, 5_000), "{format}");
        assert!(!carried(TopicRule::Subject, 9_900), "{format}");
        assert!(carried(TopicRule::Subject, 11_000), "{format}");
    }
}

/// F22: a topic that is made of the event's fields may be none.
#[test]
fn a_topic_that_cannot_be_is_refused() {
    let with = |rule: TopicRule| {
        let mut only = destination("only", vec![route("shop.{aggregate_type}")]);
        only.topics = rule;
        Preflight::of(vec![only])
    };
    for aggregate_type in ["an order", "ü", ".", "a/b", "*", "x.", &"x".repeat(245)] {
        let event = NewEvent::new(aggregate_type, "42", "order.placed");
        let by_name = with(TopicRule::Name).check(event.event());
        let by_subject = with(TopicRule::Subject).check(event.event());
        assert!(by_name.is_err() || by_subject.is_err(), "{aggregate_type}");
        assert!(with(TopicRule::Any).check(event.event()).is_ok());
    }
    assert!(with(TopicRule::Name).check(order(1).event()).is_ok());
    // The store's own source is not known yet.
    let mut by_source = destination("only", vec![route("shop.{source}")]);
    by_source.topics = TopicRule::Subject;
    assert!(Preflight::of(vec![by_source]).check(order(1).event()).is_ok());
}

/// Definitions are read as stores have them; what cannot be read judges nothing.
#[test]
fn definitions_are_read() {
    let mut small = destination("small", vec![route("x")]);
    small.limits.payload_bytes_max = 1;
    let text = small.to_definition().unwrap();
    let unrouted = Destination::unrouted().to_definition().unwrap();
    let text = format!("{unrouted}\n{text}\n{{\"of\":\"the future\"}}\n");
    assert!(Preflight::read(&text).check(order(2).event()).is_err());
    assert!(Preflight::read("").check(order(2).event()).is_ok());
}

/// What was read is believed for a minute, and no longer.
#[test]
fn what_is_known_grows_old() {
    let (known, begun) = (Known::default(), Instant::now());
    assert!(known.is_stale(begun));
    assert!(known.check(order(2).event()).is_ok(), "nothing is known");
    let mut small = destination("small", vec![route("x")]);
    small.limits.payload_bytes_max = 1;
    known.learn(begun, Preflight::of(vec![small]));
    assert!(known.check(order(2).event()).is_err());
    assert!(!known.is_stale(begun + GOOD_FOR - Duration::from_millis(1)));
    assert!(known.is_stale(begun + GOOD_FOR));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The quick look never passes what the close look would refuse.
    #[test]
    fn the_quick_look_is_never_too_kind(
        texts in prop::array::uniform5(".{1,60}"),
        headers in prop::collection::btree_map("[a-z0-9._-]{1,24}", ".{0,80}", 0..6),
        payload in prop::collection::vec(any::<u8>(), 0..3_000),
        json: bool,
        version in 1u32..,
        added: bool,
        format in prop::sample::select(
            &[Format::Structured, Format::Binary, Format::Plain, Format::Debezium][..]),
        rule in prop::sample::select(&[TopicRule::Any, TopicRule::Name, TopicRule::Subject][..]),
        max in 0u64..20_000,
    ) {
        let [aggregate_type, aggregate_id, event_type, key, tenant] = texts;
        let mut event =
            Event::new(EventId::from_u128(7), &aggregate_type, &aggregate_id, &event_type);
        event.key = Some(key.into());
        event.tenant = Some(tenant.into());
        event.event_version = version;
        event.headers = headers;
        event.payload = match json {
            true => Payload::json(serde_json::to_string(&payload).unwrap()).unwrap(),
            false => Payload::bytes(payload),
        };
        let mut route = route("{tenant}.{aggregate_type}.{event_type}").format(format);
        if added && format.has_open_headers() {
            route = route.header("x", "{aggregate_id}{event_type}{tenant}".parse().unwrap());
        }
        let mut only = destination("only", vec![route.clone()]);
        only.limits.message_bytes_max = Some(max);
        only.topics = rule;
        let preflight = Preflight::of(vec![only.clone()]);
        let refused = message_bytes(&event, &route, rule).unwrap() > max
            || rule.unusable(&route.topic.render(&event)).is_some();
        prop_assert_eq!(preflight.check(&event).is_err(), refused);
    }
}
