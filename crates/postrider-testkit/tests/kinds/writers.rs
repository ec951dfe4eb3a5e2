//! One writer at a time: who comes second is told to wait, and nobody is overtaken.

use postrider_core::{ErrorKind, OutboxSource};
use postrider_testkit::memory::Kind;

use crate::line::Plain;
use crate::relay::{Relay, event, store};

/// A second writer waits for the first, however that ends.
#[tokio::test]
async fn the_second_writer_waits() {
    let store = store(Kind::Number).await;
    let mut first = store.begin();
    let mut second = store.begin();
    first.enqueue(event("1", 1)).unwrap();
    let busy = second.enqueue(event("2", 1)).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    first.commit().unwrap();
    second.enqueue(event("2", 1)).unwrap();
    let busy = store.commit(vec![event("3", 1)]).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    second.roll_back();
    store.commit(vec![event("3", 1)]).unwrap();
    let relay = Relay::take(store.clone(), "relay").await;
    assert_eq!(relay.drain().await.len(), 2);
}

/// What is rolled back gives its numbers back; what was committed keeps its own.
#[tokio::test]
async fn numbers_of_a_rollback_are_given_again() {
    let store = store(Kind::Number).await;
    let kept = store.commit(vec![event("1", 1)]).unwrap();
    let mut rolled_back = store.begin();
    let row = rolled_back.enqueue(event("1", 2)).unwrap();
    rolled_back.enqueue(event("1", 3)).unwrap();
    drop(rolled_back);
    let again = store.commit(vec![event("1", 4)]).unwrap();
    assert_eq!(again[0].seq, row.seq);
    assert_eq!(kept[0].seq + 1, row.seq);
}

/// A statement of a relay waits for the writer as well.
#[tokio::test]
async fn a_relay_waits_for_the_writer() {
    let store = store(Kind::Number).await;
    let relay = Relay::take(store.on(std::sync::Arc::new(Plain)), "relay").await;
    store.commit(vec![event("1", 1)]).unwrap();
    let start = relay.load().await;
    let page = relay.fetch(&start, 10).await.unwrap();
    let mut open = store.begin();
    open.enqueue(event("2", 1)).unwrap();
    let busy = relay.settle(&start, &page.rows).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert_eq!(relay.fetch(&start, 10).await.unwrap().rows.len(), 1, "who reads need not wait");
    open.commit().unwrap();
    relay.settle(&start, &page.rows).await.unwrap();
    assert_eq!(relay.drain().await.len(), 1);
    let head = store.head(&relay.lease).await.unwrap();
    assert_eq!(head.position(), 2);
}
