//! The pre-flight: what a destination of the store cannot carry is refused in the caller's transaction.

use postrider_core::{
    Destination, ErrorKind, Format, Match, NewEvent, OutboxSource, Route, TopicRule,
};
use postrider_sqlite::Outbox;

use crate::support::{Fresh, id, number};

/// Takes orders of at most 2,000 bytes.
pub(crate) fn small() -> Destination {
    let route = Route::all("shop.{aggregate_type}".parse().expect("a template"))
        .only(Match::event_type("order.*"))
        .format(Format::Plain);
    let mut small = Destination::new(id("small"), "queue", vec![route]);
    small.limits.message_bytes_max = Some(2_000);
    small.topics = TopicRule::Name;
    small
}

pub(crate) fn order(bytes: usize) -> NewEvent {
    NewEvent::new("order", "42", "order.placed").bytes(vec![b'x'; bytes], "text/plain")
}

fn enqueue(fresh: &Fresh, outbox: &Outbox, events: &[NewEvent]) -> postrider_core::Result<()> {
    let mut connection = fresh.connect();
    // Deferred, as it is by default: nothing is read before something is written.
    let tx = connection.transaction().expect("begin");
    let outcome = match events {
        [event] => outbox.enqueue(&tx, event).map(drop),
        events => outbox.enqueue_many(&tx, events).map(drop),
    };
    // What was refused left nothing, and the transaction goes on.
    tx.commit().expect("commit");
    outcome
}

/// R123: refused are what is too large as its route writes it and what would have no topic, with the destination
/// named; by the first event already, and nothing of it is written. Without a pre-flight all of it is taken.
#[tokio::test]
async fn what_a_destination_cannot_carry_is_refused() {
    let fresh = Fresh::new();
    fresh.store().register(&[small()]).await.unwrap();
    let count = || number(&fresh.connect(), "select count(*) from outbox");
    let odd = NewEvent::new("an order", "42", "order.placed");
    for refused in [order(2_000), odd.clone()] {
        // One that has read already, and one that has not.
        let known = Outbox::new().preflight();
        enqueue(&fresh, &known, &[order(1)]).unwrap();
        let before = count();
        for outbox in [known, Outbox::new().preflight()] {
            for events in [vec![refused.clone()], vec![order(1), refused.clone()]] {
                let error = enqueue(&fresh, &outbox, &events).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid));
                let said = format!("{error:?}");
                assert!(said.contains("small"), "{said}");
                assert!(said.contains(&refused.event().id.to_string()), "{said}");
                assert_eq!(count(), before, "none of them is there");
            }
        }
    }
    let outbox = Outbox::new().preflight();
    let elsewhere = NewEvent::new("an order", "42", "user.left").bytes(vec![0; 5_000], "a/b");
    enqueue(&fresh, &outbox, &[elsewhere]).expect("the destination does not take it");
    enqueue(&fresh, &Outbox::new(), &[order(2_000), odd]).expect("the control");
}

/// What was read is believed for a while: destinations are not asked for with every event.
#[tokio::test]
async fn destinations_are_read_once_in_a_while() {
    let fresh = Fresh::new();
    let outbox = Outbox::new().preflight();
    enqueue(&fresh, &outbox, &[order(1)]).unwrap();
    fresh.store().register(&[small()]).await.unwrap();
    enqueue(&fresh, &outbox.clone(), &[order(2_000)]).expect("what it knows is younger than that");
    assert!(enqueue(&fresh, &Outbox::new().preflight(), &[order(2_000)]).is_err());
}

/// R123: the same in a transaction of `sqlx`.
#[cfg(feature = "sqlx")]
#[tokio::test]
async fn the_other_driver_has_it_too() {
    use postrider_sqlite::sqlx::{enqueue, enqueue_many};
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
    let fresh = Fresh::new();
    fresh.store().register(&[small()]).await.unwrap();
    let options = SqliteConnectOptions::new().filename(fresh.path());
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let outbox = Outbox::new().preflight();
    let refused = enqueue(&outbox, &mut tx, &order(2_000)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    let refused = enqueue_many(&outbox, &mut tx, &[order(1), order(2_000)]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    enqueue(&outbox, &mut tx, &order(1)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(number(&fresh.connect(), "select count(*) from outbox"), 1);
}
