//! Forgetting: an event is acted on once more, behind the steps that have happened, and nobody who had
//! a claim on it before writes anything.

use std::time::Duration;

use postrider_core::{
    Claim, ClaimLease, ClaimRequest, ErrorKind, Event, EventId, HandlerName, InboxKey, InboxStore,
};
use postrider_testkit::memory::{Kind, MemoryStore};

use crate::relay::{LEASE, store};

fn handler() -> HandlerName {
    HandlerName::new("mailer").unwrap()
}

fn event() -> Event {
    let mut event = Event::new(EventId::from_u128(7), "order", "1", "order.placed");
    event.source = "/shop".into();
    event
}

fn key() -> InboxKey {
    InboxKey::of(&event(), &handler()).unwrap()
}

async fn claim(store: &MemoryStore) -> Claim {
    let request = ClaimRequest::new(&event(), &handler(), LEASE).unwrap();
    store.claim(&request).await.unwrap()
}

async fn granted(store: &MemoryStore) -> ClaimLease {
    match claim(store).await {
        Claim::Claimed(lease) => lease,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_forgotten_is_done_again_behind_its_steps() {
    let store = store(Kind::ChangeLog).await;
    let first = granted(&store).await;
    store.complete_step(&first, "charge", b"receipt").await.unwrap();
    let at_it = store.forget_on(&key()).await.unwrap_err();
    assert_eq!(at_it.kind(), ErrorKind::Busy, "its lease runs");
    store.complete(&first, b"done").await.unwrap();

    let void = store.forget_on(&key()).await.unwrap();
    assert!(void >= first.token);
    let twice = store.forget_on(&key()).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::NotFound);
    assert_eq!(store.forgotten(), [key()]);
    let late = store.complete(&first, b"done").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced, "also the same write again");

    let second = granted(&store).await;
    assert!(second.token > void, "no token is given twice");
    let charged = store.step(&second, "charge").await.unwrap();
    assert_eq!(charged.as_deref(), Some(&b"receipt"[..]));
    store.complete(&second, b"again").await.unwrap();
    assert!(matches!(claim(&store).await, Claim::Processed { .. }));
    assert_eq!(store.misdeeds(), [] as [String; 0]);
}

#[tokio::test]
async fn who_had_the_claim_before_it_was_forgotten_writes_nothing() {
    let store = store(Kind::ChangeLog).await;
    let sleeper = granted(&store).await;
    store.clock().advance(LEASE + Duration::from_secs(1));
    store.forget_on(&key()).await.unwrap();
    let _other = granted(&store).await;
    let late = store.complete(&sleeper, b"late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
    assert!(matches!(claim(&store).await, Claim::Leased { .. }));
}
