//! A key's item collection that is split over two servers, each page of a query answered at a moment of its
//! own: no number is handed out over a smaller one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::NewEvent;
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then, aside};
use crate::relay::Relay;

const KEY: &str = "order/1";
/// The first number of the upper half.
const SPLIT: u64 = 6;

fn sk(n: u64) -> String {
    format!("OUTBOX#{n:020}")
}

fn change() -> NewEvent {
    NewEvent::new("order", "1", "order.changed")
}

/// Whether it is a query of the key's collection over the border.
fn crosses(operation: &str, body: &Value) -> bool {
    let values = &body["ExpressionAttributeValues"];
    let bound = |name: &str| values[name]["S"].as_str().unwrap_or_default().to_owned();
    operation == "Query"
        && values[":pk"]["S"] == KEY
        && (bound(":low")..=bound(":high")).contains(&sk(SPLIT))
        && bound(":low") < sk(SPLIT)
}

/// A proxy that answers a query of the key's collection in two pages, as two servers would; between them
/// a writer commits the numbers 5, 6, and 7.
async fn split(fresh: &Fresh) -> (String, Arc<AtomicUsize>) {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    for _ in 0..4 {
        outbox.write(&[], &[change()]).await.unwrap();
    }
    let (between, settings) = (Arc::new(AtomicUsize::new(0)), fresh.settings.clone());
    let seen = Arc::clone(&between);
    let rule = move |operation: &str, body: &mut Value| {
        if !crosses(operation, body) {
            return Then::Forward;
        }
        if body.get("ExclusiveStartKey").is_none() {
            // The first page ends at the border, whether it holds anything or not.
            let upwards = body["ScanIndexForward"] != json!(false);
            let (bound, number) = if upwards { (":high", SPLIT - 1) } else { (":low", SPLIT) };
            body["ExpressionAttributeValues"][bound]["S"] = json!(sk(number));
            body["ReturnConsumedCapacity"] = json!("TOTAL");
        } else if seen.fetch_add(1, Ordering::SeqCst) == 0 {
            let settings = settings.clone();
            aside(move || async move {
                let outbox = Outbox::open(&Connection::new(settings).unwrap()).await.unwrap();
                for _ in 0..3 {
                    outbox.write(&[], &[change()]).await.unwrap();
                }
            });
        }
        Then::Forward
    };
    let edit = |operation: &str, asked: &Value, answer: &mut Value| {
        // The mark of a query whose bound was moved to the border.
        if operation == "Query" && asked["ReturnConsumedCapacity"] == "TOTAL" {
            let upwards = asked["ScanIndexForward"] != json!(false);
            let border = if upwards { SPLIT - 1 } else { SPLIT };
            answer["LastEvaluatedKey"] = json!({"pk": {"S": KEY}, "sk": {"S": sk(border)}});
        }
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(edit)).await;
    (own, between)
}

/// By way of the proxy, with a call's time for a busy machine.
fn through(fresh: &Fresh, own: String) -> Connection {
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    Connection::new(settings).unwrap()
}

/// INV-3: numbers that are committed between two pages are handed out without a gap.
#[tokio::test(flavor = "multi_thread")]
async fn a_split_collection_is_handed_out_in_order() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (own, between) = split(&fresh).await;
    let mut options = Options::default();
    options.stream = false;
    let connection = through(&fresh, own);
    let mut relay = Relay::start(DynamoStore::with(connection, options)).await;
    let mut numbers = Vec::new();
    for _ in 0..10 {
        numbers.extend(relay.drain().await.iter().map(|row| row.row.seq & 0xff));
    }
    assert!(between.load(Ordering::SeqCst) > 0, "the writer committed between two pages");
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7], "each once, in order");
}

/// The same collection read upwards shows 6 and 7 without 5: the test above can fail.
#[tokio::test(flavor = "multi_thread")]
async fn read_upwards_a_split_collection_has_a_hole() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (own, _) = split(&fresh).await;
    let connection = through(&fresh, own);
    let client = connection.tables().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let (mut numbers, mut from) = (Vec::new(), None);
    loop {
        let query = client
            .query()
            .table_name(&fresh.settings.names.outbox)
            .key_condition_expression("pk = :pk AND sk BETWEEN :low AND :high")
            .expression_attribute_values(":pk", text(KEY))
            .expression_attribute_values(":low", text(&sk(0)))
            .expression_attribute_values(":high", text(&sk(99)))
            .consistent_read(true)
            .set_exclusive_start_key(from.take());
        let page = Box::pin(query.send()).await.unwrap();
        let items = page.items.unwrap_or_default();
        numbers.extend(items.iter().map(|item| item["n"].as_n().unwrap().clone()));
        from = page.last_evaluated_key;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(numbers, ["1", "2", "3", "4", "6", "7"]);
}

/// INV-8: an event behind a long run of numbers that are not pending, as a crash between marks leaves it, is handed
/// out all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_that_is_settled_hides_nothing_behind_it() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let mut options = Options::default();
    options.stream = false;
    let mut relay = Relay::start(DynamoStore::with(fresh.connection.clone(), options)).await;
    for _ in 0..41 {
        outbox.write(&[], &[change()]).await.unwrap();
    }
    let client = fresh.connection.tables().await;
    for n in 2..=41 {
        let update = client
            .update_item()
            .table_name(&fresh.settings.names.outbox)
            .key("pk", AttributeValue::S(KEY.to_owned()))
            .key("sk", AttributeValue::S(sk(n)))
            .update_expression("REMOVE pr_shard");
        Box::pin(update.send()).await.unwrap();
    }
    assert_eq!(relay.drain().await.len(), 1, "the first one is pending");
    outbox.write(&[], &[change()]).await.unwrap();
    assert_eq!(relay.drain().await.len(), 1, "the one behind them is handed out");
}
