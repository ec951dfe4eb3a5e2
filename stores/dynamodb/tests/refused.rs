//! What the service refuses and the emulator does not: played at the HTTP boundary.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::source::{DueRequest, OutboxSource as _};
use postrider_core::waiting::{NewWaiting, Passed, Placement, Reason};
use postrider_core::{ErrorKind, NewEvent};
use postrider_dynamodb::{
    Cancelled, Connection, DynamoStore, Item, Options, Outbox, Refusal, Settings,
};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::{Relay, a};

/// How often a kind of request is refused from now on.
#[derive(Clone, Default)]
struct Fails(Arc<AtomicU64>);

impl Fails {
    fn next(&self, times: u64) {
        self.0.store(times, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }
}

async fn through(fresh: &Fresh, rule: proxy::Rule) -> Connection {
    let own = proxy::start(&fresh::url().unwrap(), rule, Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    Connection::new(settings).unwrap()
}

fn polling(connection: Connection) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(connection, options)
}

fn of(key: &str) -> NewEvent {
    NewEvent::new("order", key, "order.changed")
}

async fn events(fresh: &Fresh) -> Vec<Item> {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let mut items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    items.retain(|item| item["sk"].as_s().unwrap().starts_with("OUTBOX#"));
    items
}

fn conflict(body: &Value) -> Then {
    let actions = body["TransactItems"].as_array().unwrap().len();
    let mut reasons = vec![json!({"Code": "None"}); actions];
    reasons[actions - 1] = json!({"Code": "TransactionConflict", "Message": "in the way"});
    let answer = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "Transaction cancelled",
        "CancellationReasons": reasons,
    });
    Then::Answer(400, answer)
}

/// R053: a transaction that meets another is tried again after pauses that differ, and is written once; one
/// that meets others every time is a typed error, and nothing was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_tried_again_with_jitter_and_then_told() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (fails, tries) = (Fails::default(), Arc::new(Mutex::new(Vec::new())));
    let (left, noted) = (fails.clone(), Arc::clone(&tries));
    let rule = move |operation: &str, body: &mut Value| {
        if operation != "TransactWriteItems" {
            return Then::Forward;
        }
        noted.lock().unwrap().push(Instant::now());
        if left.take() { conflict(body) } else { Then::Forward }
    };
    let outbox = Outbox::open(&through(&fresh, Box::new(rule)).await).await.unwrap();
    fails.next(4);
    outbox.write(&[], &[of("1")]).await.unwrap();
    assert_eq!(tries.lock().unwrap().len(), 5);
    assert_eq!(events(&fresh).await.len(), 1, "written once");
    tries.lock().unwrap().clear();
    fails.next(u64::MAX);
    let error = outbox.write(&[], &[of("1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(!error.is_of_store(), "others flow");
    let told = Cancelled::of(&error).expect("the reasons are there");
    assert_eq!(told.refusals, [None, Some(Refusal::Conflict)]);
    assert!(error.to_string().contains("nothing was written"), "{error}");
    let tries = tries.lock().unwrap().clone();
    assert!((2..=20).contains(&tries.len()), "{} tries", tries.len());
    let gaps: Vec<Duration> = tries.windows(2).map(|two| two[1] - two[0]).collect();
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(*most > *least * 2, "the pauses differ: {gaps:?}");
    assert_eq!(events(&fresh).await.len(), 1);
}

/// A throttled table delays: the client asks again, and what stays throttled fails as busy, with nothing lost:
/// what was not marked is marked when the same settlement comes again, and what was not read is read.
#[tokio::test(flavor = "multi_thread")]
async fn throttling_delays_and_loses_nothing() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let fails = Fails::default();
    let left = fails.clone();
    let rule = move |operation: &str, body: &mut Value| {
        let outbox = body["TableName"].as_str().is_some_and(|name| name.ends_with("outbox"));
        let kind = match operation {
            "Query" if outbox => "ThrottlingException",
            "UpdateItem" if outbox => "ProvisionedThroughputExceededException",
            _ => return Then::Forward,
        };
        match left.take() {
            true => Then::Answer(400, json!({"__type": kind, "message": "slow down"})),
            false => Then::Forward,
        }
    };
    let connection = through(&fresh, Box::new(rule)).await;
    Outbox::open(&fresh.connection).await.unwrap().write(&[], &[of("1"), of("2")]).await.unwrap();
    let relay = Relay::start(polling(connection)).await;
    fails.next(u64::MAX);
    let error = relay.try_read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    fails.next(1);
    let (settlement, rows) = relay.read_rows().await;
    assert_eq!(rows.len(), 2, "after one refusal the client asks again");
    fails.next(u64::MAX);
    let error = relay.store.settle(&settlement).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("throttled") && error.is_of_store(), "{error}");
    fails.next(0);
    assert!(events(&fresh).await.iter().any(|item| item.contains_key("pr_shard")), "pending yet");
    relay.store.settle(&settlement).await.unwrap();
    assert!(events(&fresh).await.iter().all(|item| item.contains_key("expires_at")));
    assert_eq!(relay.store.tallied().marked_by_others, 0);
}

/// A batch of which the service answers a part is asked for again until it is whole; one that it never
/// answers is busy, and what waits goes on waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_answer_is_completed() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (fails, batches) = (Fails::default(), Arc::new(Mutex::new(Vec::new())));
    let (left, seen) = (fails.clone(), Arc::clone(&batches));
    let rule = move |operation: &str, body: &mut Value| {
        if operation != "BatchGetItem" {
            return Then::Forward;
        }
        let requests = body["RequestItems"].as_object_mut().unwrap();
        let (table, wanted) = requests.iter_mut().next().unwrap();
        let keys = wanted["Keys"].as_array().unwrap().len();
        seen.lock().unwrap().push(keys);
        if left.take() {
            // Nothing of it was read.
            let all = json!({table: wanted.clone()});
            return Then::Answer(200, json!({"Responses": {}, "UnprocessedKeys": all}));
        }
        Then::Forward
    };
    // Of more than two keys two are answered, and the others left out.
    let edit = |operation: &str, asked: &Value, answer: &mut Value| {
        if operation != "BatchGetItem" {
            return;
        }
        let (table, wanted) = asked["RequestItems"].as_object().unwrap().iter().next().unwrap();
        let found = answer["Responses"][table].as_array_mut().unwrap();
        if found.len() <= 2 {
            return;
        }
        found.truncate(2);
        let is_found = |key: &Value| found.iter().any(|item| item["pk"] == key["pk"]);
        let mut left = wanted.clone();
        left["Keys"].as_array_mut().unwrap().retain(|key| !is_found(key));
        answer["UnprocessedKeys"] = json!({table: left});
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(edit)).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let connection = Connection::new(settings).unwrap();
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    outbox.write(&[], &["1", "2", "3", "4", "5"].map(of)).await.unwrap();
    let relay = Relay::start(polling(connection)).await;
    let (mut settlement, rows) = relay.read_rows().await;
    let part = &mut settlement.parts[0];
    for (passed, row) in part.passed.iter_mut().zip(&rows) {
        passed.1 = Passed::Waiting;
        part.waiting.push(NewWaiting {
            row: row.row,
            key_hash: row.key_hash,
            event: None,
            placement: Placement::Behind(Reason::Behind),
        });
    }
    relay.store.settle(&settlement).await.unwrap();
    let request = DueRequest {
        lease: settlement.lease.clone(),
        destination: a(),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    fails.next(2);
    let due = relay.store.due(&request).await.unwrap();
    assert_eq!(due.rows.len(), 5, "whole, and none taken for gone");
    assert_eq!(*batches.lock().unwrap(), [5, 5, 5, 3, 1]);
    fails.next(u64::MAX);
    let error = relay.store.due(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(relay.store.counts(&a()).await.unwrap().retrying, 5);
}

/// Clocks that are apart are told as such, and stop nobody for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_named() {
    let Some(fresh) = Fresh::new(1).await else { return };
    for (code, text) in [
        ("InvalidSignatureException", "Signature expired: 20200101T000000Z is now earlier than"),
        ("RequestTimeTooSkewed", "The difference between the request time and ours is too large"),
        ("RequestExpired", "Request has expired"),
    ] {
        let fails = Fails::default();
        let left = fails.clone();
        let rule = move |_: &str, _: &mut Value| match left.take() {
            true => Then::Answer(403, json!({"__type": code, "message": text})),
            false => Then::Forward,
        };
        let store = polling(through(&fresh, Box::new(rule)).await);
        fails.next(10);
        let error = store.open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(error.to_string().contains("clock"), "{error}");
        fails.next(0);
        store.open().await.unwrap();
    }
}
