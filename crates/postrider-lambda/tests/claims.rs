//! A function and a relay on the same events: the lease decides whose they are.

use std::sync::Arc;
use std::time::Instant;

use postrider_core::{Broker as _, Outgoing};
use postrider_relay::{Ending, RelayHandle};

use crate::fresh::{Fresh, LONG};

/// Waits until nothing is pending.
async fn drained(fresh: &Fresh, relay: &RelayHandle) {
    let since = Instant::now();
    while fresh.pending().await > 0 {
        assert!(since.elapsed() < LONG, "it does not move: {:?}", relay.health().borrow());
        // waits: a relay says nothing when a table is empty
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// R044: a relay holds the leases, so a function that is invoked with the same events leaves them to it, and says so.
#[tokio::test]
async fn what_a_relay_holds_is_left_to_it() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let relay = fresh.relay().await;
    let mut health = relay.health();
    health.wait_for(|health| health.partitions == 2).await.unwrap();
    fresh.write("1", 3).await;
    fresh.write("2", 3).await;
    let function = fresh.function(Arc::new(fresh.broker.clone()));
    let answer = function.publish(&fresh.records().await, LONG).await.unwrap();
    assert!(answer.failures.0.is_empty(), "the relay sees to them: {answer:?}");
    assert_eq!((answer.delivered, answer.left.is_empty()), (0, false));
    drained(&fresh, &relay).await;
    relay.drain();
    assert_eq!(relay.stopped().await.ending, Some(Ending::Drained));
    assert_eq!(fresh.counts(), [1; 6]);
}

/// R044: they begin at the same moment on partitions that nobody holds: whoever takes the lease publishes, once.
#[tokio::test]
async fn of_a_function_and_a_relay_that_begin_together_one_publishes() {
    for _ in 0..2 {
        let Some(fresh) = Fresh::new(3).await else { return };
        for key in 0..6 {
            fresh.write(&key.to_string(), 2).await;
        }
        let records = fresh.records().await;
        let functions = [(), ()].map(|()| fresh.function(Arc::new(fresh.broker.clone())));
        let (relay, one, other) = tokio::join!(
            fresh.relay(),
            functions[0].publish(&records, LONG),
            functions[1].publish(&records, LONG),
        );
        one.unwrap();
        other.unwrap();
        drained(&fresh, &relay).await;
        relay.drain();
        relay.stopped().await;
        assert_eq!(fresh.counts(), [1; 12], "every event once");
    }
}

/// The negative control: a function that publishes what its records say, without a claim, as one without this library
/// does, is seen by the same count.
#[tokio::test]
async fn without_the_lease_events_are_published_twice() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let relay = fresh.relay().await;
    fresh.write("1", 2).await;
    drained(&fresh, &relay).await;
    let first = fresh.broker.published().into_iter().map(|one| one.event);
    let unclaimed: Vec<_> = first.map(|event| Outgoing::new(event, "orders")).collect();
    fresh.broker.publish(&unclaimed).await.unwrap();
    relay.drain();
    relay.stopped().await;
    assert_eq!(fresh.counts(), [2; 2]);
}

/// A function that was killed at work holds its lease until it ends: another one names what it could not publish, so that
/// it comes again, and publishes it then.
#[tokio::test]
async fn what_a_killed_function_held_comes_again() {
    let Some(fresh) = Fresh::new(1).await else { return };
    fresh.write("1", 2).await;
    let records = fresh.records().await;
    let stuck = fresh.function(Arc::new(crate::partial::Until::new(&fresh.broker, 0)));
    let killed = tokio::spawn(async move { stuck.publish(&records, LONG).await.map(drop) });
    while !fresh.control("lease#").await.iter().any(|lease| lease.contains_key("owner")) {
        // waits: a lease that is taken tells nobody
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // The relay's task ends with the handle of its shell: the whole process, as far as the store can see.
    killed.abort();
    let records = fresh.records().await;
    let next = fresh.function(Arc::new(fresh.broker.clone()));
    let mut tries = 0;
    while !next.publish(&records, LONG).await.unwrap().failures.0.is_empty() {
        tries += 1;
        assert!(tries < 10, "it takes the lease over in the end");
    }
    assert_eq!(fresh.counts(), [1; 2]);
}

/// Two functions that begin together on the same partitions do not each hold a part and wait for the other's: one goes
/// first, and both are done long before a lease could end.
#[tokio::test]
async fn two_functions_on_many_partitions_do_not_wait_for_each_other() {
    let Some(fresh) = Fresh::new(8).await else { return };
    for key in 0..24 {
        fresh.write(&key.to_string(), 1).await;
    }
    let records = fresh.records().await;
    for _ in 0..2 {
        let lease = std::time::Duration::from_secs(15);
        let functions = [(), ()].map(|()| {
            let mut settings = postrider_relay::Settings::with_lease(lease);
            settings.heartbeat = std::time::Duration::from_secs(1);
            let one = fresh.function(Arc::new(fresh.broker.clone()));
            one.with_settings(settings).unwrap()
        });
        let since = Instant::now();
        let (one, other) = tokio::join!(
            functions[0].publish(&records, LONG),
            functions[1].publish(&records, LONG)
        );
        let took = since.elapsed();
        for answer in [one.unwrap(), other.unwrap()] {
            assert!(answer.failures.0.is_empty(), "after {took:?}: {answer:?}");
        }
        assert!(took < lease, "both were done after {took:?}");
    }
    assert_eq!(fresh.counts(), [1; 24]);
}
