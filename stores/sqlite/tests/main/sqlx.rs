//! The same promises through the other driver.

use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::{ErrorKind, Event, EventId, HandlerName, Timestamp};
use postrider_sqlite::Outbox;
use postrider_sqlite::sqlx::{accept, enqueue, enqueue_many};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::support::{Fresh, event, number};

async fn pool(fresh: &Fresh) -> SqlitePool {
    SqlitePool::connect_with(SqliteConnectOptions::new().filename(fresh.path()))
        .await
        .expect("a pool")
}

/// R002, R023, R026: what is rolled back or refused leaves nothing; what commits is there.
#[tokio::test]
async fn events_commit_with_the_transaction() {
    let fresh = Fresh::new();
    let pool = pool(&fresh).await;
    let outbox = Outbox::new();
    let mut tx = pool.begin().await.unwrap();
    enqueue(&outbox, &mut tx, &event(1)).await.unwrap();
    tx.rollback().await.unwrap();
    let count = || number(&fresh.connect(), "select count(*) from outbox");
    assert_eq!(count(), 0);
    let mut tx = pool.begin().await.unwrap();
    let twice = event(2);
    enqueue(&outbox, &mut tx, &twice).await.unwrap();
    let refused = enqueue(&outbox, &mut tx, &twice).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let refused = enqueue_many(&outbox, &mut tx, &[event(3), twice]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let scheduled = event(6).deliver_after(Timestamp::now());
    enqueue_many(&outbox, &mut tx, &[event(4), event(5), scheduled]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(), 3);
    assert_eq!(number(&fresh.connect(), "select count(*) from outbox_scheduled"), 1);
}

/// R074: the marker commits with the handler's change or not at all.
#[tokio::test]
async fn a_marker_commits_with_the_transaction() {
    let fresh = Fresh::new();
    let pool = pool(&fresh).await;
    let handler = HandlerName::new("billing").unwrap();
    let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    for _ in 0..2 {
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(accept(&mut tx, &event, &handler).await.unwrap(), Accepted::FirstTime);
        tx.rollback().await.unwrap();
    }
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(accept(&mut tx, &event, &handler).await.unwrap(), Accepted::FirstTime);
    assert_eq!(accept(&mut tx, &event, &handler).await.unwrap(), Accepted::Duplicate);
    event.payload = postrider_core::Payload::bytes("other");
    let refused = accept(&mut tx, &event, &handler).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
}
