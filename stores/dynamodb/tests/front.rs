//! The front of the index has its turn, whatever is told meanwhile, and names are not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::{ErrorKind, NewEvent, Timestamp};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// A backstop that never comes in a test.
const NEVER: Duration = Duration::from_secs(3_600);

fn of(key: &str) -> NewEvent {
    NewEvent::new("order", key, "order.changed")
}

async fn store(
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

fn with(stream: bool, backstop: Duration) -> Options {
    let mut options = Options::default();
    (options.stream, options.backstop) = (stream, backstop);
    options
}

/// R043: an event of which the stream does not tell comes with the backstop, also in a partition that is never
/// without new names: it does not wait for a lull.
#[tokio::test(flavor = "multi_thread")]
async fn the_backstop_has_its_time_whatever_the_stream_tells() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let edit = |operation: &str, _: &Value, answer: &mut Value| {
        if operation == "GetRecords" {
            let Some(records) = answer["Records"].as_array_mut() else { return };
            records.retain(|record| record["dynamodb"]["Keys"]["pk"]["S"] != "order/hidden");
        }
    };
    let backstop = Duration::from_secs(3);
    let rule = Box::new(|_: &str, _: &mut Value| Then::Forward);
    let store = store(&fresh, rule, Box::new(edit), with(true, backstop)).await;
    let mut relay = Relay::live(store).await;
    outbox.write(&[], &[of("hidden")]).await.unwrap();
    for chunk in 0..4 {
        let events: Vec<_> = (0..25).map(|n| of(&format!("{chunk}-{n}"))).collect();
        outbox.write(&[], &events).await.unwrap();
    }
    // waits: the backstop's period has to pass
    tokio::time::sleep(backstop).await;
    let mut keys = Vec::new();
    for _ in 0..10 {
        let rows = relay.take(1).await.unwrap();
        keys.extend(rows.into_iter().map(|row| row.event.unwrap().key()));
    }
    assert!(keys.iter().any(|key| key == "order/hidden"), "{keys:?}");
    assert!(keys.len() == 10 && keys[0] != keys[1], "and the others had their turns: {keys:?}");
}

/// A producer whose clock is an hour ahead moves nobody's reading ahead: the next event of another is found
/// at the next poll.
#[tokio::test]
async fn a_producer_whose_clock_is_ahead_hides_nobody() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let mut relay =
        Relay::start(DynamoStore::with(fresh.connection.clone(), with(false, NEVER))).await;
    assert_eq!(relay.drain().await.len(), 0);
    outbox.write(&[], &[of("ahead")]).await.unwrap();
    let client = fresh.connection.tables().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let later = Timestamp::now().as_micros() / 1_000 + 3_600_000;
    let update = client
        .update_item()
        .table_name(&fresh.settings.names.outbox)
        .key("pk", text("order/ahead"))
        .key("sk", text(&format!("OUTBOX#{:020}", 1)))
        .update_expression("SET pr_at = :later")
        .expression_attribute_values(":later", AttributeValue::N(later.to_string()));
    Box::pin(update.send()).await.unwrap();
    assert_eq!(relay.drain().await.len(), 1);
    outbox.write(&[], &[of("now")]).await.unwrap();
    assert_eq!(relay.drain().await.len(), 1, "by the poll, and not by the backstop");
}

/// Names that were taken for a read that failed are there for the next one: nothing waits for the backstop.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_a_read_that_failed_come_back_at_once() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let fails = Arc::new(AtomicU64::new(0));
    let left = Arc::clone(&fails);
    let rule = move |operation: &str, body: &mut Value| {
        let take = |left: u64| left.checked_sub(1);
        let outbox = || body["TableName"].as_str().unwrap().ends_with("outbox");
        let reads = operation == "Query" && body.get("IndexName").is_none() && outbox();
        if reads && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return Then::Answer(400, json!({ "__type": "AccessDeniedException" }));
        }
        Then::Forward
    };
    let store = store(&fresh, Box::new(rule), Box::new(|_, _, _| ()), with(true, NEVER)).await;
    let mut relay = Relay::live(store).await;
    fails.store(1, Ordering::SeqCst);
    outbox.write(&[], &[of("1"), of("2"), of("3")]).await.unwrap();
    let mut failed = 0;
    let mut rows = Vec::new();
    while rows.len() < 3 {
        match relay.take(100).await {
            Ok(more) if more.is_empty() => {
                let woken = tokio::time::timeout(Duration::from_secs(20), relay.woken());
                woken.await.expect("a name that was taken is told of, or there still");
            }
            Ok(more) => rows.extend(more),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
                failed += 1;
                // What was told of is not told again: the next reading has it, or nobody.
                rows.extend(relay.take(100).await.unwrap());
                assert!(!rows.is_empty(), "the names are there");
            }
        }
    }
    assert_eq!((failed, fails.load(Ordering::SeqCst)), (1, 0));
}

/// Events without numbers are read in batches, each once, and what a page has no room for comes with the next.
#[tokio::test(flavor = "multi_thread")]
async fn events_without_numbers_are_read_in_batches() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap().unordered();
    let events: Vec<_> = (0..70).map(|n| of(&n.to_string())).collect();
    outbox.write(&[], &events).await.unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let rule = move |operation: &str, body: &mut Value| {
        let item = body["TableName"].as_str().is_some_and(|name| name.ends_with("outbox"));
        if operation == "BatchGetItem" || (operation == "GetItem" && item) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Then::Forward
    };
    let store = store(&fresh, Box::new(rule), Box::new(|_, _, _| ()), with(false, NEVER)).await;
    let mut relay = Relay::start(store).await;
    let mut ids = std::collections::BTreeSet::new();
    for rows_max in [10, 20, 100] {
        let rows = relay.take(rows_max).await.unwrap();
        assert!(rows.len() <= rows_max as usize);
        ids.extend(rows.iter().map(|row| row.row.id));
    }
    assert_eq!(ids.len(), 70, "each once");
    assert!(calls.load(Ordering::SeqCst) <= 5, "{} calls", calls.load(Ordering::SeqCst));
    assert_eq!(relay.drain().await.len(), 0);
}
