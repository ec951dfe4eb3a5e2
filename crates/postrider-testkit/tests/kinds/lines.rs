//! Lines: what is lost on the way there has not happened, what is lost on the way back has.

use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::{ErrorKind, HandlerName, OutboxSource};
use postrider_testkit::memory::{Access, Kind};

use crate::line::{Leg, Lossy};
use crate::relay::{Relay, a, event, store};

fn lossy(lose: &[(&'static str, Leg)]) -> Arc<Lossy> {
    let line = Lossy::default();
    line.lose.lock().unwrap().extend(lose);
    Arc::new(line)
}

#[tokio::test]
async fn a_settlement_is_lost_on_either_way() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        let line = lossy(&[("settle", Leg::There), ("settle", Leg::Back)]);
        let relay = Relay::take(store.on(Arc::clone(&line) as _), "relay").await;
        store.commit(vec![event("1", 1), event("1", 2)]).unwrap();
        let start = relay.load().await;
        let page = relay.fetch(&start, 100).await.unwrap();
        for settled in [0, 2, 2] {
            let answer = relay.settle(&start, &page.rows).await;
            assert_eq!(store.settled(&a()).len(), settled, "{kind:?}");
            if let Err(lost) = answer {
                assert_eq!(lost.kind(), ErrorKind::Unavailable);
            }
        }
        let seen = line.seen.lock().unwrap();
        assert!(seen.contains(&("fetch", Access::Read)), "{seen:?}");
        assert!(seen.contains(&("settle", Access::Write)), "{seen:?}");
        assert!(seen.contains(&("acquire", Access::Write)), "{seen:?}");
    }
}

#[tokio::test]
async fn a_transaction_is_lost_on_either_way() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        let line = lossy(&[("commit", Leg::There), ("commit", Leg::Back)]);
        let app = store.on(line);
        let sent = event("1", 1);
        let mut outcomes = Vec::new();
        for _ in 0..3 {
            let mut transaction = app.begin_on().await.unwrap();
            transaction.enqueue_on(sent.clone(), 1).await.unwrap();
            let answer = transaction.commit_on().await;
            outcomes.push((answer.map_err(|e| e.kind()).err(), store.committed().len()));
        }
        let expected = [
            (Some(ErrorKind::Unavailable), 0),
            (Some(ErrorKind::Unavailable), 1),
            (Some(ErrorKind::Conflict), 1),
        ];
        assert_eq!(outcomes, expected, "{kind:?}");
        assert!(store.is_committed(sent.event().id));
    }
}

/// A marker goes with its transaction, also through a line.
#[tokio::test]
async fn a_marker_is_accepted_through_a_line() {
    let store = store(Kind::Snapshot).await;
    let app = store.on(lossy(&[("commit", Leg::There)]));
    let handler = HandlerName::new("billing").unwrap();
    let mut sent = event("1", 1).event().clone();
    sent.source = "/shop".into();
    for expected in [Accepted::FirstTime, Accepted::FirstTime, Accepted::Duplicate] {
        let mut transaction = app.begin_on().await.unwrap();
        assert_eq!(transaction.accept_on(&sent, &handler).await.unwrap(), expected);
        _ = transaction.commit_on().await;
    }
}

/// Without a line nothing is waited for.
#[test]
fn without_a_line_an_answer_is_there_at_once() {
    use std::task::{Context, Poll, Waker};
    let store = postrider_testkit::memory::MemoryStore::new(1, Default::default());
    let mut answer = store.open();
    let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(_))));
}
