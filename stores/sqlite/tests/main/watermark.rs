//! Backpressure: an outbox with a watermark refuses what comes while its backlog is over it.

use postrider_core::waiting::Passed;
use postrider_core::{ErrorKind, OutboxSource, RetryClass};
use postrider_sqlite::Outbox;

use crate::support::{Fresh, event, fetch, number, pass};

fn enqueue(fresh: &Fresh, outbox: &Outbox) -> postrider_core::Result<()> {
    let mut connection = fresh.connect();
    let tx = connection.transaction().expect("begin");
    outbox.enqueue(&tx, &event(1))?;
    tx.commit().expect("commit");
    Ok(())
}

/// R104: over the watermark `enqueue` answers with a typed error that says how much there is and that
/// nothing was written; without one nothing is refused; and when the relay has caught up events are
/// taken again.
#[tokio::test]
async fn over_the_watermark_events_are_refused() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh
        .connect()
        .execute("delete from outbox_cursor where destination = 'unrouted'", ())
        .unwrap();
    let outbox = Outbox::new().watermark(2);
    for _ in 0..3 {
        enqueue(&fresh, &outbox).expect("the backlog is not over it yet");
    }
    let refused = enqueue(&fresh, &outbox).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    assert_eq!(refused.retry_class(), RetryClass::Transient);
    for says in ["3 events", "the limit is 2", "nothing was written"] {
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert_eq!(number(&fresh.connect(), "select count(*) from outbox"), 3);
    let mut connection = fresh.connect();
    let tx = connection.transaction().unwrap();
    let refused = outbox.enqueue_many(&tx, &[event(1), event(2)]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    tx.rollback().unwrap();
    enqueue(&fresh, &Outbox::new()).expect("no watermark");
    let rows = fetch(&store, &lease, 0).await.rows;
    store.settle(&pass(&lease, 0, &rows[..2], Passed::Acked)).await.unwrap();
    enqueue(&fresh, &outbox).expect("two are left");
}

/// R104: the slowest destination counts, but for those that an operator paused; before there is any,
/// nothing was read.
#[tokio::test]
async fn the_slowest_active_destination_counts() {
    let fresh = Fresh::new();
    fresh.commit(&[event(1), event(2)]);
    let outbox = Outbox::new().watermark(1);
    assert_eq!(enqueue(&fresh, &outbox).unwrap_err().kind(), ErrorKind::Backpressure);
    let _relay = fresh.relay().await;
    let connection = fresh.connect();
    connection
        .execute("update outbox_cursor set position = 2 where destination = 'a'", ())
        .unwrap();
    assert_eq!(enqueue(&fresh, &outbox).unwrap_err().kind(), ErrorKind::Backpressure);
    let pause = "update outbox_destination set state = 'paused' where id = 'unrouted'";
    connection.execute(pause, ()).unwrap();
    enqueue(&fresh, &outbox).expect("the other has passed everything");
    connection.execute("update outbox_destination set state = 'paused'", ()).unwrap();
    for _ in 0..3 {
        enqueue(&fresh, &outbox).expect("nothing is asked of anybody");
    }
}

/// R104: the same in a transaction of `sqlx`.
#[cfg(feature = "sqlx")]
#[tokio::test]
async fn over_the_watermark_events_are_refused_in_sqlx() {
    use sqlx::Connection;
    let fresh = Fresh::new();
    fresh.commit(&[event(1), event(2)]);
    let path = fresh.path();
    let mut connection =
        sqlx::SqliteConnection::connect(&path.display().to_string()).await.unwrap();
    for (limit, taken) in [(2, true), (2, false), (3, true)] {
        let outbox = Outbox::new().watermark(limit);
        let mut tx = connection.begin().await.unwrap();
        let done = postrider_sqlite::sqlx::enqueue(&outbox, &mut tx, &event(3)).await;
        assert_eq!(done.is_ok(), taken, "{done:?}");
        let many = postrider_sqlite::sqlx::enqueue_many(&outbox, &mut tx, &[event(4)]).await;
        assert_eq!(many.unwrap_err().kind(), ErrorKind::Backpressure);
        if done.is_ok() {
            tx.commit().await.unwrap();
        }
    }
}
