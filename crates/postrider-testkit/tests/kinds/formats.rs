//! Formats: a program that knows only an older format of rows is told so, and nothing is lost by it.

use postrider_core::OutboxSource;
use postrider_core::waiting::{
    Attempted, NewWaiting, Placement, Reason, Settlement, SettlementPart,
};
use postrider_testkit::memory::Kind;

use crate::relay::{LEASE, Relay, a, event, store};

#[tokio::test]
async fn a_newer_format_is_malformed_for_an_older_program() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        let mut transaction = store.begin();
        transaction.enqueue(event("1", 1)).unwrap();
        let newer = transaction.enqueue_format(event("1", 2), 2).unwrap();
        transaction.commit().unwrap();
        let old = Relay::take(store.knows_format(1), "old").await;
        let start = old.load().await;
        let page = old.fetch(&start, 100).await.unwrap();
        assert!(page.rows[0].event.is_ok(), "{kind:?}");
        let malformed = page.rows[1].event.as_ref().unwrap_err();
        assert_eq!(malformed.reason, Reason::UnknownFormat, "{kind:?}");
        store.clock().advance(LEASE);
        let new = Relay::take(store.knows_format(2), "new").await;
        let start = new.load().await;
        let page = new.fetch(&start, 100).await.unwrap();
        assert_eq!(page.rows[1].row, newer);
        assert!(page.rows[1].event.is_ok(), "{kind:?}");
    }
}

/// What an older program left as a dead letter cannot be sent by anybody.
#[tokio::test]
async fn a_dead_letter_of_a_newer_format_has_no_event() {
    let store = store(Kind::ChangeLog).await;
    let mut transaction = store.begin();
    transaction.enqueue_format(event("1", 2), 2).unwrap();
    transaction.commit().unwrap();
    let old = Relay::take(store.knows_format(1), "old").await;
    let start = old.load().await;
    let page = old.fetch(&start, 100).await.unwrap();
    let attempted = Attempted { attempts: 0, reason: Reason::UnknownFormat, detail: String::new() };
    let mut part = SettlementPart::new(a());
    part.waiting.push(NewWaiting {
        row: page.rows[0].row,
        key_hash: page.rows[0].key_hash,
        event: None,
        placement: Placement::Dead { attempted, holds_key: true },
    });
    let settlement = Settlement { lease: old.lease.clone(), parts: vec![part] };
    old.source.settle(&settlement).await.unwrap();
    assert_eq!(store.waiting(&a()).len(), 1);
    assert_eq!(store.counts(&a()).await.unwrap().dead, 1);
}
