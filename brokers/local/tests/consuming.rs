//! Consuming: key order across instances, visibility, settling, waiting, and giving back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{ErrorKind, Start, Subscription};
use postrider_local::{LocalSubscription, SubscribeOptions};

use crate::support::*;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(250);

/// R071: a key's next message is not handed out, to any instance, while one before it is unsettled.
#[tokio::test]
async fn a_key_is_with_one_consumer_at_a_time() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=2).await;
    fixture.publish("b", 3..=3).await;
    let one = fixture.subscribe(LONG).await;
    let handle = fixture.other();
    let two = handle.subscribe("g", "orders", SubscribeOptions::default()).await.unwrap();
    let first = receive(&one, 1).await;
    assert_eq!(numbers(&first), [1]);
    let second = receive(&two, 10).await;
    assert_eq!(numbers(&second), [3], "2 waits behind 1");
    assert!(receive_now(&two, 10).await.is_empty());
    one.ack(&first[0]).await.unwrap();
    assert_eq!(numbers(&receive(&two, 10).await), [2]);
}

/// R068, R071: two consumers on two handles, half of the deliveries sent back: the first completions
/// of each key are in the order of publishing, and nothing is missing.
#[tokio::test]
async fn key_order_holds_over_two_consumers_that_fail() {
    const KEYS: u128 = 7;
    const EVENTS: u128 = 210;
    let fixture = Fixture::new();
    let batch: Vec<_> =
        (1..=EVENTS).map(|n| outgoing(event(n, &format!("k{}", n % KEYS)))).collect();
    publish_all(&fixture.broker, &batch).await;
    let done: Arc<Mutex<BTreeMap<u128, Vec<u128>>>> = Arc::default();
    let consume = |subscription: LocalSubscription, done: Arc<Mutex<BTreeMap<_, Vec<u128>>>>| async move {
        while let Ok(got) =
            tokio::time::timeout(Duration::from_millis(500), subscription.receive(5)).await
        {
            for delivery in got.unwrap() {
                let n = number(&delivery);
                if delivery.count == 1 && n.is_multiple_of(2) {
                    subscription.nack(&delivery, Duration::ZERO, true).await.unwrap();
                } else {
                    done.lock().unwrap().entry(n % KEYS).or_default().push(n);
                    subscription.ack(&delivery).await.unwrap();
                }
            }
        }
    };
    let one = fixture.subscribe(LONG).await;
    let handle = fixture.other();
    let two = handle.subscribe("g", "orders", SubscribeOptions::default()).await.unwrap();
    tokio::join!(consume(one, Arc::clone(&done)), consume(two, Arc::clone(&done)));
    let done = done.lock().unwrap();
    assert_eq!(done.values().map(Vec::len).sum::<usize>() as u128, EVENTS);
    for (key, numbers) in &*done {
        assert!(numbers.is_sorted(), "key {key}: {numbers:?}");
    }
}

/// A consumer that vanished: what it had comes again, counted, and its receipt is worth nothing.
#[tokio::test]
async fn what_is_not_settled_in_time_comes_again() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=2).await;
    let one = fixture.subscribe(SHORT).await;
    let two = fixture.subscribe(LONG).await;
    let lost = receive(&one, 1).await;
    let again = receive(&two, 10).await;
    assert_eq!(numbers(&again), [1], "2 still waits");
    assert_eq!((lost[0].count, again[0].count), (1, 2));
    for result in [
        one.ack(&lost[0]).await,
        one.nack(&lost[0], Duration::ZERO, true).await,
        one.extend(&lost[0], LONG).await,
        one.reject(&lost[0], &postrider_core::Fault::new(ErrorKind::Invalid, "no")).await,
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Fenced);
    }
    two.ack(&again[0]).await.unwrap();
    assert_eq!(two.ack(&again[0]).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(numbers(&receive(&two, 10).await), [2]);
}

/// Also when nobody else took it yet: the promise of invisibility is over.
#[tokio::test]
async fn a_receipt_ends_with_its_visibility() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let subscription = fixture.subscribe(Duration::from_millis(20)).await;
    let lost = receive(&subscription, 1).await;
    // waits: a visibility timeout is real time
    tokio::time::sleep(Duration::from_millis(40)).await;
    let error = subscription.ack(&lost[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn extending_keeps_a_delivery() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let one = fixture.subscribe(SHORT).await;
    let held = receive(&one, 1).await;
    one.extend(&held[0], LONG).await.unwrap();
    // waits: a visibility timeout is real time
    tokio::time::sleep(SHORT).await;
    assert!(receive_now(&one, 1).await.is_empty());
    one.ack(&held[0]).await.unwrap();
}

#[tokio::test]
async fn a_delivery_sent_back_waits_its_delay_and_counts_only_if_told() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let subscription = fixture.subscribe(LONG).await;
    let first = receive(&subscription, 1).await;
    subscription.nack(&first[0], Duration::ZERO, false).await.unwrap();
    let second = receive(&subscription, 1).await;
    assert_eq!(second[0].count, 1, "that was merely somebody else's turn");
    let sent_back = std::time::Instant::now();
    subscription.nack(&second[0], SHORT, true).await.unwrap();
    let third = receive(&subscription, 1).await;
    assert!(sent_back.elapsed() >= SHORT - Duration::from_millis(2));
    assert_eq!(third[0].count, 2);
}

/// A publish through the same handle wakes the consumer; one through another is seen by looking.
#[tokio::test]
async fn a_waiting_consumer_receives_what_is_published_then() {
    let fixture = Fixture::new();
    let subscription = Arc::new(fixture.subscribe(LONG).await);
    for (number, handle) in [(1, fixture.broker.clone()), (2, fixture.other())] {
        let waiting = tokio::spawn({
            let subscription = Arc::clone(&subscription);
            async move { receive(&subscription, 10).await }
        });
        tokio::task::yield_now().await;
        publish_all(&handle, &[outgoing(event(number, "a"))]).await;
        let got = waiting.await.unwrap();
        assert_eq!(numbers(&got), [number]);
        subscription.ack(&got[0]).await.unwrap();
    }
}

/// Dropping `receive` at any moment loses nothing, and what it took is there again at once, not
/// counted.
#[tokio::test]
async fn a_dropped_receive_gives_back_what_it_took() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let subscription = fixture.subscribe(LONG).await;
    let mut received = 0;
    for polls in [1, 2, 2, 2, 3, 3, 4, 20] {
        let mut receiving = Box::pin(subscription.receive(1));
        for _ in 0..polls {
            if let std::task::Poll::Ready(got) = poll_once(&mut receiving).await {
                received += 1;
                let got = got.unwrap();
                assert_eq!(got[0].count, 1);
                subscription.nack(&got[0], Duration::ZERO, false).await.unwrap();
                break;
            }
            // Each answer of the broker's thread needs one poll; this lets it come, unseen.
            // waits: a visibility timeout is real time
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!((1..8).contains(&received), "some were dropped, some were not");
    let got = receive(&subscription, 1).await;
    assert_eq!((number(&got[0]), got[0].count), (1, 1));
}

/// One poll of a future.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context))
    })
    .await
}

#[tokio::test]
async fn groups_are_independent_and_begin_where_they_say() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let from = |start| SubscribeOptions { start, ..SubscribeOptions::default() };
    let broker = &fixture.broker;
    let old = broker.subscribe("old", "orders", from(Start::Beginning)).await.unwrap();
    let new = broker.subscribe("new", "orders", from(Start::Now)).await.unwrap();
    fixture.publish("b", 2..=2).await;
    assert_eq!(numbers(&receive(&old, 10).await), [1, 2]);
    assert_eq!(numbers(&receive(&new, 10).await), [2]);
    let rejoined = broker.subscribe("new", "orders", from(Start::Beginning)).await.unwrap();
    assert!(receive_now(&rejoined, 10).await.is_empty(), "a group is never moved");
    let everything = Start::At(postrider_core::Timestamp::from_micros(0));
    let at = broker.subscribe("at", "orders", from(everything)).await.unwrap();
    assert_eq!(numbers(&receive(&at, 10).await), [1, 2]);
}

/// INV-5, INV-6: a hot key fills neither memory nor the group's whole attention.
#[tokio::test]
async fn other_keys_pass_a_hot_key_up_to_the_limit() {
    let fixture = Fixture::new();
    fixture.publish("hot", 1..=500).await;
    fixture.publish("b", 501..=502).await;
    let options = |unsettled_max| SubscribeOptions { unsettled_max, ..SubscribeOptions::default() };
    let broker = &fixture.broker;
    let wide = broker.subscribe("wide", "orders", options(1_000)).await.unwrap();
    assert_eq!(numbers(&receive(&wide, 1).await), [1]);
    assert_eq!(numbers(&receive(&wide, 1).await), [501]);
    let narrow = broker.subscribe("narrow", "orders", options(100)).await.unwrap();
    let first = receive(&narrow, 1).await;
    assert!(receive_now(&narrow, 1).await.is_empty(), "100 are unsettled");
    narrow.ack(&first[0]).await.unwrap();
    assert_eq!(numbers(&receive(&narrow, 1).await), [2]);
}

#[tokio::test]
async fn one_receive_has_a_limit_in_bytes() {
    let fixture = Fixture::new();
    let batch: Vec<_> = (1..=5u128).map(|n| outgoing(event(n, &n.to_string()))).collect();
    publish_all(&fixture.broker, &batch).await;
    let options = SubscribeOptions { receive_bytes_max: 1, ..SubscribeOptions::default() };
    let subscription = fixture.broker.subscribe("g", "orders", options).await.unwrap();
    for n in 1..=5 {
        assert_eq!(numbers(&receive(&subscription, 10).await), [n]);
    }
}
