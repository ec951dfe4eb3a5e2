//! Dead letters that are moved back, with an inbox in front of the handler.

use std::time::Duration;

use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use postrider_aws::{Redrive, SqsBroker, SqsSubscription, SubscriptionSettings};
use postrider_core::inbox::{Claim, ClaimRequest};
use postrider_core::{
    Broker, ErrorKind, Fault, Format, HandlerName, InboxStore, Outcome, Subscription,
};
use postrider_testkit::carry::event;
use postrider_testkit::memory::{MemoryClock, MemoryStore};

use crate::cloud::Cloud;
use crate::publishing::outgoing;

const LEASE: Duration = Duration::from_secs(60);

/// Moves what is dead, and waits until that is done.
async fn redrive(cloud: &Cloud) -> u64 {
    let (dead, orders) = (cloud.name("dead"), cloud.name("orders"));
    let task = Redrive::start(cloud.settings(), &dead, &orders, None).await.unwrap();
    loop {
        match task.progress().await {
            Ok(progress) => {
                assert_eq!(progress.failure, None);
                if !progress.running {
                    return progress.moved;
                }
            }
            // The emulator lists it as soon as it is at it.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        // waits: the service moves by itself, and has no signal
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Receives once, and acts on it if the inbox has not done so; `true` if it did.
async fn consume(subscription: &SqsSubscription, inbox: Option<&MemoryStore>) -> bool {
    let came = tokio::time::timeout(Duration::from_secs(20), subscription.receive(1)).await;
    let delivery = came.unwrap().unwrap().remove(0);
    let event = delivery.event.as_ref().unwrap();
    let acted = match inbox {
        None => true,
        Some(inbox) => {
            let handler = HandlerName::new("billing").unwrap();
            let request = ClaimRequest::new(event, &handler, LEASE).unwrap();
            match inbox.claim(&request).await.unwrap() {
                Claim::Claimed(lease) => {
                    inbox.complete(&lease, b"done").await.unwrap();
                    true
                }
                _ => false,
            }
        }
    };
    // Kept once more, as by an operator who is not sure: to be redriven again.
    let fault = Fault::new(ErrorKind::Rejected, "again");
    subscription.reject(&delivery, &fault).await.unwrap();
    acted
}

/// How often the handler acts on an event that is redriven twice.
async fn effects(cloud: &Cloud, inbox: Option<&MemoryStore>) -> usize {
    cloud.queue("dead").await;
    let policy = cloud.redrive_policy("dead", 100);
    let queue = cloud.queue_of("orders", &[(QueueAttributeName::RedrivePolicy, policy)]).await;
    let mut settings = SubscriptionSettings::new(&cloud.name("orders"));
    settings.dead_letters = Some(cloud.name("dead"));
    let subscription = SqsSubscription::open(cloud.settings(), settings).await.unwrap();
    let broker = SqsBroker::new(cloud.settings()).unwrap();
    let sent = outgoing(&queue, &event("1", 1, 10), Format::Plain);
    assert_eq!(broker.publish(&[sent]).await.unwrap(), [Outcome::Acked]);
    let mut effects = usize::from(consume(&subscription, inbox).await);
    for _ in 0..2 {
        assert_eq!(redrive(cloud).await, 1);
        effects += usize::from(consume(&subscription, inbox).await);
    }
    effects
}

/// How often the handler acts on an event that a queue of the kind FIFO is given twice, the second time after the
/// five minutes for which it absorbs copies.
async fn effects_of_a_late_copy(cloud: &Cloud, inbox: Option<&MemoryStore>) -> usize {
    let dead = cloud.queue("late-dead.fifo").await;
    let queue = cloud.queue("late.fifo").await;
    let mut settings = SubscriptionSettings::new(&queue);
    settings.dead_letters = Some(dead);
    let subscription = SqsSubscription::open(cloud.settings(), settings).await.unwrap();
    let sent = event("1", 1, 10);
    let broker = SqsBroker::new(cloud.settings()).unwrap();
    let batch = [outgoing(&queue, &sent, Format::Plain)];
    for _ in 0..2 {
        assert_eq!(broker.publish(&batch).await.unwrap(), [Outcome::Acked]);
    }
    let [first] = &cloud.held(&queue).await[..] else { panic!("the second copy was not absorbed") };
    let mut effects = usize::from(consume(&subscription, inbox).await);
    // What the queue has forgotten it takes for another message: the same one, under another identity.
    let client = cloud.sqs().await;
    let mut late = client
        .send_message()
        .queue_url(&queue)
        .message_body(&first.body)
        .message_group_id("order/1")
        .message_deduplication_id("after-five-minutes");
    for (name, value) in &first.attributes {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value);
        late = late.message_attributes(name, value.build().unwrap());
    }
    late.send().await.unwrap();
    effects += usize::from(consume(&subscription, inbox).await);
    effects
}

/// R066: a queue absorbs copies for five minutes; a later one has no second effect because of the inbox. The
/// negative control: without it there are two.
#[tokio::test]
async fn a_copy_that_the_queue_forgot_has_no_second_effect() {
    let Some(cloud) = Cloud::find().await else { return };
    let inbox = MemoryStore::new(1, MemoryClock::default());
    assert_eq!(effects_of_a_late_copy(&cloud, Some(&inbox)).await, 1);
    let Some(cloud) = Cloud::find().await else { return };
    assert_eq!(effects_of_a_late_copy(&cloud, None).await, 2);
}

/// R096: dead letters that are redriven twice have one effect, because of the inbox. The negative control: without it
/// they have three.
#[tokio::test]
async fn what_is_redriven_twice_has_one_effect() {
    let Some(cloud) = Cloud::find().await else { return };
    let inbox = MemoryStore::new(1, MemoryClock::default());
    assert_eq!(effects(&cloud, Some(&inbox)).await, 1);
    let Some(cloud) = Cloud::find().await else { return };
    assert_eq!(effects(&cloud, None).await, 3);
}

#[tokio::test]
async fn a_redrive_without_a_queue_is_said() {
    let Some(cloud) = Cloud::find().await else { return };
    let missing = Redrive::start(cloud.settings(), "nowhere", "nowhere", None).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Unroutable);
    let hasty = Redrive::start(cloud.settings(), "a", "b", Some(501)).await.unwrap_err();
    assert_eq!(hasty.kind(), ErrorKind::Config);
}
