//! Stores whose rows say themselves whether they are pending: what is handed out, and what a mark is.

use postrider_core::ErrorKind;
use postrider_testkit::memory::Kind;

use crate::relay::{LEASE, Relay, event, ids, store};

const KINDS: [Kind; 2] = [Kind::RowState, Kind::Keyed];

/// The answer to a fetch may be lost: asked again, the same comes again, in its places, and what was
/// committed meanwhile comes behind it.
#[tokio::test]
async fn a_page_that_was_lost_is_handed_out_again() {
    for kind in KINDS {
        let store = store(kind).await;
        let relay = Relay::take(store.clone(), "relay").await;
        store.commit((0..4).map(|n| event("1", n)).collect()).unwrap();
        let start = relay.load().await;
        let first = relay.fetch(&start, 3).await.unwrap();
        assert!(first.more, "{kind:?}");
        store.commit(vec![event("1", 4)]).unwrap();
        let again = relay.fetch(&start, 3).await.unwrap();
        assert_eq!(again.rows, first.rows, "{kind:?}");
        let rest = relay.fetch(&again.end, 100).await.unwrap();
        assert_eq!((rest.rows.len(), rest.more), (2, false), "{kind:?}");
        assert_eq!(relay.fetch(&rest.end, 100).await.unwrap().rows, [], "{kind:?}");
        let all = relay.fetch(&start, 100).await.unwrap();
        assert_eq!(ids(&all.rows), [ids(&first.rows), ids(&rest.rows)].concat(), "{kind:?}");
    }
}

/// What one relay has under way is its own memory: after a takeover it is handed out by the next, and
/// what the first still settles is refused.
#[tokio::test]
async fn readings_of_two_relays_do_not_meet() {
    for kind in KINDS {
        let store = store(kind).await;
        let first = Relay::take(store.clone(), "first").await;
        store.commit((0..4).map(|n| event("1", n)).collect()).unwrap();
        let start = first.load().await;
        let page = first.fetch(&start, 100).await.unwrap();
        first.settle(&start, &page.rows[..1]).await.unwrap();
        store.clock().advance(LEASE);
        let second = Relay::take(store.clone(), "second").await;
        let other = second.load().await;
        let refused = second.fetch(&start, 100).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{kind:?}: another's place");
        let read = second.fetch(&other, 100).await.unwrap();
        assert_eq!(ids(&read.rows), ids(&page.rows[1..]), "{kind:?}");
        let fenced = first.settle(&start, &page.rows).await.unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{kind:?}");
        assert_eq!(second.drain().await, ids(&page.rows[1..]), "{kind:?}");
        assert_eq!(store.misdeeds(), [] as [String; 0], "{kind:?}");
    }
}

/// A mark that is there is not counted again.
#[tokio::test]
async fn a_mark_is_made_once() {
    for kind in KINDS {
        let store = store(kind).await;
        let relay = Relay::take(store.clone(), "relay").await;
        store.commit((0..3).map(|n| event("1", n)).collect()).unwrap();
        let start = relay.load().await;
        let page = relay.fetch(&start, 100).await.unwrap();
        for _ in 0..3 {
            relay.settle(&start, &page.rows).await.unwrap();
        }
        assert_eq!(store.settled(&crate::relay::a()).len(), 3, "{kind:?}");
        assert_eq!(relay.drain().await, [], "{kind:?}");
    }
}

/// A row with a lower number that is committed late is handed out behind what was handed out before.
#[tokio::test]
async fn a_late_commit_is_handed_out_late() {
    let store = store(Kind::RowState).await;
    let relay = Relay::take(store.clone(), "relay").await;
    let mut open = store.begin();
    let late = open.enqueue(event("1", 1)).unwrap();
    store.commit(vec![event("2", 1)]).unwrap();
    let start = relay.load().await;
    let page = relay.fetch(&start, 100).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    open.commit().unwrap();
    let next = relay.fetch(&page.end, 100).await.unwrap();
    assert_eq!(ids(&next.rows), [late.id]);
    assert!(next.rows[0].cursor.position() > page.rows[0].cursor.position());
}
