//! Staging events in the application's transaction.

use postrider_core::{ErrorKind, EventLimits, NewEvent, Payload, Timestamp};
use postrider_postgres::Outbox;

use crate::support::Fresh;

fn outbox(fresh: &Fresh) -> Outbox {
    Outbox::named(fresh.names.clone())
}

fn event(n: usize) -> NewEvent {
    NewEvent::new("order", n.to_string(), "order.placed")
        .json(&serde_json::json!({ "n": n }))
        .expect("JSON")
}

async fn rows(fresh: &Fresh) -> i64 {
    fresh.number("select count(*) from {outbox}").await
}

async fn ids(fresh: &Fresh) -> Vec<String> {
    let client = fresh.connect().await;
    let rows = client.query(&fresh.sql("select id::text from {outbox} order by seq"), &[]).await;
    rows.expect("rows").iter().map(|row| row.get(0)).collect()
}

/// R001, R002, INV-1: half of the transactions are rolled back; exactly the others' events are there.
#[tokio::test]
async fn a_rolled_back_transaction_leaves_no_event() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let mut committed = Vec::new();
    for n in 0..20 {
        let tx = client.transaction().await.unwrap();
        let id = outbox(&fresh).enqueue(&tx, &event(n)).await.unwrap();
        if n % 2 == 0 {
            tx.commit().await.unwrap();
            committed.push(id.to_string());
        } else {
            tx.rollback().await.unwrap();
        }
    }
    assert_eq!(ids(&fresh).await, committed);
}

/// R010: the numbers follow the caller's order, with locks on the keys and without.
#[tokio::test]
async fn a_thousand_events_keep_their_order() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let mut all = Vec::new();
    for outbox in [outbox(&fresh), outbox(&fresh).serialize_keys()] {
        let events: Vec<_> = (0..1_000).rev().map(event).collect();
        let tx = client.transaction().await.unwrap();
        let staged = outbox.enqueue_many(&tx, &events).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(staged, events.iter().map(|event| event.event().id).collect::<Vec<_>>());
        all.extend(staged.iter().map(ToString::to_string));
    }
    assert_eq!(ids(&fresh).await, all);
}

/// R012, R123: what cannot be delivered is refused where its author sees it, and before the database
/// does: the transaction goes on.
#[tokio::test]
async fn what_breaks_a_rule_is_refused_and_the_transaction_goes_on() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let outbox = outbox(&fresh);
    let tx = client.transaction().await.unwrap();
    let large = event(1).bytes(vec![0; 1024 * 1024 + 1], "a/b");
    assert_eq!(outbox.enqueue(&tx, &large).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let bad = [
        NewEvent::new("", "1", "t"),
        event(1).source("a\nb"),
        event(1).source(&"s".repeat(256)),
        event(1).version(u32::MAX),
        event(1).header("Upper", "1"),
        event(1).header("lower", "a\nb"),
        event(1).occurred_at(Timestamp::from_micros(i64::MAX)),
        event(1).deliver_after(Timestamp::from_micros(i64::MIN)),
        event(1).payload(Payload::Json("{".into()), "application/json"),
        event(1).payload(Payload::Json("\"\0\"".into()), "application/json"),
        event(1).payload(Payload::Erased, "application/json"),
    ];
    for bad in &bad {
        let refused = outbox.enqueue(&tx, bad).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let many = outbox.enqueue_many(&tx, [&event(2), bad]).await.unwrap_err();
        assert_eq!(many.kind(), ErrorKind::Invalid, "{many}");
    }
    let small = EventLimits { payload_bytes_max: 1, ..EventLimits::default() };
    let refused = outbox.clone().limits(small).enqueue(&tx, &event(10)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    outbox.enqueue(&tx, &event(3)).await.expect("the transaction is still good");
    tx.commit().await.unwrap();
    assert_eq!(rows(&fresh).await, 1);
}
