//! What LocalStack's queues answer, and what becomes of each event.

use std::sync::Arc;

use aws_sdk_sqs::types::QueueAttributeName;
use postrider_aws::SqsBroker;
use postrider_core::{Broker, ErrorKind, Event, Format, Outcome, Outgoing};
use postrider_testkit::carry::event;

use crate::cloud::Cloud;

pub(crate) fn outgoing(topic: &str, event: &Arc<Event>, format: Format) -> Outgoing {
    let mut sent = postrider_testkit::carry::outgoing(topic, event);
    sent.format = format;
    sent
}

async fn publish(broker: &SqsBroker, topic: &str, event: &Arc<Event>) -> Outcome {
    let batch = [outgoing(topic, event, Format::Structured)];
    broker.publish(&batch).await.unwrap().remove(0)
}

/// F22: a queue that is not there is the endpoint's trouble; as soon as it is, events go.
#[tokio::test]
async fn a_queue_that_is_not_there_is_unroutable() {
    let Some(cloud) = Cloud::find().await else { return };
    let broker = SqsBroker::new(cloud.settings()).unwrap();
    let (sent, name) = (event("1", 1, 10), cloud.name("orders"));
    let outcome = publish(&broker, &name, &sent).await;
    let Outcome::Unroutable(fault) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault.kind, ErrorKind::Unroutable);
    assert!(fault.detail.contains(&name) && fault.detail.contains("create it"), "{fault}");
    let queue = cloud.queue("orders").await;
    assert_eq!(publish(&broker, &name, &sent).await, Outcome::Acked);
    // A queue that is made anew is found again, and so is one by its address.
    cloud.sqs().await.delete_queue().queue_url(&queue).send().await.unwrap();
    assert!(matches!(publish(&broker, &name, &sent).await, Outcome::Unroutable(_)));
    cloud.queue("orders").await;
    assert_eq!(publish(&broker, &name, &sent).await, Outcome::Acked);
    assert_eq!(publish(&broker, &queue, &sent).await, Outcome::Acked);
    assert_eq!(cloud.held(&queue).await.len(), 2);
}

/// R057, F18, F20: what is too large, or no text, is refused alone.
#[tokio::test]
async fn what_a_queue_refuses_is_refused_alone() {
    let Some(cloud) = Cloud::find().await else { return };
    let small = [(QueueAttributeName::MaximumMessageSize, "2048".to_owned())];
    let queue = cloud.queue_of("orders", &small).await;
    let mut settings = cloud.settings();
    settings.message_bytes_max = Some(4_000);
    let broker = SqsBroker::new(settings).unwrap();
    let mut odd = Event::clone(&event("4", 1, 10));
    odd.payload = postrider_core::Payload::json("\"\u{fffe}\"").unwrap();
    let events = [
        event("1", 1, 10),
        event("2", 1, 2_100),
        event("3", 1, 5_000),
        Arc::new(odd),
        event("5", 1, 10),
    ];
    let batch: Vec<_> = events.iter().map(|it| outgoing(&queue, it, Format::Structured)).collect();
    let outcomes = broker.publish(&batch).await.unwrap();
    assert_eq!((&outcomes[0], &outcomes[4]), (&Outcome::Acked, &Outcome::Acked), "{outcomes:?}");
    for (at, kind) in [(1, ErrorKind::TooLarge), (2, ErrorKind::TooLarge), (3, ErrorKind::Invalid)]
    {
        let Outcome::Rejected(fault) = &outcomes[at] else { panic!("{at}: {outcomes:?}") };
        assert_eq!(fault.kind, kind, "{fault}");
    }
    assert_eq!(cloud.held(&queue).await.len(), 2);
}

/// R056, F18: the messages of a call together are not over what a call takes.
#[tokio::test]
async fn large_messages_go_in_calls_of_their_own() {
    let Some(cloud) = Cloud::find().await else { return };
    let queue = cloud.queue("orders").await;
    let broker = SqsBroker::new(cloud.settings()).unwrap();
    let events: Vec<_> = (0..6).map(|n| event(&n.to_string(), n, 300_000)).collect();
    let batch: Vec<_> = events.iter().map(|it| outgoing(&queue, it, Format::Plain)).collect();
    assert_eq!(broker.publish(&batch).await.unwrap(), vec![Outcome::Acked; 6]);
    assert_eq!(cloud.held(&queue).await.len(), 6);
}

/// R061, R068, R070: in a queue of the kind FIFO the key is the group, whatever its letters, and a copy is absorbed.
#[tokio::test]
async fn a_key_is_a_group_and_a_copy_is_absorbed() {
    let Some(cloud) = Cloud::find().await else { return };
    let queue = cloud.queue("orders.fifo").await;
    let mut settings = cloud.settings();
    settings.fifo = true;
    let broker = SqsBroker::new(settings).unwrap();
    for (key, n) in [("1", 1), ("ü \u{7f}", 2), (&*"k".repeat(200), 3)] {
        let sent = event(key, n, 10);
        for _ in 0..2 {
            assert_eq!(publish(&broker, &queue, &sent).await, Outcome::Acked);
        }
    }
    let held = cloud.held(&queue).await;
    let groups: Vec<_> = held.iter().map(|it| it.system["MessageGroupId"].as_str()).collect();
    assert_eq!(groups.len(), 3, "{held:?}");
    assert_eq!(groups[0], "order/1");
    assert!(groups[1].starts_with("sha256-") && groups[2].starts_with("sha256-"), "{groups:?}");
    // A standard queue is none where only FIFO is meant; that is the route's fault, and no event's.
    let outcome = publish(&broker, &cloud.name("orders"), &event("1", 1, 10)).await;
    assert!(matches!(outcome, Outcome::Unroutable(_)), "{outcome:?}");
}
