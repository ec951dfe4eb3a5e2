//! Publishing: what an acknowledgement means, what is refused, and in what order.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Outcome, Payload, Subscription, TargetUrl};
use postrider_local::{LocalBroker, LocalOptions, Topics};

use crate::support::*;

/// R031: acknowledged means stored, as another handle can read.
#[tokio::test]
async fn what_is_acknowledged_is_in_the_file() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=100).await;
    let other = fixture.other();
    assert_eq!(stored(&other).await, (1..=100).collect::<Vec<_>>());
    assert_eq!(other.topics().await.unwrap(), ["orders"]);
    let messages = other.messages("orders").await.unwrap();
    assert!(messages.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    let page = other.messages_after("orders", messages[49].offset, 10).await.unwrap();
    assert_eq!(page.len(), 10);
    assert_eq!(page[0], messages[50]);
}

/// R013: what consumers get is what was published, to the byte.
#[tokio::test]
async fn the_envelope_arrives_unchanged() {
    let fixture = Fixture::new();
    let mut sent = event(7, "a");
    sent.source = Arc::from("/shop");
    sent.tenant = Some("acme".into());
    sent.headers.insert("traceparent".into(), "00-ab-cd-01".into());
    sent.payload = Payload::json("{\n  \"n\": 12345678901234567890 }").unwrap();
    let late = postrider_core::Outgoing {
        marks: postrider_core::Marks { late: true, replay: false },
        ..outgoing(sent.clone())
    };
    publish_all(&fixture.broker, &[late]).await;
    let got = receive(&fixture.subscribe(Duration::from_secs(30)).await, 1).await;
    assert_eq!(**got[0].event.as_ref().unwrap(), sent);
    assert!(got[0].marks.late);
    assert_eq!((&*got[0].topic, got[0].count), ("orders", 1));
    assert!(fixture.broker.messages("orders").await.unwrap()[0].late);
}

/// R065: without deduplication a second publish is a second message. That this broker has none is
/// declared; the inbox is what absorbs it.
#[tokio::test]
async fn a_second_publish_is_a_second_message() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    fixture.publish("a", 1..=1).await;
    assert_eq!(stored(&fixture.broker).await, [1, 1]);
    assert_eq!(fixture.broker.capabilities().deduplicates_for, None);
}

/// R071: prefix order. One refused event stops those of its key behind it, and nothing else.
#[tokio::test]
async fn a_refused_event_stops_those_of_its_key_behind_it() {
    let fixture = Fixture::new();
    let batch = [
        outgoing(event(1, "a")),
        not_encodable(2, "a"),
        outgoing(event(3, "b")),
        outgoing(event(4, "a")),
        outgoing(event(5, "b")),
    ];
    let outcomes = fixture.broker.publish(&batch).await.unwrap();
    assert!(fixture.broker.capabilities().prefix_order);
    assert_eq!(outcomes[0], Outcome::Acked);
    assert!(matches!(&outcomes[1], Outcome::Rejected(f) if f.kind == ErrorKind::Invalid));
    assert_eq!(outcomes[2..], [Outcome::Acked, Outcome::Skipped, Outcome::Acked]);
    assert_eq!(stored(&fixture.broker).await, [1, 3, 5]);
}

#[tokio::test]
async fn an_event_that_is_too_large_is_refused_alone() {
    let fixture = Fixture::new();
    let mut large = event(2, "b");
    large.payload = Payload::bytes(vec![0; 2 * 1024 * 1024]);
    let batch = [outgoing(event(1, "a")), outgoing(large), outgoing(event(3, "c"))];
    let outcomes = fixture.broker.publish(&batch).await.unwrap();
    assert!(matches!(&outcomes[1], Outcome::Rejected(f) if f.kind == ErrorKind::TooLarge));
    assert_eq!(stored(&fixture.broker).await, [1, 3]);
}

#[tokio::test]
async fn a_topic_too_many_is_unroutable() {
    let folder = tempfile::tempdir().unwrap();
    let options = LocalOptions { topics_max: 1, ..LocalOptions::default() };
    let broker = LocalBroker::open_with(folder.path().join("q.db"), options).unwrap();
    publish_all(&broker, &[outgoing(event(1, "a"))]).await;
    for topic in ["payments", ""] {
        let mut other = outgoing(event(2, "a"));
        other.topic = Arc::from(topic);
        let outcomes = broker.publish(&[other]).await.unwrap();
        assert!(matches!(outcomes[..], [Outcome::Unroutable(_)]), "{topic}: {outcomes:?}");
    }
    publish_all(&broker, &[outgoing(event(3, "a"))]).await;
}

#[tokio::test]
async fn after_close_nothing_is_published() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    fixture.broker.close().await.unwrap();
    let error = fixture.broker.publish(&[outgoing(event(2, "a"))]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(stored(&fixture.other()).await, [1]);
}

#[tokio::test]
async fn addresses_name_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("local://{}/q.db", folder.path().display());
    let broker = LocalBroker::from_url(&address.parse::<TargetUrl>().unwrap()).unwrap();
    assert!(broker.topics().await.unwrap().is_empty());
    for bad in ["local", "local://", "local://:memory:", "local://q.db?x=1", "sqlite://q.db"] {
        let error = LocalBroker::from_url(&bad.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
    }
}

/// A subscription reads what its patterns match, in the order of the whole log.
#[tokio::test]
async fn topics_are_chosen_by_pattern() {
    let fixture = Fixture::new();
    for (number, topic) in [(1, "orders.eu"), (2, "payments"), (3, "orders.us"), (4, "orders.eu")] {
        let mut one = outgoing(event(number, &number.to_string()));
        one.topic = Arc::from(topic);
        publish_all(&fixture.broker, &[one]).await;
    }
    for (group, topics, expected) in [
        ("a", Topics::all(), &[1, 2, 3, 4][..]),
        ("b", "orders.*".into(), &[1, 3, 4]),
        ("c", ["payments", "orders.us"].into(), &[2, 3]),
    ] {
        let subscription =
            fixture.broker.subscribe(group, topics, Default::default()).await.unwrap();
        assert_eq!(numbers(&receive(&subscription, 10).await), expected, "{group}");
        assert!(subscription.capabilities().key_order);
    }
}
