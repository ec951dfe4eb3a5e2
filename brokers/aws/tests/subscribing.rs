//! Consuming a queue: what comes, whose it is, and what becomes of what cannot be handled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use postrider_aws::{SqsBroker, SqsSubscription, SubscriptionSettings};
use postrider_core::inbox::{DELIVERIES_MAX, usual_deliveries};
use postrider_core::{Broker, Delivery, ErrorKind, Event, Fault, Format, Outcome, Subscription};
use postrider_testkit::carry::event;
use serde_json::json;

use crate::cloud::{Cloud, events};
use crate::publishing::outgoing;
use crate::stub::{Stub, failure};

/// A queue, one for dead letters, and a subscription.
async fn subscribed(cloud: &Cloud, visibility: u64) -> (String, SqsSubscription) {
    let queue = cloud.queue("orders").await;
    cloud.queue("dead").await;
    let mut settings = SubscriptionSettings::new(&cloud.name("orders"));
    settings.visibility = Duration::from_secs(visibility);
    settings.dead_letters = Some(cloud.name("dead"));
    (queue, SqsSubscription::open(cloud.settings(), settings).await.unwrap())
}

async fn publish(cloud: &Cloud, queue: &str, events: &[Arc<Event>]) {
    let broker = SqsBroker::new(cloud.settings()).unwrap();
    let batch: Vec<_> = events.iter().map(|it| outgoing(queue, it, Format::Plain)).collect();
    assert_eq!(broker.publish(&batch).await.unwrap(), vec![Outcome::Acked; events.len()]);
}

async fn receive(subscription: &SqsSubscription, count: usize) -> Vec<Delivery> {
    let mut came = Vec::new();
    while came.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(20), subscription.receive(10)).await;
        came.extend(next.unwrap_or_else(|_| panic!("{} of {count}", came.len())).unwrap());
    }
    came
}

/// R080: many acknowledgements at once share calls, and each is confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledgements_share_calls() {
    let Some(cloud) = Cloud::find().await else { return };
    let (queue, subscription) = subscribed(&cloud, 60).await;
    let sent: Vec<_> = (0..50).map(|n| event(&n.to_string(), n, 10)).collect();
    publish(&cloud, &queue, &sent).await;
    let came = receive(&subscription, 50).await;
    let ids: BTreeSet<_> = came.iter().map(|it| it.event.as_ref().unwrap().id).collect();
    assert_eq!(ids.len(), 50);
    let done = came.iter().map(|delivery| subscription.ack(delivery));
    for done in futures_util::future::join_all(done).await {
        done.unwrap();
    }
    assert_eq!(cloud.held(&queue).await.len(), 0);
    let again = subscription.ack(&came[0]).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Fenced);
}

/// R114: a receipt whose visibility ended is refused, and so is one that the queue itself does not know any more.
#[tokio::test]
async fn a_receipt_that_ended_is_fenced() {
    let Some(cloud) = Cloud::find().await else { return };
    let (queue, subscription) = subscribed(&cloud, 1).await;
    publish(&cloud, &queue, &[event("1", 1, 10)]).await;
    let came = receive(&subscription, 1).await.remove(0);
    subscription.extend(&came, Duration::from_secs(60)).await.unwrap();
    // Somebody made the queue anew behind our back: the handle means nothing.
    cloud.sqs().await.purge_queue().queue_url(&queue).send().await.unwrap();
    let refused = subscription.extend(&came, Duration::from_secs(60)).await;
    if let Err(error) = refused {
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    publish(&cloud, &queue, &[event("2", 1, 10)]).await;
    let came = receive(&subscription, 1).await.remove(0);
    // waits: its visibility of a second ends
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let fault = Fault::new(ErrorKind::Rejected, "late");
    for refused in [
        subscription.ack(&came).await,
        subscription.nack(&came, Duration::ZERO, true).await,
        subscription.extend(&came, Duration::from_secs(9)).await,
        subscription.reject(&came, &fault).await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Fenced);
    }
    assert_eq!(cloud.held(&queue).await.len(), 1, "nothing was settled");
}

/// F19: a message that the queue has given out more often than is usual may have been begun by a process that is gone.
#[tokio::test]
async fn what_came_often_may_have_been_begun_before() {
    let Some(cloud) = Cloud::find().await else { return };
    let (queue, subscription) = subscribed(&cloud, 60).await;
    publish(&cloud, &queue, &[event("1", 1, 10)]).await;
    let mut begun_before = Vec::new();
    for _ in 0..=usual_deliveries(DELIVERIES_MAX) {
        let came = receive(&subscription, 1).await.remove(0);
        begun_before.push(came.begun_before);
        subscription.nack(&came, Duration::ZERO, false).await.unwrap();
    }
    assert_eq!(begun_before.pop(), Some(true));
    assert!(!begun_before.contains(&true), "{begun_before:?}");
}

/// F22, R093, R095: what is no event is a delivery with a fault; refused, it is kept as it came, with the reason, and
/// its neighbours go on.
#[tokio::test]
async fn what_is_no_event_is_kept_as_it_came() {
    let Some(cloud) = Cloud::find().await else { return };
    let (queue, subscription) = subscribed(&cloud, 60).await;
    let client = cloud.sqs().await;
    let attribute = |text: &str| {
        MessageAttributeValue::builder().data_type("String").string_value(text).build().unwrap()
    };
    let mut message = client.send_message().queue_url(&queue).message_body("not an event");
    for n in 0..10 {
        message = message.message_attributes(format!("a{n}"), attribute("x"));
    }
    message.send().await.unwrap();
    let body = "{\"hello\": \"world\"}";
    client.send_message().queue_url(&queue).message_body(body).send().await.unwrap();
    let good = event("1", 1, 10);
    publish(&cloud, &queue, std::slice::from_ref(&good)).await;
    for delivery in receive(&subscription, 3).await {
        match &delivery.event {
            Ok(read) => {
                assert_eq!(read.id, good.id);
                subscription.ack(&delivery).await.unwrap();
            }
            Err(fault) => subscription.reject(&delivery, fault).await.unwrap(),
        }
    }
    assert_eq!(cloud.held(&queue).await.len(), 0);
    let dead = cloud.held(&cloud.address_of(&cloud.name("dead")).await).await;
    let full = dead.iter().find(|it| it.body == "not an event").unwrap();
    assert_eq!(full.attributes.len(), 10, "there was no room for the reason");
    let other = dead.iter().find(|it| it.body == body).unwrap();
    assert!(other.attributes["postrider-dead-reason"].contains("Invalid"), "{other:?}");
}

/// INV-1: a dead letter that cannot be kept leaves the message where it was.
#[tokio::test]
async fn a_letter_that_is_not_kept_is_not_let_go() {
    let Some(cloud) = Cloud::find().await else { return };
    let (queue, subscription) = subscribed(&cloud, 60).await;
    let dead = cloud.address_of(&cloud.name("dead")).await;
    cloud.sqs().await.delete_queue().queue_url(dead).send().await.unwrap();
    publish(&cloud, &queue, &[event("1", 1, 10)]).await;
    let came = receive(&subscription, 1).await.remove(0);
    let fault = Fault::new(ErrorKind::Rejected, "unknown version");
    let refused = subscription.reject(&came, &fault).await.unwrap_err();
    assert!(refused.to_string().contains("the message comes again"), "{refused}");
    assert_eq!(cloud.held(&queue).await.len(), 1);
    subscription.ack(&came).await.unwrap();
}

/// R093: a message near the limit has no room for the reason: it is kept without it, and not given out for ever.
#[tokio::test]
async fn a_letter_without_room_for_the_reason_is_kept() {
    let message = json!({"Messages": [{"MessageId": "m", "ReceiptHandle": "h", "Body": "x"}]});
    let deleted = json!({"Successful": [{"Id": "0"}], "Failed": []});
    let stub = Stub::start(move |asked| {
        match asked.action.rsplit('.').next().unwrap_or_default() {
            "GetQueueAttributes" => Some((200, "{}".to_owned())),
            "ReceiveMessage" => Some((200, message.to_string())),
            "DeleteMessageBatch" => Some((200, deleted.to_string())),
            _ if asked.text.contains("postrider-dead") => failure(
                400,
                "com.amazonaws.sqs#InvalidParameterValue",
                "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
            ),
            _ => Some((200, json!({"MessageId": "copy", "MD5OfMessageBody": "9dd4e461268c8034f5c8564e155c67a6"}).to_string())),
        }
    })
    .await;
    let mut settings = SubscriptionSettings::new("http://x/1/orders");
    settings.dead_letters = Some("http://x/1/dead".to_owned());
    let subscription = SqsSubscription::open(stub.settings(), settings).await.unwrap();
    let came = receive(&subscription, 1).await.remove(0);
    subscription.reject(&came, &Fault::new(ErrorKind::Rejected, "no")).await.unwrap();
    let asked = stub.asked();
    let sent = asked.iter().filter(|asked| asked.action.ends_with(".SendMessage"));
    assert_eq!(sent.count(), 2, "with the reason, and without");
}

/// R093: without a word about dead letters, those of the queue's own redrive policy are taken; without one either,
/// nothing is consumed.
#[tokio::test]
async fn dead_letters_go_where_the_queue_says() {
    let Some(cloud) = Cloud::find().await else { return };
    let dead = cloud.queue("dead.fifo").await;
    let policy = cloud.redrive_policy("dead.fifo", 100);
    let queue = cloud.queue_of("orders.fifo", &[(QueueAttributeName::RedrivePolicy, policy)]).await;
    let settings = SubscriptionSettings::new(&cloud.name("orders.fifo"));
    let subscription = SqsSubscription::open(cloud.settings(), settings).await.unwrap();
    let sent = event("1", 1, 10);
    publish(&cloud, &queue, std::slice::from_ref(&sent)).await;
    let came = receive(&subscription, 1).await.remove(0);
    subscription.reject(&came, &Fault::new(ErrorKind::Rejected, "no")).await.unwrap();
    let held = cloud.held(&dead).await;
    assert_eq!(held[0].system["MessageGroupId"], "order/1");
    let id = held[0].attributes["postrider-id"].clone();
    assert_eq!(id, sent.id.to_string());
    cloud.queue("plain").await;
    let settings = SubscriptionSettings::new(&cloud.name("plain"));
    let refused = SqsSubscription::open(cloud.settings(), settings).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("dead_letters"), "{refused}");
}

/// R126: a queue that is not there, or is not ours to look at, is said with what is missing.
#[tokio::test]
async fn what_cannot_be_consumed_is_said() {
    let stub = Stub::start(|asked| match asked.action.ends_with("GetQueueUrl") {
        true => Some((200, json!({"QueueUrl": "http://x/1/orders"}).to_string())),
        false => failure(400, "com.amazonaws.sqs#AccessDeniedException", "not you"),
    })
    .await;
    let mut settings = SubscriptionSettings::new("orders");
    settings.dead_letters = Some("dead".to_owned());
    let denied = SqsSubscription::open(stub.settings(), settings.clone()).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Unauthorized);
    assert!(denied.to_string().contains("sqs:GetQueueAttributes"), "{denied}");
    let stub = Stub::start(|_| failure(400, "com.amazonaws.sqs#QueueDoesNotExist", "no")).await;
    let missing = SqsSubscription::open(stub.settings(), settings.clone()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Unroutable);
    settings.dead_letters = Some("orders".to_owned());
    let same = SqsSubscription::open(stub.settings(), settings.clone()).await.unwrap_err();
    assert_eq!(same.kind(), ErrorKind::Config);
    settings.queue = "no queue".to_owned();
    let none = SqsSubscription::open(stub.settings(), settings).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Config);
}

/// R114: a queue that refuses a handle is heard, for acknowledgements as for everything else.
#[tokio::test]
async fn a_handle_that_the_queue_refuses_is_fenced() {
    let message = json!({"Messages": [{"MessageId": "m", "ReceiptHandle": "h", "Body": "x",
        "Attributes": {"ApproximateReceiveCount": "1"}}]});
    let failed = json!({"Successful": [], "Failed": [{"Id": "0", "SenderFault": true,
        "Code": "ReceiptHandleIsInvalid", "Message": "The input receipt handle is invalid."}]});
    let stub = Stub::start(move |asked| {
        let action = asked.action.rsplit('.').next().unwrap_or_default();
        match action {
            "GetQueueAttributes" => Some((200, "{}".to_owned())),
            "ReceiveMessage" => Some((200, message.to_string())),
            "DeleteMessageBatch" => Some((200, failed.to_string())),
            _ => failure(400, "com.amazonaws.sqs#MessageNotInflight", "no"),
        }
    })
    .await;
    let mut settings = SubscriptionSettings::new("http://x/1/orders");
    settings.dead_letters = Some("http://x/1/dead".to_owned());
    let subscription = SqsSubscription::open(stub.settings(), settings).await.unwrap();
    let came = receive(&subscription, 1).await.remove(0);
    assert!(came.event.is_err(), "it is no event, and comes all the same");
    for refused in [
        subscription.ack(&came).await,
        subscription.extend(&came, Duration::from_secs(9)).await,
        subscription.nack(&came, Duration::from_secs(9), true).await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Fenced);
    }
}

/// R062: what a queue of the kind FIFO gives out is one message of a group at a time.
#[tokio::test]
async fn one_message_of_a_group_is_out_at_a_time() {
    let Some(cloud) = Cloud::find().await else { return };
    let queue = cloud.queue("orders.fifo").await;
    cloud.queue("dead").await;
    let mut settings = SubscriptionSettings::new(&cloud.name("orders.fifo"));
    settings.dead_letters = Some(cloud.name("dead"));
    let subscription = SqsSubscription::open(cloud.settings(), settings).await.unwrap();
    assert!(subscription.capabilities().key_order);
    let keys: Vec<Vec<_>> =
        (0..3).map(|key| (0..3).map(|n| event(&format!("{key}"), n, 10)).collect()).collect();
    for n in 0..3 {
        let batch: Vec<_> = keys.iter().map(|key| Arc::clone(&key[n])).collect();
        publish(&cloud, &queue, &batch).await;
    }
    for n in 0..3 {
        let came = receive(&subscription, 3).await;
        let found: BTreeSet<_> = came.iter().map(|it| it.event.as_ref().unwrap().id).collect();
        assert_eq!(found, keys.iter().map(|key| key[n].id).collect(), "{n}");
        for delivery in &came {
            subscription.ack(delivery).await.unwrap();
        }
    }
    assert!(events(&cloud.held(&queue).await).is_empty());
}
