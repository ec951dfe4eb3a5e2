//! The live path, and what it may do wrong: everything but lose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::{ErrorKind, EventId, NewEvent, OutboxSource as _};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// The longest that a test waits for what should come.
const PATIENCE: Duration = Duration::from_secs(120);
/// A backstop that never comes in a test.
const NEVER: Duration = Duration::from_secs(3_600);

fn changed(key: &str, n: u32) -> NewEvent {
    NewEvent::new("order", key, format!("order.changed.{n}"))
}

/// A store whose requests go through a proxy.
async fn through(
    fresh: &Fresh,
    rule: proxy::Rule,
    edit: proxy::Edit,
    options: Options,
) -> DynamoStore {
    let own = proxy::start(&fresh::url().unwrap(), rule, edit).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    DynamoStore::with(Connection::new(settings).unwrap(), options)
}

fn backstop(after: Duration) -> Options {
    let mut options = Options::default();
    options.backstop = after;
    options
}

async fn write(outbox: &Outbox, event: NewEvent) -> EventId {
    let id = event.event().id;
    outbox.write(&[], &[event]).await.unwrap();
    id
}

async fn heard(relay: &mut Relay, events: usize) -> Vec<EventId> {
    tokio::time::timeout(PATIENCE, relay.hear(events)).await.expect("the events come in time")
}

/// R042: commits are heard of by the stream: the index is asked at the start and not again, however
/// often the relay looks.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_tells_of_commits_and_the_index_is_left_alone() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let rule = move |operation: &str, body: &mut Value| {
        if operation == "Query" && body.get("IndexName").is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Then::Forward
    };
    let store = through(&fresh, Box::new(rule), Box::new(|_, _, _| ()), backstop(NEVER)).await;
    let mut relay = Relay::live(store).await;
    let first = write(&outbox, changed("1", 0)).await;
    assert_eq!(heard(&mut relay, 1).await, [first]);
    relay.drain().await;
    let told = |relay: &Relay| {
        let tally = relay.store.tallied();
        usize::try_from(tally.interruptions + tally.gaps).unwrap()
    };
    let before = (asked.load(Ordering::SeqCst), told(&relay));
    for n in 1..6 {
        let sent = write(&outbox, changed("1", n)).await;
        assert_eq!(heard(&mut relay, 1).await, [sent]);
    }
    for _ in 0..20 {
        assert_eq!(relay.drain().await.len(), 0);
    }
    // After a gap, on a machine that is too busy to answer, both partitions are listed again.
    let excused = 2 * (told(&relay) - before.1);
    let more = asked.load(Ordering::SeqCst) - before.0;
    assert!(more <= excused, "twenty looks of an idle relay cost {more} queries");
}

/// R047: marks, deletions, and items that are none of ours wake nobody and publish nothing.
#[tokio::test(flavor = "multi_thread")]
async fn only_inserts_of_events_are_heard() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let mut relay = Relay::live(DynamoStore::with(fresh.connection.clone(), backstop(NEVER))).await;
    let first = write(&outbox, changed("1", 0)).await;
    assert_eq!(heard(&mut relay, 1).await, [first], "and it was marked, which is an update");
    let client = fresh.connection.tables().await;
    let names = &fresh.settings.names;
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let put = client.put_item().table_name(&names.outbox).item("pk", text("order/1"));
    Box::pin(put.item("sk", text("METADATA")).send()).await.unwrap();
    let delete = client.delete_item().table_name(&names.outbox).key("pk", text("order/1"));
    Box::pin(delete.key("sk", text(&format!("OUTBOX#{:020}", 1))).send()).await.unwrap();
    let last = write(&outbox, changed("1", 9)).await;
    assert_eq!(heard(&mut relay, 1).await, [last], "and nothing before it");
}

/// R049: a record without its image is counted, and the event is fetched by its key.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_counted_and_the_event_comes() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let edit = |operation: &str, _: &Value, answer: &mut Value| {
        if operation == "GetRecords" {
            for record in answer["Records"].as_array_mut().into_iter().flatten() {
                record["dynamodb"].as_object_mut().unwrap().remove("NewImage");
            }
        }
    };
    let store =
        through(&fresh, Box::new(|_, _| Then::Forward), Box::new(edit), backstop(NEVER)).await;
    let mut relay = Relay::live(store).await;
    let mut sent = vec![write(&outbox, changed("1", 0)).await];
    assert_eq!(heard(&mut relay, 1).await, sent);
    sent.push(write(&outbox, changed("1", 1)).await);
    assert_eq!(heard(&mut relay, 1).await, sent[1..]);
    assert!(relay.store.tallied().without_image > 0);
}

/// R045, F28: iterators expire and records are trimmed: the reader seeks anew, the index fills the gap, and
/// nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn expired_iterators_and_trimmed_records_lose_nothing() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let fails = Arc::new(AtomicU64::new(0));
    let left = Arc::clone(&fails);
    let rule = move |operation: &str, _: &mut Value| {
        let kinds = ["ExpiredIteratorException", "TrimmedDataAccessException"];
        let take = |left: u64| left.checked_sub(1);
        match operation {
            "GetRecords" => match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
                Ok(n) => Then::Answer(400, json!({ "__type": kinds[usize::from(n % 2 == 1)] })),
                Err(_) => Then::Forward,
            },
            _ => Then::Forward,
        }
    };
    let store = through(&fresh, Box::new(rule), Box::new(|_, _, _| ()), backstop(NEVER)).await;
    let mut relay = Relay::live(store).await;
    for n in 0..6 {
        fails.store(1 + u64::from(n % 2), Ordering::SeqCst);
        let sent = write(&outbox, changed("1", n)).await;
        assert_eq!(heard(&mut relay, 1).await, [sent], "{n}");
        while fails.load(Ordering::SeqCst) > 0 {
            // waits: the reader of the stream has to meet the failures
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(relay.store.tallied().gaps > 0, "records were trimmed");
}

/// R043: with the stream silent, the backstop over the index finds what was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_delays_events_until_the_backstop() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let edit = |operation: &str, _: &Value, answer: &mut Value| {
        if operation == "GetRecords" {
            answer["Records"] = json!([]);
        }
    };
    let period = Duration::from_secs(2);
    let store =
        through(&fresh, Box::new(|_, _| Then::Forward), Box::new(edit), backstop(period)).await;
    let mut relay = Relay::live(store).await;
    let sent = write(&outbox, changed("1", 0)).await;
    let find = async {
        loop {
            if let Some(row) = relay.drain().await.first() {
                return row.row.id;
            }
            // waits: the backstop's period has to pass, and nobody wakes
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, find).await.expect("within the period"), sent);
}

/// R046: records that come twice and in another order change nothing: each event once, in its key's order.
#[tokio::test(flavor = "multi_thread")]
async fn doubled_and_reordered_records_change_nothing() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let edit = |operation: &str, _: &Value, answer: &mut Value| {
        if operation == "GetRecords" {
            let Some(records) = answer["Records"].as_array_mut() else { return };
            records.reverse();
            records.extend(records.clone());
        }
    };
    let store =
        through(&fresh, Box::new(|_, _| Then::Forward), Box::new(edit), backstop(NEVER)).await;
    let mut relay = Relay::live(store).await;
    let mut sent = Vec::new();
    for n in 0..20 {
        sent.push(write(&outbox, changed("1", n)).await);
    }
    assert_eq!(heard(&mut relay, 20).await, sent);
    assert_eq!(relay.drain().await.len(), 0);
}

/// R054: a stream without images is refused at the start, and the message says which it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_keys_only_is_refused_at_the_start() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let edit = |operation: &str, _: &Value, answer: &mut Value| {
        if operation == "DescribeTable" {
            answer["Table"]["StreamSpecification"]["StreamViewType"] = json!("KEYS_ONLY");
        }
    };
    let rule = Box::new(|_: &str, _: &mut Value| Then::Forward);
    let store = through(&fresh, rule, Box::new(edit), Options::default()).await;
    let error = store.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("KEYS_ONLY"), "{error}");
}
