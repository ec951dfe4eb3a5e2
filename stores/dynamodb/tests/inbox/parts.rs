//! Results that have no room in the row's item: parts beside it, which count by the row's pointer alone.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
use postrider_core::operate::{Forgotten, InboxFilter, InboxName, Note, PageRequest};
use postrider_core::{Claim, ErrorKind, Event, InboxStore as _, NewEvent, Operator as _, Tried};
use postrider_dynamodb::{Connection, DynamoStore, Inbox, InboxOptions, Item, Options, Settings};
use serde_json::{Value, json};

use super::{LONG, billing, claim, claimed, event};
use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};

/// Sizes with their number of parts: just beyond an item with all that is in it, far beyond it, and the limit.
const SIZES: [(u128, usize, usize); 3] =
    [(1, 400 * 1024 - 100, 2), (2, 700 * 1024, 2), (3, RESULT_BYTES_MAX, 3)];

fn inbox(fresh: &Fresh) -> Inbox {
    Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap()
}

/// Bytes that differ from part to part.
fn result(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at / 1_000) as u8 ^ seed).collect()
}

/// All items of the table, however many pages they are.
async fn items(fresh: &Fresh) -> Vec<Item> {
    let client = fresh.connection.tables().await;
    let (mut items, mut from) = (Vec::new(), None);
    loop {
        let scan = client.scan().table_name(&fresh.connection.names().inbox);
        let scan = scan.consistent_read(true).set_exclusive_start_key(from);
        let page = Box::pin(scan.send()).await.unwrap();
        items.extend(page.items.unwrap_or_default());
        from = page.last_evaluated_key;
        if from.is_none() {
            return items;
        }
    }
}

/// The parts that stand in the table.
async fn parts(fresh: &Fresh) -> Vec<Item> {
    let mut parts = items(fresh).await;
    parts.retain(|item| item.contains_key("part"));
    parts.sort_by(|one, other| text(one, "sk").cmp(text(other, "sk")));
    parts
}

fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item[name].as_s().unwrap()
}

fn number(item: &Item, name: &str) -> i64 {
    item[name].as_n().unwrap().parse().unwrap()
}

fn key(item: &Item) -> Item {
    ["pk", "sk"].map(|name| (name.to_owned(), item[name].clone())).into()
}

/// What a copy is answered.
async fn stored(inbox: &Inbox, event: &Event) -> Vec<u8> {
    match claim(inbox, event, LONG).await {
        Claim::Processed { result } => result.to_vec(),
        other => panic!("it was done: {other:?}"),
    }
}

/// R085, R053: a result of any size up to the limit is returned to whoever asks again, also to another process. Its
/// parts expire after the row, so that none is found without them.
#[tokio::test]
async fn a_result_beyond_an_item_is_returned_whole() {
    let Some(fresh) = Fresh::new(1).await else { return };
    for (n, bytes, count) in SIZES {
        let before: BTreeSet<String> =
            parts(&fresh).await.iter().map(|part| text(part, "pk").to_owned()).collect();
        let lease = claimed(&inbox(&fresh), &event(n), LONG).await;
        inbox(&fresh).complete(&lease, &result(bytes, 7)).await.expect("it has room");
        inbox(&fresh).complete(&lease, &result(bytes, 7)).await.expect("said again");
        for _ in 0..2 {
            assert!(stored(&inbox(&fresh), &event(n)).await == result(bytes, 7), "{bytes}");
        }
        let all = items(&fresh).await;
        let id = event(n).id.to_string();
        let row = all
            .iter()
            .find(|item| item["event_id"].as_s() == Ok(&id) && text(item, "sk") == "inbox");
        let row = row.expect("its row");
        assert!(!row.contains_key("result_too_large"));
        let mut own = parts(&fresh).await;
        own.retain(|part| !before.contains(text(part, "pk")));
        assert_eq!(own.len(), count, "{bytes}");
        for part in own {
            assert_eq!(part["pk"], row["pk"]);
            // By a week, and by what passed until it was said again.
            assert!(number(&part, "expires_at") > number(row, "expires_at"));
        }
    }
}

/// R114: the parts of a worker that lost its claim are never read, whoever wrote first; they expire.
#[tokio::test]
async fn parts_of_a_worker_that_lost_its_claim_are_never_read() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = inbox(&fresh);
    let first = claimed(&inbox, &event(1), LONG).await;
    inbox.release(&first, Tried::Failed).await.unwrap();
    let second = claimed(&inbox, &event(1), LONG).await;
    let (theirs, ours) = (result(700 * 1024, 1), result(700 * 1024, 2));
    let late = inbox.complete(&first, &theirs).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
    assert!(matches!(claim(&inbox, &event(1), LONG).await, Claim::Leased { .. }));
    inbox.complete(&second, &ours).await.unwrap();
    let late = inbox.complete(&first, &theirs).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced, "also afterwards");
    assert!(stored(&inbox, &event(1)).await == ours);
    let parts = parts(&fresh).await;
    assert_eq!(parts.len(), 4);
    assert!(parts.iter().all(|part| part.contains_key("expires_at")));
}

/// R085: where the service has no capacity for a result in parts, the event is recorded as done without it: the effect is
/// not made again for want of its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_whose_parts_are_refused_gives_way_to_the_record() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let rule = |operation: &str, body: &mut Value| {
        let is_part = body["Key"]["sk"]["S"].as_str().is_some_and(|sk| sk.starts_with("result#"));
        if operation == "UpdateItem" && is_part {
            let kind = "ProvisionedThroughputExceededException";
            return Then::Answer(400, json!({"__type": kind, "message": "rate exceeded"}));
        }
        Then::Forward
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let connection = Connection::new(settings).unwrap();
    let inbox = Inbox::new(connection, InboxOptions::default()).unwrap();
    let lease = claimed(&inbox, &event(1), LONG).await;
    let error = inbox.complete(&lease, &result(700 * 1024, 7)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("it is recorded that it was done"), "{error}");
    assert_eq!(stored(&inbox, &event(1)).await, LeftOut::of(700 * 1024).to_bytes());
}

/// R085: where a part is missing, or is another's, what is left is not taken for the result. The event stays done, and
/// the answer says how large the result was. The negative control of what is returned whole.
#[tokio::test]
async fn a_result_with_a_missing_part_is_told_of_and_its_event_stays_done() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = inbox(&fresh);
    let client = fresh.connection.tables().await;
    let table = &fresh.connection.names().inbox;
    let bytes = RESULT_BYTES_MAX;
    let told = LeftOut::of(bytes as u64).to_bytes();
    let lease = claimed(&inbox, &event(1), LONG).await;
    inbox.complete(&lease, &result(bytes, 7)).await.unwrap();
    let parts = parts(&fresh).await;
    let mut other = parts[1].clone();
    let changed = result(parts[1]["part"].as_b().unwrap().as_ref().len(), 8);
    other.insert("part".to_owned(), AttributeValue::B(Blob::new(changed)));
    let put = client.put_item().table_name(table).set_item(Some(other));
    Box::pin(put.send()).await.unwrap();
    assert_eq!(stored(&inbox, &event(1)).await, told, "another part");
    let put = client.put_item().table_name(table).set_item(Some(parts[1].clone()));
    Box::pin(put.send()).await.unwrap();
    assert!(stored(&inbox, &event(1)).await == result(bytes, 7), "all of it again");
    let delete = client.delete_item().table_name(table).set_key(Some(key(&parts[2])));
    Box::pin(delete.send()).await.unwrap();
    assert_eq!(stored(&inbox, &event(1)).await, told, "no part");
}

/// What is beyond the limit as well is left out, with its size, and the event is done.
#[tokio::test]
async fn a_result_beyond_the_limit_is_refused_and_its_effect_is_not_repeated() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = inbox(&fresh);
    let large = result(RESULT_BYTES_MAX + 1, 7);
    let lease = claimed(&inbox, &event(1), LONG).await;
    let refused = inbox.complete(&lease, &large).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    assert!(refused.to_string().contains("it is not done again"), "{refused}");
    let told = LeftOut::read(&stored(&inbox, &event(1)).await);
    assert_eq!(told, LeftOut::instead_of(&large));
    assert_eq!(parts(&fresh).await.len(), 0);
}

/// Fills a claimed row with steps until not even a short one has room.
async fn fill(fresh: &Fresh) {
    let client = fresh.connection.tables().await;
    let row = items(fresh).await.remove(0);
    for bytes in (5..19).rev().map(|power| 1 << power) {
        let update = client.update_item().table_name(&fresh.connection.names().inbox);
        let update = update
            .set_key(Some(key(&row)))
            .update_expression("SET steps.#step = :result")
            .expression_attribute_names("#step", format!("s{bytes}"))
            .expression_attribute_values(":result", AttributeValue::B(Blob::new(vec![7; bytes])));
        // What has no room is refused, and half of it is tried.
        _ = Box::pin(update.send()).await;
    }
}

/// R085, R088: a row that its steps fill has no room for a pointer either: what they said goes, that they were made
/// stays, and the result is returned.
#[tokio::test]
async fn a_row_that_its_steps_fill_has_a_result_in_parts() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = inbox(&fresh);
    let lease = claimed(&inbox, &event(1), LONG).await;
    inbox.complete_step(&lease, "charge", b"receipt").await.unwrap();
    fill(&fresh).await;
    inbox.complete(&lease, &result(700 * 1024, 7)).await.expect("it has room beside the row");
    assert!(stored(&inbox, &event(1)).await == result(700 * 1024, 7));
    let mut rows = items(&fresh).await;
    rows.retain(|item| text(item, "sk") == "inbox");
    let steps = rows[0]["steps"].as_m().unwrap();
    assert!(steps.len() > 1 && steps.contains_key("charge"), "{:?}", steps.keys());
    assert!(steps.values().all(|said| said.as_b().unwrap().as_ref().is_empty()));
}

/// Old rows go with their parts, in a table without a time to live; so do parts that no row points to, when their time
/// has come, and no others.
#[tokio::test]
async fn a_purge_takes_parts_along() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = inbox(&fresh);
    let client = fresh.connection.tables().await;
    let first = claimed(&inbox, &event(1), LONG).await;
    inbox.release(&first, Tried::Failed).await.unwrap();
    let second = claimed(&inbox, &event(1), LONG).await;
    inbox.complete(&first, &result(700 * 1024, 1)).await.unwrap_err();
    inbox.complete(&second, &result(700 * 1024, 2)).await.unwrap();
    inbox.record_horizon(&billing(), Duration::ZERO).await.unwrap();
    assert_eq!(inbox.purge(LONG, 10).await.unwrap(), 0, "the row is young");
    assert_eq!(parts(&fresh).await.len(), 4, "and the time of none has come");
    for part in parts(&fresh).await {
        let update = client.update_item().table_name(&fresh.connection.names().inbox);
        let update = update
            .set_key(Some(key(&part)))
            .update_expression("SET expires_at = :past")
            .expression_attribute_values(":past", AttributeValue::N("1".to_owned()));
        Box::pin(update.send()).await.unwrap();
    }
    assert_eq!(inbox.purge(LONG, 10).await.unwrap(), 0, "the row is young");
    assert_eq!(parts(&fresh).await.len(), 2, "a row points to these");
    assert!(stored(&inbox, &event(1)).await == result(700 * 1024, 2));
    assert_eq!(inbox.purge(Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(items(&fresh).await.len(), 0);
}

/// A store's event that is done, with a result in parts beside those of a worker that lost its claim.
async fn done(fresh: &Fresh) -> (DynamoStore, Event) {
    let mut options = Options::default();
    options.stream = false;
    let store = DynamoStore::with(fresh.connection.clone(), options);
    let said = NewEvent::new("order", "1", "order.placed").json(&42).unwrap();
    store.stage(std::slice::from_ref(&said)).await.unwrap();
    let event = store.event(said.event().id).await.unwrap().event;
    let inbox = inbox(fresh);
    let first = claimed(&inbox, &event, LONG).await;
    inbox.release(&first, Tried::Failed).await.unwrap();
    let second = claimed(&inbox, &event, LONG).await;
    inbox.complete(&first, &result(700 * 1024, 1)).await.unwrap_err();
    inbox.complete(&second, &result(700 * 1024, 2)).await.unwrap();
    assert_eq!(parts(fresh).await.len(), 4);
    (store, event)
}

fn note() -> Note {
    Note::new("anna@db1", "a test").unwrap()
}

/// R100: an erasure leaves no part, those of a worker that lost its claim included, and the event stays done.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_takes_parts_along() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, event) = done(&fresh).await;
    let left = store.erasable("order/1").await.unwrap();
    assert_eq!((left.outbox, left.inbox), (1, 1), "parts are no results of their own");
    assert_eq!(store.erase("order/1", &note()).await.unwrap(), left);
    assert_eq!(store.erasable("order/1").await.unwrap().total(), 0);
    assert_eq!(parts(&fresh).await.len(), 0);
    assert!(stored(&inbox(&fresh), &event).await.is_empty());
}

/// R100: who looks sees the size of the whole and one row, and to forget the row takes its parts along. What another
/// worker left expires.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_takes_parts_along() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, event) = done(&fresh).await;
    let rows = store.inbox(&InboxFilter::default(), &PageRequest::default()).await.unwrap().rows;
    let sizes: Vec<u64> = rows.iter().map(|row| row.result_bytes).collect();
    assert_eq!(sizes, [700 * 1024]);
    let source = Some(event.source.to_string());
    let name = InboxName { event_id: event.id, handler: billing(), source };
    assert_eq!(store.forget(&name, &note()).await.unwrap(), Forgotten::Forgotten);
    let left = parts(&fresh).await;
    let is_of_the_first = |part: &Item| {
        let token = text(part, "sk").split('#').nth(1).unwrap().to_owned();
        // A token begins behind the moment, in microseconds of whole milliseconds.
        token.parse::<u64>().unwrap() % 1_000 == 1
    };
    assert!(left.len() == 2 && left.iter().all(is_of_the_first), "{left:?}");
    let third = claimed(&inbox(&fresh), &event, LONG).await;
    inbox(&fresh).complete(&third, b"receipt").await.unwrap();
    assert_eq!(stored(&inbox(&fresh), &event).await, b"receipt");
}
