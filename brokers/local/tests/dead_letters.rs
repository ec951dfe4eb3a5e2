//! Dead letters: how a message gets there, what its key does, and how it comes back.

use std::time::Duration;

use postrider_core::{ErrorKind, Fault, Subscription};
use postrider_local::SubscribeOptions;

use crate::support::*;

fn twice() -> SubscribeOptions {
    SubscribeOptions {
        visibility: Duration::from_millis(50),
        deliveries_max: 2,
        ..SubscribeOptions::default()
    }
}

/// R093: what is sent back too often is given up, with the reason, and its key goes on.
#[tokio::test]
async fn a_message_sent_back_too_often_is_a_dead_letter() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=2).await;
    let options = SubscribeOptions { visibility: Duration::from_secs(30), ..twice() };
    let subscription = fixture.broker.subscribe("g", "orders", options).await.unwrap();
    for count in 1..=2 {
        let got = receive(&subscription, 10).await;
        assert_eq!((numbers(&got), got[0].count), (vec![1], count));
        subscription.nack(&got[0], Duration::ZERO, true).await.unwrap();
    }
    assert_eq!(numbers(&receive(&subscription, 10).await), [2]);
    let dead = fixture.broker.dead_letters("g").await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].event.as_ref().unwrap().id.as_u128(), 1);
    assert_eq!((dead[0].count, &*dead[0].topic), (2, "orders"));
    assert!(dead[0].reason.contains("sent back"), "{}", dead[0].reason);
}

/// F18: a message that kills its consumer each time is given up too.
#[tokio::test]
async fn a_message_never_settled_is_a_dead_letter() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=2).await;
    let subscription = fixture.broker.subscribe("g", "orders", twice()).await.unwrap();
    for _ in 1..=2 {
        assert_eq!(numbers(&receive(&subscription, 10).await), [1]);
    }
    assert_eq!(numbers(&receive(&subscription, 10).await), [2]);
    let dead = fixture.broker.dead_letters("g").await.unwrap();
    assert!(dead[0].reason.contains("never settled"), "{}", dead[0].reason);
}

/// R063, R096: redrive keeps the id, marks the message late, and waits for its key's turn.
#[tokio::test]
async fn a_redriven_message_keeps_its_id() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=3).await;
    let subscription = fixture.subscribe(Duration::from_secs(30)).await;
    let first = receive(&subscription, 10).await;
    let fault = Fault::new(ErrorKind::Rejected, "no such customer");
    subscription.reject(&first[0], &fault).await.unwrap();
    let dead = fixture.broker.dead_letters("g").await.unwrap();
    assert_eq!(dead[0].reason, "Rejected: no such customer");

    let second = receive(&subscription, 10).await;
    assert_eq!(numbers(&second), [2]);
    fixture.broker.redrive("g", dead[0].offset).await.unwrap();
    assert!(receive_now(&subscription, 10).await.is_empty(), "2 of the same key is at work");
    subscription.ack(&second[0]).await.unwrap();
    let again = receive(&subscription, 10).await;
    assert_eq!(numbers(&again), [1], "before 3, which waits");
    assert!(again[0].marks.late);
    assert_eq!(again[0].count, 1);
    assert_eq!(again[0].event, dead[0].event);
    let stale = subscription.ack(&first[0]).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Fenced, "the receipt of its former life");
    subscription.ack(&again[0]).await.unwrap();
    assert_eq!(numbers(&receive(&subscription, 10).await), [3]);
    assert!(fixture.broker.dead_letters("g").await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_dead_cannot_be_redriven() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let subscription = fixture.subscribe(Duration::from_secs(30)).await;
    let held = receive(&subscription, 1).await;
    for (group, offset) in [("g", held[0].receipt.message), ("g", 99), ("nobody", 1)] {
        let error = fixture.broker.redrive(group, offset).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    let fault = Fault::new(ErrorKind::Rejected, "no");
    subscription.reject(&held[0], &fault).await.unwrap();
    fixture.broker.discard("g", held[0].receipt.message).await.unwrap();
    assert!(fixture.broker.dead_letters("g").await.unwrap().is_empty());
    assert!(receive_now(&subscription, 1).await.is_empty());
}
