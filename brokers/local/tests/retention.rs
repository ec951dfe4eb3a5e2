//! Retention: only what every reader has settled goes, and never a dead letter.

use std::time::Duration;

use postrider_core::{ErrorKind, Fault, Subscription};
use postrider_local::PurgeOptions;

use crate::support::*;

fn now() -> PurgeOptions {
    PurgeOptions { older_than: Duration::ZERO, ..PurgeOptions::default() }
}

#[tokio::test]
async fn only_what_all_groups_settled_is_purged() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    fixture.publish("b", 2..=2).await;
    fixture.publish("c", 3..=4).await;
    // waits: the age of a message is real time
    tokio::time::sleep(Duration::from_millis(5)).await;
    let purge = |options| fixture.broker.purge(options);
    assert_eq!(purge(now()).await.unwrap(), 0, "nobody has read the topic yet");

    let fast = fixture.subscribe(Duration::from_secs(30)).await;
    let slow = fixture.broker.subscribe("slow", "*", Default::default()).await.unwrap();
    let got = receive(&fast, 10).await;
    for delivery in &got {
        fast.ack(delivery).await.unwrap();
    }
    assert_eq!(purge(now()).await.unwrap(), 0, "the other group has read nothing");

    let got = receive(&slow, 10).await;
    assert_eq!(numbers(&got), [1, 2, 3]);
    let fault = Fault::new(ErrorKind::Rejected, "no");
    slow.reject(&got[0], &fault).await.unwrap();
    slow.ack(&got[1]).await.unwrap();
    assert_eq!(purge(PurgeOptions::default()).await.unwrap(), 0, "nothing is a week old");
    assert_eq!(purge(now()).await.unwrap(), 1);
    assert_eq!(stored(&fixture.broker).await, [1, 3, 4], "dead, unsettled, waiting");
    fixture.broker.redrive("slow", got[0].receipt.message).await.unwrap();
    assert_eq!(numbers(&receive(&slow, 10).await), [1]);
}

#[tokio::test]
async fn a_purge_is_bounded_and_numbers_are_not_used_again() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=5).await;
    // waits: the age of a message is real time
    tokio::time::sleep(Duration::from_millis(5)).await;
    let options = PurgeOptions { rows_max: 3, unread: true, ..now() };
    assert_eq!(fixture.broker.purge(options).await.unwrap(), 3);
    assert_eq!(fixture.broker.purge(options).await.unwrap(), 2);
    fixture.publish("a", 6..=6).await;
    let left = fixture.broker.messages("orders").await.unwrap();
    assert_eq!((left.len(), left[0].offset), (1, 6));
    let subscription = fixture.subscribe(Duration::from_secs(30)).await;
    assert_eq!(numbers(&receive(&subscription, 10).await), [6]);
}
