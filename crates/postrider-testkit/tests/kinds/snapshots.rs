//! The store with snapshots: numbers in any order, floors, and servers that crash.

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::FetchRequest;
use postrider_core::{ErrorKind, OutboxSource};
use postrider_testkit::memory::Kind;

use crate::relay::{LEASE, Relay, a, event, ids, store};

/// INV-1: a lower number that commits after a higher one was read is read after it; and the scan
/// begins above what is done.
#[tokio::test]
async fn a_number_that_commits_late_comes() {
    let store = store(Kind::Snapshot).await;
    let relay = Relay::take(store.clone(), "relay").await;
    let mut at = relay.load().await;
    let mut open = store.begin();
    let low = open.enqueue(event("1", 1)).unwrap();
    let high = store.commit(vec![event("2", 1)]).unwrap();
    let page = relay.fetch(&at, 10).await.unwrap();
    assert_eq!(ids(&page.rows), [high[0].id]);
    at = page.end;
    let decoded = SnapshotCursor::decode(&at).unwrap();
    assert_eq!((decoded.pending().len(), decoded.floor()), (1, high[0].seq));
    assert_eq!(relay.fetch(&at, 10).await.unwrap().end, at, "an idle partition's cursor stays");
    open.commit().unwrap();
    let page = relay.fetch(&at, 10).await.unwrap();
    assert_eq!(ids(&page.rows), [low.id]);
    assert!(SnapshotCursor::decode(&page.end).unwrap().pending().is_empty());
}

/// INV-1: the relay first, then one event in a fresh store.
#[tokio::test]
async fn the_first_event_of_a_fresh_store_comes() {
    let store = store(Kind::Snapshot).await;
    let relay = Relay::take(store.clone(), "relay").await;
    let at = relay.load().await;
    let page = relay.fetch(&at, 10).await.unwrap();
    assert!(page.rows.is_empty());
    let first = store.commit(vec![event("1", 1)]).unwrap();
    assert_eq!(first[0].seq, 1);
    assert_eq!(ids(&relay.fetch(&page.end, 10).await.unwrap().rows), [first[0].id]);
}

/// A target is drained page by page, whatever is committed meanwhile; then comes the rest, and a drain
/// ends at its head.
#[tokio::test]
async fn pages_belong_to_one_snapshot() {
    let store = store(Kind::Snapshot).await;
    let relay = Relay::take(store.clone(), "relay").await;
    let early = store.commit((0..5).map(|n| event("1", n)).collect()).unwrap();
    let at = relay.load().await;
    let page = relay.fetch(&at, 2).await.unwrap();
    let head = relay.source.head(&relay.lease).await.unwrap();
    let late = store.commit(vec![event("1", 9)]).unwrap();
    let page = relay.fetch(&page.end, 2).await.unwrap();
    assert!(page.more);
    let page = relay.fetch(&page.end, 2).await.unwrap();
    assert_eq!((ids(&page.rows), page.more), (vec![early[4].id], true));
    let request = |after| FetchRequest {
        lease: relay.lease.clone(),
        destinations: vec![a()],
        after,
        until: Some(head.clone()),
        rows_max: 2,
        bytes_max: u64::MAX,
    };
    let to_head = relay.source.fetch(&request(page.end.clone())).await.unwrap();
    assert!(to_head.rows.is_empty() && !to_head.more, "the head is reached");
    assert_eq!(ids(&relay.fetch(&page.end, 2).await.unwrap().rows), [late[0].id]);
}

/// INV-1: a server that crashed, or whose standby took over, answers nobody who remembers it as it was:
/// neither a fetch nor a settlement, until the partition is loaded under another lease. Then everything
/// that is there comes, also what has the number of something that was lost.
#[tokio::test]
async fn a_crash_voids_what_is_remembered() {
    for fails_over in [false, true] {
        let store = store(Kind::Snapshot).await;
        let relay = Relay::take(store.clone(), "relay").await;
        let kept = store.commit(vec![event("1", 1)]).unwrap();
        let standby = store.checkpoint();
        let start = relay.load().await;
        if fails_over {
            store.commit(vec![event("1", 2)]).unwrap();
        }
        let page = relay.fetch(&start, 10).await.unwrap();
        let lost = if fails_over { store.fail_over(standby).len() } else { 0 };
        if !fails_over {
            store.crash();
        }
        let new = store.commit(vec![event("1", 3)]).unwrap();
        assert_eq!(lost == 1, fails_over);
        assert!(!fails_over || new[0].seq == 2, "the number of what was lost");
        let refused = [
            relay.settle(&start, &page.rows).await.unwrap_err(),
            relay.fetch(&page.end, 10).await.unwrap_err(),
            relay.source.head(&relay.lease).await.unwrap_err(),
            relay.source.load(&relay.lease, &a()).await.unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::Conflict), "{refused:?}");
        store.clock().advance(LEASE);
        let again = Relay::take(relay.source, "relay").await;
        assert_eq!(again.drain().await, [kept[0].id, new[0].id]);
    }
}
