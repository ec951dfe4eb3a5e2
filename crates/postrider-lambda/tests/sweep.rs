//! The scheduled relay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fresh::{Fresh, LONG};
use crate::partial::Until;

/// R043: what the stream's function left over, or never heard of, the schedule's finds by the index.
#[tokio::test]
async fn a_sweep_publishes_what_was_left_over() {
    let Some(fresh) = Fresh::new(3).await else { return };
    for key in 0..5 {
        fresh.write(&key.to_string(), 2).await;
    }
    let away = fresh.function(Arc::new(Until::new(&fresh.broker, 4)));
    let swept = away.sweep(LONG).await.unwrap();
    // What was tried in vain waits, or stands where it stood.
    assert!(!swept.done || swept.waiting == 6, "{swept:?}");
    assert_eq!(fresh.counts(), [1; 4]);
    let function = fresh.function(Arc::new(fresh.broker.clone()));
    let (began, mut swept) = (Instant::now(), function.sweep(LONG).await.unwrap());
    while swept.waiting > 0 {
        assert!(began.elapsed() < LONG, "{swept:?}");
        tokio::time::sleep(Duration::from_millis(200)).await; // waits: until the tries are due, as a schedule does
        swept = function.sweep(LONG).await.unwrap();
    }
    assert!(swept.done && swept.left.is_empty(), "{swept:?}");
    assert_eq!(fresh.counts(), [1; 10]);
    // The first may have ended with a publish under way, and so with its leases; it must not say that it is gone.
    assert!(fresh.control("relay#").await.len() <= 1, "of the second no heartbeat stays");
}

/// A relay that beats keeps its partitions; one that is dead is waited for, and taken over.
#[tokio::test]
async fn a_sweep_leaves_a_living_relay_alone_and_takes_over_from_a_dead_one() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let relay = fresh.relay().await;
    relay.health().wait_for(|health| health.partitions == 2).await.unwrap();
    let function = fresh.function(Arc::new(fresh.broker.clone()));
    let swept = function.sweep(LONG).await.unwrap();
    assert_eq!((swept.left.len(), swept.delivered), (2, 0), "{swept:?}");
    relay.abort();
    relay.stopped().await;
    fresh.write("1", 2).await;
    let swept = fresh.function(Arc::new(fresh.broker.clone())).sweep(LONG).await.unwrap();
    assert!(swept.done && swept.left.is_empty(), "{swept:?}");
    assert_eq!(fresh.counts(), [1; 2]);
}
