//! Stores with numbers by key: writers of one key conflict, keys are found late, and no event is settled
//! before the one before it.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_testkit::memory::{Kind, Lag};

use crate::relay::{Relay, event, ids, store};

/// The second commit of a key that was written meanwhile fails; tried again it goes through.
#[tokio::test]
async fn writers_of_one_key_conflict() {
    let store = store(Kind::Keyed).await;
    let mut slow = store.begin();
    slow.enqueue(event("1", 1)).unwrap();
    store.commit(vec![event("1", 2), event("2", 1)]).unwrap();
    let refused = slow.commit().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let mut other = store.begin();
    other.enqueue(event("3", 1)).unwrap();
    store.commit(vec![event("1", 3)]).unwrap();
    other.commit().expect("another key");
    let relay = Relay::take(store.clone(), "relay").await;
    assert_eq!(relay.drain().await.len(), 4);
}

/// Nothing is found before its key is named; then all of the key is, in order.
#[tokio::test]
async fn a_key_is_found_late_and_whole() {
    let store = store(Kind::Keyed).await;
    let relay = Relay::take(store.clone(), "relay").await;
    let second = Duration::from_secs(1);
    store.set_lag(Lag { seed: 3, index_max: second, stream_max: second, trimmed: 0 });
    store.commit((0..5).map(|n| event("1", n)).collect()).unwrap();
    let start = relay.load().await;
    let early = relay.fetch(&start, 100).await.unwrap();
    assert!(early.rows.is_empty() && !early.more);
    let mut found = early;
    while found.rows.is_empty() {
        store.clock().advance(second / 1_000);
        found = relay.fetch(&start, 100).await.unwrap();
    }
    assert_eq!(found.rows.len(), 5, "a key is read as it is");
    assert!(store.clock().elapsed() < second);
    assert!(found.rows.is_sorted_by_key(|row| row.row.seq));
}

/// Whatever lags: every event is handed out, no key out of its order, keys in any.
#[tokio::test]
async fn lags_lose_nothing_and_turn_no_key_around() {
    let mut turned = 0;
    for seed in 0..40 {
        let store = store(Kind::Keyed).await;
        let (index_max, stream_max) = (Duration::from_secs(20), Duration::from_secs(2));
        store.set_lag(Lag { seed, index_max, stream_max, trimmed: 2_000 });
        let relay = Relay::take(store.clone(), "relay").await;
        let mut read = Vec::new();
        for n in 0..60u32 {
            store.commit(vec![event(&(n * n % 7).to_string(), n)]).unwrap();
            store.clock().advance(Duration::from_millis(100));
            read.extend(relay.drain().await);
        }
        store.clock().advance(index_max);
        read.extend(relay.drain().await);
        let committed = store.committed();
        assert_eq!(read.len(), committed.len(), "seed {seed}");
        let rows: BTreeMap<_, _> = committed.iter().map(|row| (row.row.id, row)).collect();
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for id in &read {
            let row = rows[id];
            let before = last.insert(&row.key, row.row.seq).unwrap_or_default();
            assert!(before < row.row.seq, "seed {seed}: {} out of order", row.key);
        }
        let order: Vec<u64> = read.iter().map(|id| rows[id].row.seq).collect();
        turned += usize::from(!order.is_sorted());
    }
    assert!(turned > 30, "keys were found in the order of commits in {turned} of 40: too tame");
}

/// An event is not settled over an earlier one of its key.
#[tokio::test]
async fn nothing_is_settled_over_what_is_pending() {
    let store = store(Kind::Keyed).await;
    let relay = Relay::take(store.clone(), "relay").await;
    store.commit(vec![event("1", 1), event("2", 1), event("1", 2)]).unwrap();
    let start = relay.load().await;
    let page = relay.fetch(&start, 100).await.unwrap();
    let second = page.rows.iter().max_by_key(|row| row.row.seq).unwrap();
    let refused = relay.settle(&start, std::slice::from_ref(second)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(ids(&page.rows).len(), 3);
    assert_eq!(relay.drain().await.len(), 3, "nothing of it was written");
}
