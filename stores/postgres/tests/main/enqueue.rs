//! Staging events in the application's transaction.

use postrider_core::source::FetchedRow;
use postrider_core::{
    Destination, DestinationId, ErrorKind, Event, EventId, EventLimits, Format, HandlerName, Match,
    NewEvent, OutboxSource, Payload, Route, Timestamp, TopicRule,
};
use postrider_postgres::{Inbox, Outbox};

use crate::fetch::{after, beginning};
use crate::support::{Fresh, connect, destination};

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

/// Every field that an event can carry is a column, one by one and many at once.
#[tokio::test]
async fn every_field_is_written() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let full = || {
        event(1)
            .payload(Payload::json("{ \"z\" : 1.50, \"ü\":\"\\u00e4\" }").unwrap(), "text/json")
            .source("/elsewhere")
            .ordered_by("customer/7")
            .version(3)
            .tenant("acme")
            .header("traceparent", "00-1-2-01")
            .header("note", "grüße \"zum\" \\ Fest")
            .occurred_at("2001-02-03T04:05:06.789012Z".parse().unwrap())
    };
    let bytes = event(2).bytes((0..=255).collect::<Vec<u8>>(), "avro/binary");
    let tx = client.transaction().await.unwrap();
    outbox(&fresh).enqueue(&tx, &full()).await.unwrap();
    outbox(&fresh).enqueue_many(&tx, [&full(), &bytes]).await.unwrap();
    tx.commit().await.unwrap();
    let written = "select count(*) from {outbox} where source = '/elsewhere' \
        and key = 'customer/7' and event_version = 3 and tenant = 'acme' \
        and payload = '{ \"z\" : 1.50, \"ü\":\"\\u00e4\" }' and content_type = 'text/json' \
        and headers = '{\"traceparent\": \"00-1-2-01\", \"note\": \"grüße \\\"zum\\\" \\\\ Fest\"}' \
        and occurred_at = '2001-02-03 04:05:06.789012Z' and format = 1 \
        and created_at > now() - interval '1 minute'";
    assert_eq!(fresh.number(written).await, 2);
    let plain = "select count(*) from {outbox} where source is null and key is null \
        and headers = '{}' and length(payload_bytes) = 256 and payload is null";
    assert_eq!(fresh.number(plain).await, 1);
}

/// Events for later wait apart, alone and among others; the order of the others stays.
#[tokio::test]
async fn scheduled_events_wait_apart() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let due: Timestamp = "2126-01-01T00:00:00.000001Z".parse().unwrap();
    let later = |n| event(n).deliver_after(due);
    let tx = client.transaction().await.unwrap();
    outbox(&fresh).enqueue(&tx, &later(1)).await.unwrap();
    let mixed = [event(2), later(3), event(4), later(5)];
    outbox(&fresh).enqueue_many(&tx, &mixed).await.unwrap();
    outbox(&fresh).serialize_keys().enqueue_many(&tx, &[later(6), event(7)]).await.unwrap();
    outbox(&fresh).enqueue_many(&tx, &[]).await.unwrap();
    tx.commit().await.unwrap();
    let client = fresh.connect().await;
    for (table, expected) in [("{outbox}", "2 4 7"), ("{outbox_scheduled}", "1 3 5 6")] {
        let statement = format!("select string_agg(aggregate_id, ' ' order by seq) from {table}");
        let row = client.query_one(&fresh.sql(&statement), &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), expected);
    }
    let on_time =
        "select count(*) from {outbox_scheduled} where due_at = '2126-01-01 00:00:00.000001Z'";
    assert_eq!(fresh.number(on_time).await, 4);
}

/// Two transactions that write of one key and share no row: with the locks the second waits for the first,
/// so that numbers follow commits; without them it does not (the negative control).
#[tokio::test]
async fn locks_on_keys_make_numbers_follow_commits() {
    let Some(fresh) = Fresh::new(4).await else { return };
    for (outbox, waits) in [(outbox(&fresh), false), (outbox(&fresh).serialize_keys(), true)] {
        let (mut first, mut second) = (fresh.connect().await, fresh.connect().await);
        let tx = first.transaction().await.unwrap();
        outbox.enqueue(&tx, &event(1)).await.unwrap();
        let other = second.transaction().await.unwrap();
        other.batch_execute("set local lock_timeout = '200ms'").await.unwrap();
        outbox.enqueue(&other, &event(2)).await.expect("another key is free");
        let done = outbox.enqueue_many(&other, [&event(3), &event(1)]).await;
        assert_eq!(done.is_err(), waits, "{done:?}");
        if let Err(error) = done {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
        tx.commit().await.unwrap();
    }
}

/// R003: the function of other languages does what `enqueue` does: in the caller's transaction, with the
/// table's defaults, its rules, the locks, and events for later.
#[tokio::test]
async fn the_function_stages_an_event() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let call = |arguments: &str| fresh.sql(&format!("select {{enqueue}}({arguments})::text"));
    let tx = client.transaction().await.unwrap();
    tx.query_one(&call("'order', '1', 'order.placed', '{}'"), &[]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(rows(&fresh).await, 0);
    let plain = call("'order', '42', 'order.placed', '{\"total\": 1250}', tenant => 'acme'");
    let id: String = client.query_one(&plain, &[]).await.unwrap().get(0);
    assert_eq!(ids(&fresh).await, [id]);
    let bytes = call("'order', '42', 'b', payload_bytes => '\\x00ff', serialize => true");
    client.query_one(&bytes, &[]).await.unwrap();
    let nulls = call(
        "'order', '42', 'c', '{}', null, null, null, null, null, null, null, null, null, null, null, null",
    );
    client.query_one(&nulls, &[]).await.unwrap();
    let kinds = "select count(*) from {outbox} where content_type = case when payload is null \
        then 'application/octet-stream' else 'application/json' end and event_version = 1 \
        and headers = '{}' and occurred_at <= created_at";
    assert_eq!(fresh.number(kinds).await, 3);
    let later = call("'order', '42', 'd', '{}', due_at => now() + interval '1 hour'");
    client.query_one(&later, &[]).await.unwrap();
    assert_eq!(fresh.number("select count(*) from {outbox_scheduled}").await, 1);
    for refused in ["'', '42', 'order.placed', '{}'", "'order', '42', 'order.placed'"] {
        assert!(client.query_one(&call(refused), &[]).await.is_err(), "{refused}");
    }
    assert_eq!(rows(&fresh).await, 3);
    let tx = client.transaction().await.unwrap();
    tx.query_one(&call("'order', '7', 'a', '{}', serialize => true"), &[]).await.unwrap();
    let held =
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    assert_eq!(tx.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 1);
}

/// R123: what a destination cannot carry, because it is too large as its route writes it or would have no topic, is
/// refused in the caller's transaction, which goes on; and what destinations can carry is read once in a while.
#[tokio::test]
async fn what_a_destination_cannot_carry_is_refused() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let route = Route::all("shop.{aggregate_type}".parse().unwrap())
        .only(Match::event_type("order.*"))
        .format(Format::Debezium);
    let mut small = Destination::new(DestinationId::new("small").unwrap(), "queue", vec![route]);
    small.limits.message_bytes_max = Some(2_000);
    small.topics = TopicRule::Name;
    fresh.store().register(&[small]).await.unwrap();
    let mut client = fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let large = || event(1).bytes(vec![0; 2_000], "a/b");
    let odd = NewEvent::new("an order", "42", "order.placed");
    let careful = outbox(&fresh).preflight();
    for outbox in [&careful, &careful, &outbox(&fresh).preflight()] {
        let refused = outbox.enqueue(&tx, &large()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        assert!(format!("{refused:?}").contains("small"), "{refused:?}");
        let refused = outbox.enqueue_many(&tx, [&event(1), &odd]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("shop.an order"), "{refused}");
    }
    let elsewhere = NewEvent::new("an order", "42", "user.left").bytes(vec![0; 5_000], "a/b");
    careful.enqueue(&tx, &elsewhere).await.expect("the destination does not take it");
    // Read within the last minute, so nothing is asked.
    tx.execute(&fresh.sql("delete from {outbox_destination}"), &[]).await.unwrap();
    assert!(careful.clone().enqueue(&tx, &large()).await.is_err());
    assert!(outbox(&fresh).preflight().enqueue(&tx, &large()).await.is_ok());
    tx.rollback().await.unwrap();
    let tx = client.transaction().await.unwrap();
    outbox(&fresh).enqueue_many(&tx, [&large(), &odd]).await.expect("the control");
    tx.commit().await.unwrap();
}

/// R104: over the watermark `enqueue` answers with a typed error and the transaction goes on; the slowest
/// active destination counts, and before there is any, nothing was read.
#[tokio::test]
async fn over_the_watermark_events_are_refused() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let mut client = fresh.connect().await;
    let limited = outbox(&fresh).watermark(2);
    let tx = client.transaction().await.unwrap();
    limited.enqueue_many(&tx, &[event(1), event(2), event(3)]).await.expect("none before");
    let refused = limited.enqueue(&tx, &event(4)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    for says in ["3 events", "the limit is 2", "nothing was written"] {
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let refused = limited.enqueue_many(&tx, &[event(4)]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    outbox(&fresh).enqueue(&tx, &event(4)).await.expect("no watermark");
    tx.commit().await.unwrap();
    let (_store, _lease) = fresh.relay().await;
    for (change, taken) in [
        ("update {outbox_cursor} set floor = 1, position = 1, ground = 1", false),
        ("update {outbox_cursor} set floor = 2, position = 2, ground = 2", true),
        ("update {outbox_cursor} set floor = 0, position = 0, ground = 0", false),
        ("update {outbox_destination} set state = 'paused'", true),
    ] {
        fresh.run(change).await;
        let tx = client.transaction().await.unwrap();
        assert_eq!(limited.enqueue(&tx, &event(5)).await.is_ok(), taken, "{change}");
        tx.rollback().await.unwrap();
    }
}

/// A statement that is prepared once stages the same row in any transaction of its connection.
#[tokio::test]
async fn a_prepared_outbox_stages_the_same() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let prepared = outbox(&fresh).serialize_keys().prepare(&client).await.unwrap();
    for n in 0..3 {
        let tx = client.transaction().await.unwrap();
        prepared.enqueue(&tx, &event(n)).await.unwrap();
        prepared.enqueue(&tx, &event(n).deliver_after(Timestamp::now())).await.unwrap();
        prepared.enqueue_many(&tx, &[event(n)]).await.unwrap();
        let refused = prepared.enqueue(&tx, &event(n).version(0)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        tx.commit().await.unwrap();
    }
    assert_eq!(rows(&fresh).await, 6);
    assert_eq!(fresh.number("select count(*) from {outbox_scheduled}").await, 3);
}

/// One event, three hundred, and a marker are one round trip each, the first time too, since nothing is
/// prepared; one by one, three events are three (which shows that the counter counts).
#[tokio::test]
async fn each_call_is_one_round_trip() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let turns = postrider_testkit::turns::Turns::to(&fresh.url).unwrap();
    let mut client = connect(turns.url()).await;
    let (outbox, inbox) = (outbox(&fresh), Inbox::named(&fresh.names));
    let mut incoming = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
    incoming.source = "/shop".into();
    let billing = HandlerName::new("billing").unwrap();
    let many: Vec<NewEvent> = (0..300).map(event).collect();
    let tx = client.transaction().await.unwrap();
    let before = turns.count();
    outbox.enqueue(&tx, &event(1)).await.unwrap();
    assert_eq!(turns.count() - before, 1, "one event");
    outbox.enqueue_many(&tx, &many).await.unwrap();
    assert_eq!(turns.count() - before, 2, "many events");
    let _ = inbox.accept(&tx, &incoming, &billing).await.unwrap();
    assert_eq!(turns.count() - before, 3, "a marker");
    for event in &many[..3] {
        outbox.enqueue(&tx, event).await.unwrap();
    }
    assert_eq!(turns.count() - before, 6, "three by themselves");
    tx.commit().await.unwrap();
}

/// The payloads that a relay reads, as text.
async fn published(fresh: &Fresh) -> Vec<String> {
    let store = fresh.store();
    store.register(&[destination("a")]).await.expect("register");
    let page = store.fetch(&after(&beginning(), 100, 1 << 20)).await.expect("a page");
    let payload = |row: &FetchedRow| {
        let event = row.event.as_ref().expect("an event");
        String::from_utf8(event.payload.as_bytes().to_vec()).expect("text")
    };
    page.rows.iter().map(payload).collect()
}

/// R014: what is published is what the entity was when its event was enqueued, whatever becomes of the entity afterwards,
/// in the same transaction and in later ones; and nobody brings the event up to date.
#[tokio::test]
async fn a_payload_is_a_snapshot_of_its_moment() {
    let orders = "create table {schema}.orders (id bigint primary key, total bigint not null)";
    let Some(fresh) = Fresh::beside(1, orders).await else { return };
    let mut client = fresh.connect().await;
    let total = fresh.sql("select total from {schema}.orders where id = 42");
    let change = fresh.sql("update {schema}.orders set total = total + 1 where id = 42");
    fresh.run("insert into {schema}.orders values (42, 1)").await;
    for _ in 0..2 {
        let tx = client.transaction().await.unwrap();
        let now: i64 = tx.query_one(&total, &[]).await.unwrap().get(0);
        let changed = NewEvent::new("order", "42", "order.changed");
        let changed = changed.json(&serde_json::json!({ "total": now })).expect("JSON");
        outbox(&fresh).enqueue(&tx, &changed).await.unwrap();
        tx.batch_execute(&change).await.unwrap();
        tx.commit().await.unwrap();
    }
    let expected = ["{\"total\":1}", "{\"total\":2}"];
    assert_eq!(published(&fresh).await, expected);
    client.batch_execute(&change).await.unwrap();
    client.batch_execute(&fresh.sql("delete from {schema}.orders")).await.unwrap();
    assert_eq!(published(&fresh).await, expected, "the order is gone");
    let edit = fresh.sql("update {outbox} set payload = '{\"total\":9}'");
    let refused = client.batch_execute(&edit).await.unwrap_err();
    assert!(refused.as_db_error().is_some(), "{refused}");
    assert_eq!(published(&fresh).await, expected, "and nobody changes what was said");
}
