//! Staging events in the application's transaction.

use postrider_core::{
    Error, ErrorKind, EventLimits, NewEvent, OutboxSource, Payload, Result, Timestamp,
};
use postrider_sqlite::Outbox;

use crate::support::{Fresh, event, fetch, number};

fn rows(fresh: &Fresh) -> i64 {
    number(&fresh.connect(), "select count(*) from outbox")
}

/// R001, R002: half of the transactions are rolled back; exactly the others' events are there.
#[tokio::test]
async fn a_rolled_back_transaction_leaves_no_event() {
    let fresh = Fresh::new();
    let mut connection = fresh.connect();
    let mut committed = Vec::new();
    for n in 0..40 {
        let tx = connection.transaction().unwrap();
        let id = Outbox::new().enqueue(&tx, &event(n)).unwrap();
        if n % 2 == 0 {
            tx.commit().unwrap();
            committed.push(id);
        } else {
            tx.rollback().unwrap();
        }
    }
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    let read: Vec<_> = page.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, committed);
}

/// R010, R011: numbers ascend in commit order, and ids differ.
#[tokio::test]
async fn a_thousand_events_are_read_in_the_order_of_their_commits() {
    let fresh = Fresh::new();
    let events: Vec<_> = (0..1_000).map(event).collect();
    fresh.commit(&events);
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    assert!(page.rows.is_sorted_by(|a, b| a.row.seq < b.row.seq));
    let read: Vec<_> = page.rows.iter().map(|row| row.row.id).collect();
    let sent: Vec<_> = events.iter().map(|event| event.event().id).collect();
    assert_eq!(read, sent);
}

/// R013: JSON, Avro-like bytes, and text come back byte for byte.
#[tokio::test]
async fn payloads_come_back_byte_for_byte() {
    let fresh = Fresh::new();
    let json = "{ \"z\" : 1.50, \"a\":12345678901234567890, \"ü\":\"\\u00e4\" }";
    let payloads = [
        (Payload::json(json).unwrap(), "application/json"),
        (Payload::bytes((0..=255).collect::<Vec<u8>>()), "avro/binary"),
        (Payload::bytes("grüße, 世界"), "text/plain; charset=utf-8"),
        (Payload::bytes(Vec::new()), "application/octet-stream"),
    ];
    let events: Vec<_> = payloads
        .iter()
        .map(|(payload, kind)| NewEvent::new("a", "1", "b").payload(payload.clone(), kind))
        .collect();
    fresh.commit(&events);
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    for (row, (payload, kind)) in page.rows.iter().zip(&payloads) {
        let read = row.event.as_ref().unwrap();
        assert_eq!(read.payload, *payload);
        assert_eq!(&*read.content_type, *kind);
    }
    assert_eq!(page.rows.len(), payloads.len());
}

/// R015: when it happened and when it was written are two times.
#[tokio::test]
async fn a_backdated_fact_keeps_its_time() {
    let fresh = Fresh::new();
    let long_ago: Timestamp = "2001-02-03T04:05:06.789012Z".parse().unwrap();
    let before = Timestamp::now();
    fresh.commit(&[event(1).occurred_at(long_ago)]);
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    let read = page.rows[0].event.as_ref().unwrap();
    assert_eq!(read.occurred_at, long_ago);
    assert!(read.created_at.plus(std::time::Duration::from_millis(2)) >= before);
}

/// Everything an event can carry comes back.
#[tokio::test]
async fn every_field_comes_back() {
    let fresh = Fresh::new();
    let full = event(1)
        .source("/elsewhere")
        .ordered_by("customer/7")
        .version(3)
        .tenant("acme")
        .header("traceparent", "00-1-2-01")
        .header("note", "grüße");
    fresh.commit(&[full.clone(), event(2)]);
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    let read = page.rows[0].event.as_ref().unwrap();
    let mut sent = full.event().clone();
    sent.created_at = read.created_at;
    assert_eq!(**read, sent);
    assert_eq!(page.rows[0].key_hash, sent.key_hash());
    let plain = page.rows[1].event.as_ref().unwrap();
    assert_eq!(&*plain.source, "/shop", "the store's own");
    assert!(plain.headers.is_empty());
}

/// R023: an error after enqueue, returned with `?`, leaves no row behind.
#[test]
fn an_error_after_enqueue_leaves_no_row() {
    let fresh = Fresh::new();
    let mut connection = fresh.connect();
    let mut place_order = |fails: bool| -> Result<()> {
        let tx = connection.transaction().unwrap();
        Outbox::new().enqueue(&tx, &event(1))?;
        if fails {
            return Err(Error::new(ErrorKind::Rejected, "charge"));
        }
        tx.commit().unwrap();
        Ok(())
    };
    assert!(place_order(true).is_err());
    assert_eq!(rows(&fresh), 0);
    place_order(false).unwrap();
    assert_eq!(rows(&fresh), 1);
}

/// R026: the order's own condition cancels its event.
#[test]
fn a_duplicate_order_id_cancels_the_event() {
    let fresh = Fresh::new();
    let mut connection = fresh.connect();
    connection.execute_batch("create table orders (id integer primary key)").unwrap();
    let mut place = || -> Result<(), Box<dyn std::error::Error>> {
        let tx = connection.transaction()?;
        Outbox::new().enqueue(&tx, &event(1))?;
        tx.execute("insert into orders values (42)", ())?;
        Ok(tx.commit()?)
    };
    place().unwrap();
    assert!(place().is_err());
    assert_eq!(rows(&fresh), 1);
}

/// R011: an id is used once.
#[test]
fn the_same_id_twice_is_a_conflict() {
    let fresh = Fresh::new();
    let mut connection = fresh.connect();
    let tx = connection.transaction().unwrap();
    let twice = event(1);
    Outbox::new().enqueue(&tx, &twice).unwrap();
    let refused = Outbox::new().enqueue(&tx, &twice).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert!(refused.to_string().contains(&twice.event().id.to_string()), "{refused}");
}

/// F20, R012, R123: what cannot be delivered is refused where its author sees it.
#[test]
fn what_breaks_a_rule_is_refused_with_its_reason() {
    let fresh = Fresh::new();
    let mut connection = fresh.connect();
    let tx = connection.transaction().unwrap();
    let outbox = Outbox::new();
    let large = event(1).bytes(vec![0; 1024 * 1024 + 1], "a/b");
    assert_eq!(outbox.enqueue(&tx, &large).unwrap_err().kind(), ErrorKind::TooLarge);
    // F20: before anything is written, with what it has and what it may have.
    let huge = event(1).bytes(vec![0; 100_000_000], "a/b");
    let refused = outbox.enqueue(&tx, &huge).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    assert!(refused.to_string().contains("100000000 bytes, the limit is 1048576"), "{refused}");
    let no_json = event(1).payload(Payload::Json("{".into()), "application/json");
    let erased = event(1).payload(Payload::Erased, "application/json");
    for bad in [NewEvent::new("", "1", "t"), event(1).source("a\nb"), no_json, erased] {
        let refused = outbox.enqueue(&tx, &bad).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    let small = outbox.limits(EventLimits { payload_bytes_max: 1, ..EventLimits::default() });
    assert_eq!(small.enqueue(&tx, &event(10)).unwrap_err().kind(), ErrorKind::TooLarge);
    tx.commit().unwrap();
    assert_eq!(rows(&fresh), 0);
}

/// Many are staged all or none, and the caller's own work in the transaction stays.
#[test]
fn of_many_events_a_refused_one_takes_none_with_it() {
    let fresh = Fresh::new();
    let mut connection = fresh.connect();
    connection.execute_batch("create table orders (id integer primary key)").unwrap();
    let tx = connection.transaction().unwrap();
    tx.execute("insert into orders values (1)", ()).unwrap();
    let twice = event(1);
    let refused = Outbox::new().enqueue_many(&tx, &[event(0), twice.clone(), twice]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    tx.commit().unwrap();
    assert_eq!(rows(&fresh), 0);
    assert_eq!(number(&connection, "select count(*) from orders"), 1);
}

/// Scheduled events enter in the order they are due, under the lease, and keep their content.
#[tokio::test]
async fn scheduled_events_enter_when_they_are_due() {
    let fresh = Fresh::new();
    let ago =
        |seconds: i64| Timestamp::from_micros(Timestamp::now().as_micros() - seconds * 1_000_000);
    let (first, second) = (event(1).deliver_after(ago(60)), event(2).deliver_after(ago(120)));
    let later = event(3).deliver_after(ago(-3_600));
    fresh.commit(&[first.clone(), second.clone(), later]);
    assert_eq!(rows(&fresh), 0);
    let (store, lease) = fresh.relay().await;
    let admitted = store.admit(&lease, 1).await.unwrap();
    assert_eq!(admitted.moved, 1);
    assert_eq!(admitted.next_in, Some(std::time::Duration::ZERO));
    let admitted = store.admit(&lease, 10).await.unwrap();
    assert_eq!(admitted.moved, 1);
    let next_in = admitted.next_in.unwrap();
    assert!(next_in.as_secs() > 3_500, "{next_in:?}");
    let page = fetch(&store, &lease, 0).await;
    let read: Vec<_> = page.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, [second.event().id, first.event().id]);
}
