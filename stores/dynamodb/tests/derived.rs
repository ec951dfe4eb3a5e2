//! Events that are made of business items: what is written is published in its newest version, and a version is
//! never lost to the settlement of an older one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use postrider_core::source::FetchedRow;
use postrider_core::{ErrorKind, Event, EventId, NewEvent, OutboxSource as _};
use postrider_dynamodb::{
    Connection, DynamoStore, ITEM_VERSION_HEADER, Item, Options, Outbox, Settings,
};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::{LONG, Relay};
use crate::shop::{SK, Shop, derivation, deriving, text};

/// A lease that ends soon.
const SHORT: Duration = Duration::from_millis(800);
/// The longest that a test waits for what should come.
const PATIENCE: Duration = Duration::from_secs(120);
fn ids(rows: &[FetchedRow]) -> Vec<EventId> {
    rows.iter().map(|row| row.row.id).collect()
}

fn event(row: &FetchedRow) -> &Event {
    row.event.as_ref().expect("it is an event")
}

/// What an event says.
fn said(event: &Event) -> Value {
    serde_json::from_slice(event.payload.as_bytes()).unwrap()
}

/// R027, R048: an order that is written with its stamp is an event, made by the mapping, without an item in the
/// outbox; what its transaction rolls back is none. Published, the order has lost what named it in the index,
/// and nothing else: there is no time to live on it, and no mark.
#[tokio::test]
async fn a_business_item_is_an_event_without_an_outbox_item() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let shop = Shop::open(&fresh).await;
    let (order, stamp) = shop.order("1", 3);
    let (never, _) = shop.order("2", 1);
    let put = |item: Item, condition: Option<&str>| {
        let put = Put::builder().table_name(&fresh.settings.names.outbox).set_item(Some(item));
        let put = put.set_condition_expression(condition.map(str::to_owned));
        TransactWriteItem::builder().put(put.build().unwrap()).build()
    };
    let client = fresh.connection.tables().await;
    let write = client.transact_write_items().transact_items(put(order.clone(), None));
    Box::pin(write.send()).await.unwrap();
    let back = client.transact_write_items().transact_items(put(never, None));
    let back = back.transact_items(put(order.clone(), Some("attribute_not_exists(pk)")));
    Box::pin(back.send()).await.unwrap_err();
    let mut relay = Relay::start(deriving(&fresh.connection)).await;
    let rows = relay.drain().await;
    assert_eq!(ids(&rows), [stamp.id()]);
    let event = event(&rows[0]);
    assert_eq!((&*event.key(), &*event.event_type), ("order/1", "order.changed"));
    assert_eq!(event.headers[ITEM_VERSION_HEADER], "3");
    assert_eq!(event.occurred_at, event.created_at);
    let expected = json!({"pk": "order/1", "sk": "ORDER", "amount": 300, "published_at": "in print",
                          "seq": 7});
    assert_eq!(said(event), expected, "plain, and without the stamp");
    let mut left = order;
    left.retain(|name, _| name != "pr_shard" && name != "pr_at");
    assert_eq!(shop.items().await, [left], "no item of the outbox, no time to live, and no mark");
    assert_eq!(relay.drain().await.len(), 0, "it is published once");
    // An update is an event as a put is.
    let second = shop.update("1", 4).await;
    let rows = relay.drain().await;
    assert_eq!(
        (ids(&rows), said(self::event(&rows[0]))["amount"].as_u64()),
        (vec![second], Some(400))
    );
}

/// R027: versions that were overwritten before they were published are merged into the newest: no event for each
/// change, and the last state wins. What was published before is not sent again.
#[tokio::test]
async fn overwritten_versions_are_merged_into_the_newest() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let shop = Shop::open(&fresh).await;
    let mut relay = Relay::start(deriving(&fresh.connection)).await;
    let first = shop.put("1", 1).await;
    assert_eq!(ids(&relay.drain().await), [first]);
    for version in 2..=4 {
        shop.put("1", version).await;
    }
    let newest = shop.put("1", 5).await;
    let other = shop.put("2", 1).await;
    let rows = relay.drain().await;
    let mut came = ids(&rows);
    came.sort();
    assert_eq!(came, [newest, other], "one event for four changes");
    let merged = rows.iter().find(|row| row.row.id == newest).unwrap();
    assert_eq!(said(event(merged))["amount"], 500);
    assert_eq!(relay.drain().await.len(), 0);
    assert!(shop.lost(&[first, newest, other]).await.is_empty());
}

/// R027, INV-1: a version that is written between the publication of the one before and its mark stays pending, is
/// handed out though that one is not settled yet, behind it, and is published; a mark without the condition would
/// lose it, and the check sees that.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_written_before_the_mark_of_the_last_one_is_not_lost() {
    for honest in [true, false] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let shop = Shop::open(&fresh).await;
        let rule = move |operation: &str, body: &mut Value| {
            if operation == "UpdateItem" && !honest && body["UpdateExpression"] != Value::Null {
                without_condition(body);
            }
            Then::Forward
        };
        let own =
            proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
        let mut settings = Settings::at(own, fresh.settings.names.clone());
        settings.call_time_max = fresh.settings.call_time_max;
        let mut relay = Relay::start(deriving(&Connection::new(settings).unwrap())).await;
        let first = shop.put("1", 1).await;
        let (late, rows) = relay.read_rows().await;
        assert_eq!(ids(&rows), [first], "published");
        let second = shop.put("1", 2).await;
        relay.store.settle(&late).await.unwrap();
        relay.store.settle(&late).await.unwrap();
        let mut published = ids(&rows);
        published.extend(ids(&relay.drain().await));
        match honest {
            true => {
                assert_eq!(published, [first, second]);
                assert_eq!(shop.lost(&published).await, []);
                assert_eq!(relay.store.tallied().marked_by_others, 1, "the first one's mark");
            }
            false => assert_eq!(shop.lost(&published).await, [second], "the control"),
        }
        assert_eq!(relay.drain().await.len(), 0);
    }
}

/// Takes the condition of a mark away.
fn without_condition(body: &mut Value) {
    if body["UpdateExpression"] == "REMOVE pr_shard, pr_at" {
        let body = body.as_object_mut().unwrap();
        body.remove("ConditionExpression");
        body.remove("ExpressionAttributeValues");
    }
}

/// R027, INV-1: a relay is killed between publication and mark, and the item is changed before another one has the
/// partition: the newest version is published, and the dead one's word, however late, takes nothing away. Where the
/// item was not changed, the same event comes again.
#[tokio::test]
async fn a_kill_between_publication_and_mark_loses_no_version() {
    for changed in [true, false] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let shop = Shop::open(&fresh).await;
        let first = shop.put("1", 1).await;
        let killed = Relay::start_for(deriving(&fresh.connection), SHORT).await;
        let (late, rows) = killed.read_rows().await;
        assert_eq!(ids(&rows), [first]);
        let newest = if changed { shop.put("1", 2).await } else { first };
        let next = deriving(&fresh.connection);
        let mut next = loop {
            let next = Relay::start_for(next.beside(), LONG).await;
            if next.owns() > 0 {
                break next;
            }
            // waits: the dead relay's lease has to run out
            tokio::time::sleep(SHORT / 8).await;
        };
        let error = killed.store.settle(&late).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        let came = next.drain().await;
        assert_eq!(ids(&came), [newest]);
        if !changed {
            assert_eq!(event(&came[0]), event(&rows[0]), "the same event, byte for byte");
        }
        assert_eq!(shop.lost(&[first, newest]).await, []);
        assert_eq!(next.drain().await.len(), 0);
    }
}

/// R027, R044: two relays that both think that they own the partition saw different versions: of their marks only
/// that of the newest one takes the item from the index, in whatever order they come.
#[tokio::test]
async fn of_two_marks_only_that_of_the_newest_version_counts() {
    for newest_first in [true, false] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let shop = Shop::open(&fresh).await;
        let one = Relay::start(deriving(&fresh.connection)).await;
        let other = one.twin(deriving(&fresh.connection)).await;
        shop.put("1", 1).await;
        let (old, _) = one.read_rows().await;
        shop.put("1", 2).await;
        let (new, _) = other.read_rows().await;
        let pending = async || shop.items().await[0].contains_key("pr_shard");
        if newest_first {
            other.store.settle(&new).await.unwrap();
            assert!(!pending().await);
            one.store.settle(&old).await.unwrap();
        } else {
            one.store.settle(&old).await.unwrap();
            assert!(pending().await, "the newest one is not published yet");
            other.store.settle(&new).await.unwrap();
        }
        assert!(!pending().await);
        assert_eq!(one.store.tallied().marked_by_others, 1);
        assert_eq!(other.store.tallied().marked_by_others, 0);
    }
}

/// R047: a business item that is deleted publishes nothing, before and after its publication.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_publishes_nothing() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let shop = Shop::open(&fresh).await;
    let mut options = Options::default();
    options.derivation = Some(derivation());
    let store = DynamoStore::with(fresh.connection.clone(), options);
    let mut relay = Relay::live(store).await;
    shop.put("1", 1).await;
    shop.delete("1").await;
    let second = shop.put("2", 1).await;
    let heard = tokio::time::timeout(PATIENCE, relay.hear(1)).await.expect("in time");
    assert_eq!(heard, [second]);
    shop.delete("2").await;
    let third = shop.put("3", 1).await;
    let heard = tokio::time::timeout(PATIENCE, relay.hear(1)).await.expect("in time");
    assert_eq!(heard, [third], "and nothing of what was deleted");
}

/// R027, R042: the stream tells of writes with a stamp, puts and updates, while the index is left alone; marks, and
/// writes without a stamp, are not heard.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_tells_of_stamped_writes() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let shop = Shop::open(&fresh).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let rule = move |operation: &str, body: &mut Value| {
        if operation == "Query" && body.get("IndexName").is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Then::Forward
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let mut options = Options::default();
    (options.backstop, options.derivation) = (Duration::from_secs(3_600), Some(derivation()));
    let mut relay =
        Relay::live(DynamoStore::with(Connection::new(settings).unwrap(), options)).await;
    let first = shop.put("1", 1).await;
    assert_eq!(tokio::time::timeout(PATIENCE, relay.hear(1)).await.expect("in time"), [first]);
    relay.drain().await;
    let before = asked.load(Ordering::SeqCst);
    for version in 2..6 {
        let sent = shop.update("1", version).await;
        assert_eq!(tokio::time::timeout(PATIENCE, relay.hear(1)).await.expect("in time"), [sent]);
    }
    shop.put_item(Item::from([("pk".to_owned(), text("cart/1")), ("sk".to_owned(), text(SK))]))
        .await;
    let last = shop.put("2", 1).await;
    assert_eq!(tokio::time::timeout(PATIENCE, relay.hear(1)).await.expect("in time"), [last]);
    let tally = relay.store.tallied();
    let again = usize::try_from(tally.interruptions + tally.gaps).unwrap();
    assert!(asked.load(Ordering::SeqCst) <= before + again, "the index was asked");
    assert_eq!((tally.without_image, tally.foreign), (0, 0));
}

/// R012: an order that the mapping refuses, panics at, or breaks a rule with is a dead letter with the reason, and
/// stops no other; and so is one whose stamp is damaged.
#[tokio::test]
async fn what_no_event_can_be_made_of_stops_nobody() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let shop = Shop::open(&fresh).await;
    let mut relay = Relay::start(deriving(&fresh.connection)).await;
    shop.put("panics", 1).await;
    shop.put("line\nbreak", 1).await;
    let (mut damaged, _) = shop.order("damaged", 1);
    damaged.insert("pr_n".to_owned(), text("one"));
    shop.put_item(damaged).await;
    let (mut nameless, _) = shop.order("nameless", 1);
    nameless.remove("pr_event");
    shop.put_item(nameless).await;
    let good = shop.put("good", 1).await;
    let mut details: Vec<String> = Vec::new();
    for row in relay.drain().await {
        match &row.event {
            Ok(event) => assert_eq!(event.id, good),
            Err(malformed) => details.push(malformed.detail.clone()),
        }
    }
    details.sort();
    let why = |part: &str| details.iter().any(|detail| detail.contains(part));
    assert_eq!(details.len(), 3, "{details:?}");
    assert!(why("panicked") && why("aggregate_id") && why("pr_n"), "{details:?}");
    assert!(relay.store.tallied().foreign > 0, "what names no event is none of ours");
}

/// A relay without a mapping lets stamped items be: they stay pending for one that has it.
#[tokio::test]
async fn without_a_mapping_nothing_is_lost() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let shop = Shop::open(&fresh).await;
    let sent = shop.put("1", 1).await;
    let mut options = Options::default();
    options.stream = false;
    let relay = Relay::start(DynamoStore::with(fresh.connection.clone(), options)).await;
    assert_eq!(relay.read_rows().await.1.len(), 0);
    assert_eq!(relay.store.tallied().foreign, 1);
    let mut knows = relay.twin(deriving(&fresh.connection)).await;
    assert_eq!(ids(&knows.drain().await), [sent]);
}

/// Derived events and such of the outbox stand in one table, and each is handed out.
#[tokio::test]
async fn derived_events_go_beside_those_of_the_outbox() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let shop = Shop::open(&fresh).await;
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let written = NewEvent::new("order", "1", "order.placed");
    outbox.write(&[], std::slice::from_ref(&written)).await.unwrap();
    let derived = shop.put("1", 1).await;
    let mut relay = Relay::start(deriving(&fresh.connection)).await;
    let mut came = ids(&relay.drain().await);
    came.sort();
    let mut expected = [written.event().id, derived];
    expected.sort();
    assert_eq!(came, expected);
    assert_eq!(relay.drain().await.len(), 0);
}

#[tokio::test]
async fn what_cannot_be_stamped_is_refused_with_the_reason() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    for (sk, version, why) in
        [("OUTBOX#1", 1, "outbox"), ("HEAD#OUTBOX", 1, "outbox"), (SK, 0, "1")]
    {
        let error = outbox.stamp("order/1", sk, version).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
    }
    // A mark that comes first would be written on the application's item.
    let mut options = Options::default();
    (options.mark_first, options.derivation) = (true, Some(derivation()));
    let store = DynamoStore::with(fresh.connection.clone(), options);
    assert_eq!(store.open().await.unwrap_err().kind(), ErrorKind::Config);
}
