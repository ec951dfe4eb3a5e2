//! Commits and rollbacks, one transaction at a time or side by side.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use postrider_core::ErrorKind;

use crate::suite::relay::{Relay, a, event, ids};
use crate::suite::{StoreHarness, skip};

/// R010: what is committed is read in the order of the commits, ascending in number.
pub async fn what_is_committed_is_read_in_order<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..40).map(|n| event("1", n)).collect();
    for pair in events.chunks(4) {
        harness.commit(pair.to_vec()).await.expect("commit");
    }
    let rows = relay.read(&a()).await;
    let read: Vec<_> = rows.iter().map(|(_, row)| row.row.id).collect();
    assert_eq!(read, ids(&events), "one key, in commit order");
    let numbers: Vec<u64> = rows.iter().map(|(_, row)| row.row.seq).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

/// R002: a rolled-back change never emits.
pub async fn a_rolled_back_transaction_leaves_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let mut kept = Vec::new();
    for n in 0..10 {
        let events = vec![event("1", n), event("2", n)];
        if n % 2 == 0 {
            kept.extend(ids(&events));
            harness.commit(events).await.expect("commit");
        } else {
            harness.roll_back(events).await.expect("roll back");
        }
    }
    kept.sort();
    assert_eq!(relay.read_ids(&a()).await, kept);
}

/// R010: gaps of rolled-back transactions hide nothing that follows.
pub async fn numbers_ascend_across_rolled_back_transactions<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (first, second) = (event("1", 1), event("1", 2));
    harness.commit(vec![first.clone()]).await.expect("commit");
    assert_eq!(relay.drain(&a()).await, ids(&[first]));
    for n in 0..5 {
        harness.roll_back(vec![event("1", n)]).await.expect("roll back");
        assert_eq!(relay.read_ids(&a()).await, []);
    }
    harness.commit(vec![second.clone()]).await.expect("commit");
    assert_eq!(relay.drain(&a()).await, ids(&[second]));
}

/// R011: an id is unique; a transaction that would commit it again commits nothing.
pub async fn an_id_is_committed_once<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().unique_ids {
        return skip("an_id_is_committed_once", "the store has no index over all ids");
    }
    let relay = Relay::start(&harness).await;
    let first = event("1", 1);
    let again = event("2", 1).id(first.event().id);
    harness.commit(vec![first.clone()]).await.expect("commit");
    let refused = harness.commit(vec![event("3", 1), again]).await;
    assert!(refused.is_err(), "the same id twice");
    assert_eq!(relay.read_ids(&a()).await, ids(&[first]));
}

/// R010: the events of a large transaction keep their order, over pages.
pub async fn a_large_transaction_keeps_its_order<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..H::LARGE).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let start = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = relay.read_from(&lease, &a(), start, 77).await;
    let read: Vec<_> = rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, ids(&events));
}

/// R001: producers side by side; whoever was told that it committed is read, once.
pub async fn concurrent_producers_lose_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let produce = |producer: u32| {
        let harness = &harness;
        async move {
            let mut committed = Vec::new();
            for n in 0..10 {
                let events = vec![event(&producer.to_string(), n)];
                let own = ids(&events);
                loop {
                    match harness.commit(events.clone()).await {
                        Ok(()) => break,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                    }
                }
                committed.extend(own);
            }
            committed
        }
    };
    let committed: BTreeSet<_> =
        join_all((0..8).map(produce)).await.into_iter().flatten().collect();
    let read = relay.read_ids(&a()).await;
    assert_eq!(read.len(), 80, "none twice");
    assert_eq!(read, Vec::from_iter(committed));
}
