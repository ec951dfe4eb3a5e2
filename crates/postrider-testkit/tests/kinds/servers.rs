//! What may happen to the server: it crashes, fails over, takes no writes, has no room.

use std::collections::BTreeSet;

use postrider_core::inbox::Accepted;
use postrider_core::source::RetireRequest;
use postrider_core::waiting::{NewWaiting, Placement, Reason, Settlement, SettlementPart};
use postrider_core::{
    ClaimRequest, ErrorKind, EventId, HandlerName, InboxStore, NewEvent, OutboxSource, RelayId,
};
use postrider_testkit::memory::{Kind, MemoryStore};

use crate::relay::{LEASE, Relay, a, acquire, event, settlement, store};

fn read(store: &MemoryStore) -> BTreeSet<EventId> {
    store.committed().iter().map(|row| row.row.id).collect()
}

/// A crash rolls back what is open, and whoever had it is told; what was committed stays.
#[tokio::test]
async fn a_crash_rolls_back_what_is_open() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        let kept = store.commit(vec![event("1", 1)]).unwrap();
        let mut open = store.begin();
        open.enqueue(event("2", 1)).unwrap();
        let before = store.epoch();
        store.crash();
        assert_eq!(store.epoch(), before + 1, "{kind:?}");
        let next = store.commit(vec![event("3", 1)]).expect("nobody holds the writer's place");
        let gone = open.enqueue(event("2", 2)).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Unavailable, "{kind:?}");
        let gone = open.commit().unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Unavailable, "{kind:?}");
        assert_eq!(read(&store), BTreeSet::from([kept[0].id, next[0].id]), "{kind:?}");
        assert!(next[0].seq > kept[0].seq, "{kind:?}");
        let relay = Relay::take(store.clone(), "relay").await;
        assert_eq!(relay.drain().await.len(), 2, "{kind:?}");
    }
}

/// A marker of a transaction that a crash rolled back keeps nobody else out.
#[tokio::test]
async fn a_crash_frees_markers() {
    let store = store(Kind::ChangeLog).await;
    let handler = HandlerName::new("billing").unwrap();
    let mut sent = NewEvent::new("order", "1", "order.placed").event().clone();
    sent.source = "/shop".into();
    let mut open = store.begin();
    assert_eq!(open.accept(&sent, &handler).unwrap(), Accepted::FirstTime);
    let mut other = store.begin();
    assert_eq!(other.accept(&sent, &handler).unwrap_err().kind(), ErrorKind::Busy);
    store.crash();
    let mut third = store.begin();
    assert_eq!(third.accept(&sent, &handler).unwrap(), Accepted::FirstTime);
    drop(open);
    let mut fourth = store.begin();
    let busy = fourth.accept(&sent, &handler).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "the old one frees nothing of the new one");
}

/// A standby that lags loses what it had not seen, and says what; nobody who remembers the server
/// before it can write.
#[tokio::test]
async fn a_standby_loses_what_it_had_not_seen() {
    for kind in [Kind::ChangeLog, Kind::Number, Kind::RowState, Kind::Keyed] {
        let store = store(kind).await;
        let relay = Relay::take(store.clone(), "relay").await;
        let kept = store.commit(vec![event("1", 1)]).unwrap();
        let standby = store.checkpoint();
        let lost = store.commit(vec![event("1", 2), event("1", 3)]).unwrap();
        let start = relay.load().await;
        let page = relay.fetch(&start, 100).await.unwrap();
        relay.settle(&start, &page.rows[..1]).await.unwrap();
        let gone = store.fail_over(standby);
        let expected: BTreeSet<EventId> = lost.iter().map(|row| row.id).collect();
        assert_eq!(BTreeSet::from_iter(gone), expected, "{kind:?}");
        assert_eq!(read(&store), BTreeSet::from([kept[0].id]), "{kind:?}");
        let new = store.commit(vec![event("1", 4), event("1", 5)]).unwrap();
        let refused = relay.settle(&start, &page.rows).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{kind:?}: it knows another server");
        let next = Relay::take(store.clone(), "relay").await;
        assert!(next.lease.token > relay.lease.token, "{kind:?}");
        let drained = next.drain().await;
        assert_eq!(drained, [kept[0].id, new[0].id, new[1].id], "{kind:?}");
        assert_eq!(store.misdeeds(), [] as [String; 0], "{kind:?}");
    }
}

/// A server that takes no writes still answers who reads.
#[tokio::test]
async fn a_read_only_server_is_read() {
    let store = store(Kind::Snapshot).await;
    let relay = Relay::take(store.clone(), "relay").await;
    store.commit(vec![event("1", 1)]).unwrap();
    let mut open = store.begin();
    open.enqueue(event("2", 1)).unwrap();
    store.set_read_only(true);
    assert_eq!(store.commit(vec![event("1", 2)]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(open.commit().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(store.open().await.unwrap_err().kind(), ErrorKind::ReadOnly);
    let start = relay.load().await;
    let page = relay.fetch(&start, 100).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    let refused = relay.settle(&start, &page.rows).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    store.set_read_only(false);
    assert_eq!(relay.drain().await.len(), 1);
}

/// A full server refuses what needs room, and lets cursors move and rows be deleted.
#[tokio::test]
async fn a_full_server_moves_cursors_and_deletes() {
    let store = store(Kind::ChangeLog).await;
    let relay = Relay::take(store.clone(), "relay").await;
    store.commit(vec![event("1", 1), event("1", 2)]).unwrap();
    store.set_full(true);
    assert_eq!(store.commit(vec![event("1", 3)]).unwrap_err().kind(), ErrorKind::DiskFull);
    let start = relay.load().await;
    let page = relay.fetch(&start, 100).await.unwrap();
    let mut part = SettlementPart::new(a());
    part.waiting.push(NewWaiting {
        row: page.rows[0].row,
        key_hash: page.rows[0].key_hash,
        event: page.rows[0].event.clone().ok(),
        placement: Placement::Behind(Reason::Behind),
    });
    let grows = Settlement { lease: relay.lease.clone(), parts: vec![part] };
    assert_eq!(store.settle(&grows).await.unwrap_err().kind(), ErrorKind::DiskFull);
    let mut moves = settlement(&relay.lease, &start, &page.rows);
    let mut other = moves.parts[0].clone();
    other.destination = postrider_core::Destination::unrouted().id;
    moves.parts.push(other);
    store.settle(&moves).await.unwrap();
    store.clock().advance(LEASE / 2);
    let request = RetireRequest {
        lease: relay.lease.clone(),
        older_than: LEASE / 4,
        rows_max: 10,
        only: None,
    };
    assert_eq!(store.retire(&request).await.unwrap().rows, 2);
    let mut sent = event("1", 1).event().clone();
    sent.source = "/shop".into();
    let handler = HandlerName::new("billing").unwrap();
    let claim = ClaimRequest::new(&sent, &handler, LEASE).unwrap();
    assert_eq!(store.claim(&claim).await.unwrap_err().kind(), ErrorKind::DiskFull);
    store.set_full(false);
    store.commit(vec![event("1", 3)]).unwrap();
}

/// The watermark is about what the slowest destination has not passed.
#[tokio::test]
async fn a_full_outbox_says_so() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        let relay = Relay::take(store.clone(), "relay").await;
        store.set_watermark(Some(3));
        store.commit((0..3).map(|n| event("1", n)).collect()).unwrap();
        let refused = store.commit(vec![event("2", 1)]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Backpressure, "{kind:?}");
        relay.drain().await;
        let refused = store.commit(vec![event("2", 1)]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Backpressure, "{kind:?}: `unrouted` is behind");
        let unrouted = postrider_core::Destination::unrouted().id;
        let removed =
            postrider_core::source::DefinitionChange { remove: vec![a()], ..Default::default() };
        store.apply(&removed).await.unwrap();
        assert_eq!(store.settled(&unrouted).len(), 0);
        store.set_watermark(Some(4));
        store.commit(vec![event("2", 1)]).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
}

/// The ledger tells nothing while all is well, over takeovers, releases, and proofs of death.
#[tokio::test]
async fn the_ledger_tells_nothing_while_all_is_well() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        for round in 0..6u32 {
            let name = if round % 3 == 0 { "first" } else { "second" };
            let relay = Relay::take(store.clone(), name).await;
            store.commit(vec![event("1", round)]).unwrap();
            relay.drain().await;
            let renew = postrider_core::source::RenewRequest {
                owner: RelayId::new(name).unwrap(),
                leases: vec![relay.lease.clone()],
                lease_duration: LEASE,
                current: true,
            };
            assert_eq!(store.renew(&renew).await.unwrap().kept.len(), 1);
            assert_eq!(acquire(&store, "third").await, None);
            if round % 2 == 0 {
                OutboxSource::release(&store, std::slice::from_ref(&relay.lease)).await.unwrap();
            } else {
                store.clock().advance(LEASE);
            }
        }
        assert_eq!(store.misdeeds(), [] as [String; 0], "{kind:?}");
    }
}
