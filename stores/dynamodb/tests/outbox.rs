//! The write side: an event with the change or not at all, numbered without a gap.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use futures_util::future::join_all;
use postrider_core::{ErrorKind, NewEvent};
use postrider_dynamodb::{Cancelled, Connection, Duplicate, Item, Outbox, Setup, init};

use crate::fresh::Fresh;
use crate::proxy::{self, Then};

fn placed(order: &str) -> NewEvent {
    NewEvent::new("order", order, "order.placed").json(&serde_json::json!({"total": 1250})).unwrap()
}

/// A put of a business item that must not be there yet.
fn order(table: &str, keys: [(&str, &str); 2]) -> TransactWriteItem {
    let item: Item = keys
        .iter()
        .map(|(name, value)| ((*name).to_owned(), AttributeValue::S((*value).to_owned())))
        .collect();
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(#pk)")
        .expression_attribute_names("#pk", keys[0].0);
    TransactWriteItem::builder().put(put.build().unwrap()).build()
}

async fn items(connection: &Connection, table: &str) -> Vec<Item> {
    let client = connection.tables().await;
    let scan = client.scan().table_name(table).consistent_read(true);
    Box::pin(scan.send()).await.unwrap().items.unwrap_or_default()
}

fn is_event(item: &Item, sk: &str) -> bool {
    item[sk].as_s().unwrap().starts_with("OUTBOX#")
}

/// R026, R051: orders and outbox in tables of their own, one transaction; a duplicate order cancels the
/// event too, and the error names the action.
#[tokio::test]
async fn a_condition_on_the_business_item_cancels_the_event_too() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let names = &fresh.settings.names;
    // The inbox's table is one with a business item in this test.
    let business = order(&names.inbox, [("pk", "ORDER#42"), ("sk", "METADATA")]);
    outbox.write(std::slice::from_ref(&business), &[placed("42")]).await.unwrap();
    let before = items(&fresh.connection, &names.outbox).await;
    assert_eq!(before.iter().filter(|item| is_event(item, "sk")).count(), 1);
    let error = outbox.write(&[business], &[placed("42")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let told: Vec<usize> = Cancelled::of(&error).unwrap().conditions().collect();
    assert_eq!(told, [0], "the application's own action");
    assert_eq!(
        items(&fresh.connection, &names.outbox).await,
        before,
        "no event, and no number drawn"
    );
}

/// R052: one table of the application's, and a query of the item collection returns both.
#[tokio::test]
async fn one_table_holds_the_change_and_its_events() {
    let Some(mut fresh) = Fresh::empty() else { return };
    let names = fresh.settings.names.clone();
    fresh.settings.names = names.clone().in_table(&names.outbox, "PK", "SK");
    fresh.connection = Connection::new(fresh.settings.clone()).unwrap();
    init(&fresh.connection, &Setup::default()).await.unwrap();
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let business = order(&names.outbox, [("PK", "ORDER#7"), ("SK", "METADATA")]);
    outbox.write_under("ORDER#7", &[business], &[placed("7"), placed("7")]).await.unwrap();
    let client = fresh.connection.tables().await;
    let query = client
        .query()
        .table_name(&names.outbox)
        .key_condition_expression("PK = :pk")
        .expression_attribute_values(":pk", AttributeValue::S("ORDER#7".to_owned()));
    let collection = Box::pin(query.send()).await.unwrap().items.unwrap();
    let of: Vec<&str> = collection.iter().map(|item| item["SK"].as_s().unwrap().as_str()).collect();
    let numbered = |n| format!("OUTBOX#{n:020}");
    assert_eq!(of, ["HEAD#OUTBOX", "METADATA", &numbered(1), &numbered(2)]);
}

/// R053: a hundred and one actions are a typed error, and nothing is sent.
#[tokio::test]
async fn more_than_a_hundred_actions_are_refused() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let events: Vec<NewEvent> = (0..100).map(|_| placed("1")).collect();
    let error = outbox.write(&[], &events).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("101"), "with the head: {error}");
    let large = NewEvent::new("order", "1", "t").bytes(vec![0; 500 * 1024], "a/b");
    let error = outbox.write(&[], &[large]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(items(&fresh.connection, &fresh.settings.names.outbox).await, []);
}

/// R058: where there is no number an event's id is its place, and a second put is a typed duplicate.
#[tokio::test]
async fn a_second_put_of_an_id_is_a_duplicate() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap().unordered();
    let event = placed("1");
    outbox.write(&[], std::slice::from_ref(&event)).await.unwrap();
    let error = outbox.write(&[], &[placed("2"), event.clone()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(Duplicate::of(&error), Some(Duplicate(event.event().id)));
    assert_eq!(items(&fresh.connection, &fresh.settings.names.outbox).await.len(), 1);
}

/// Eight writers of one key: conflicts are tried again, and the numbers have no gap.
#[tokio::test]
async fn writers_of_one_key_draw_numbers_without_a_gap() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let write = |_| async {
        let mut written = 0u64;
        for _ in 0..4 {
            // Busy after its tries: as any writer of a hot key, it begins again.
            while let Err(error) = outbox.write(&[], &[placed("1")]).await {
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            }
            written += 1;
        }
        written
    };
    let written: u64 = join_all((0..8).map(write)).await.into_iter().sum();
    let all = items(&fresh.connection, &fresh.settings.names.outbox).await;
    let numbers: BTreeSet<u64> = all
        .iter()
        .filter(|item| is_event(item, "sk"))
        .map(|item| item["n"].as_n().unwrap().parse().unwrap())
        .collect();
    assert_eq!(numbers, (1..=written).collect());
}

/// R026: the business item's version can be the number: then there is no head.
#[tokio::test]
async fn a_version_of_the_business_item_is_a_number() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let action = outbox.stage_numbered("order/9", 1, &placed("9")).unwrap();
    let client = fresh.connection.tables().await;
    let send = client.transact_write_items().transact_items(action.clone());
    Box::pin(send.send()).await.unwrap();
    let again = client.transact_write_items().transact_items(action);
    assert!(Box::pin(again.send()).await.is_err(), "the number is taken");
    let all = items(&fresh.connection, &fresh.settings.names.outbox).await;
    assert_eq!(all.len(), 1, "no head");
}

/// What is staged is printed without what the events say.
#[tokio::test]
async fn a_payload_is_not_shown_with_what_is_staged() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let secret = NewEvent::new("order", "1", "t").bytes(b"hunter2".to_vec(), "text/plain");
    let told = serde_json::json!({"card": "hunter2"});
    let told = NewEvent::new("order", "1", "t").header("x", "hunter2").json(&told).unwrap();
    let staged = outbox.stage(&[secret.clone(), told]).await.unwrap();
    let shown = format!("{staged:?}");
    assert!(shown.contains(&secret.event().id.to_string()), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("104, 117, 110"), "{shown}");
}

/// INV-3: where a key's head is behind its events, no later try passes: that is said, with the key and the number,
/// and not that others were in the way. A writer that is merely late is not taken for it.
#[tokio::test]
async fn a_head_that_is_behind_its_events_is_said_to_be() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let (client, names) = (fresh.connection.tables().await, &fresh.settings.names);
    // The application draws a key's first number itself, and then lets the store draw.
    let own = outbox.stage_numbered("order/9", 1, &placed("9")).unwrap();
    Box::pin(client.transact_write_items().transact_items(own).send()).await.unwrap();
    // Another key's head is deleted by hand.
    outbox.write(&[], &[placed("7")]).await.unwrap();
    let head = |sk: &str| AttributeValue::S(sk.to_owned());
    let gone = client.delete_item().table_name(&names.outbox).key("pk", head("order/7"));
    Box::pin(gone.key("sk", head("HEAD#OUTBOX")).send()).await.unwrap();
    let before = items(&fresh.connection, &names.outbox).await.len();
    for key in ["9", "7"] {
        let error = outbox.write(&[], &[placed("1"), placed(key)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        for words in [&*format!("key=order/{key}"), "taken=1", "HEAD", "stage_numbered"] {
            let words = words.replace("HEAD", "head");
            assert!(error.to_string().contains(&words), "{words}: {error}");
        }
    }
    assert_eq!(items(&fresh.connection, &names.outbox).await.len(), before, "nothing was written");
    // What the message says to do.
    let mend = client.update_item().table_name(&names.outbox).key("pk", head("order/7"));
    let mend = mend.key("sk", head("HEAD#OUTBOX")).update_expression("SET n = :n");
    let mend = mend.expression_attribute_values(":n", AttributeValue::N("1".to_owned()));
    Box::pin(mend.send()).await.unwrap();
    outbox.write(&[], &[placed("7")]).await.expect("the next number is free");
}

/// An outbox whose first so many transactions are carried out unheard, and the tokens of all that were sent.
async fn unheard(fresh: &Fresh, lost: usize) -> (Outbox, Arc<Mutex<Vec<String>>>) {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&tokens);
    let rule = move |operation: &str, asked: &mut serde_json::Value| {
        if operation != "TransactWriteItems" {
            return Then::Forward;
        }
        let mut sent = sent.lock().unwrap();
        sent.push(asked["ClientRequestToken"].as_str().unwrap().to_owned());
        match sent.len() <= lost {
            true => Then::Hold(Box::pin(std::future::pending())),
            false => Then::Forward,
        }
    };
    let mut settings = fresh.settings.clone();
    let upstream = settings.endpoint.clone().unwrap();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| ())).await);
    // An attempt takes half of it. Where every answer is lost there is nothing to be in time for.
    settings.call_time_max = Duration::from_secs(if lost == usize::MAX { 4 } else { 20 });
    (Outbox::open(&Connection::new(settings).unwrap()).await.unwrap(), tokens)
}

/// R005, R051: a write whose answer is lost is asked for again under its token, and the event is there once.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_there_once() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let (outbox, tokens) = unheard(&fresh, 1).await;
    let event = placed("1");
    outbox.write(&[], std::slice::from_ref(&event)).await.expect("written, and said twice");
    let tokens = tokens.lock().unwrap().clone();
    assert!(tokens.len() > 1 && tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    let all = items(&fresh.connection, &fresh.settings.names.outbox).await;
    let events: Vec<&Item> = all.iter().filter(|item| is_event(item, "sk")).collect();
    assert_eq!(events.len(), 1, "once");
    assert_eq!(events[0]["id"].as_s().unwrap(), &event.event().id.to_string());
}

/// R005: where no answer comes at all, the error does not say that nothing was written, and names the event: it is
/// there. A caller that writes it again with numbers has it twice, under one id.
#[tokio::test]
async fn a_write_that_nobody_heard_of_is_said_to_be_unknown() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let (outbox, tokens) = unheard(&fresh, usize::MAX).await;
    let event = placed("1");
    let error = outbox.write(&[], std::slice::from_ref(&event)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let (told, id) = (error.to_string(), event.event().id.to_string());
    assert!(told.contains(&id) && !told.contains("nothing was written"), "{told}");
    assert!(!tokens.lock().unwrap().is_empty());
    let ids = async || {
        let all = items(&fresh.connection, &fresh.settings.names.outbox).await;
        let events = all.into_iter().filter(|item| is_event(item, "sk"));
        events.map(|item| item["id"].as_s().unwrap().clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, std::slice::from_ref(&id), "it was carried out");
    let heard = Outbox::open(&fresh.connection).await.unwrap();
    heard.write(&[], &[event]).await.expect("the next number is free");
    assert_eq!(ids().await, [id.clone(), id], "two items of one event");
}
