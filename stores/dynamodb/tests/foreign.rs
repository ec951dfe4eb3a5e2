//! A table that others write to as well, and items that are events no more.

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::source::OutboxSource as _;
use postrider_core::waiting::{Attempted, NewWaiting, Passed, Placement, Reason};
use postrider_core::{KeyHash, NewEvent};
use postrider_dynamodb::{DynamoStore, Options, Outbox};

use crate::fresh::Fresh;
use crate::relay::{Relay, a};

/// R052: items that are none of ours, also such as have got into the index, are counted and let be; an event that cannot be
/// read is handed on under its own key, so that it becomes a dead letter and holds what is behind it.
#[tokio::test]
async fn what_is_not_ours_is_counted_and_what_cannot_be_read_keeps_its_key() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let of = |key: &str| NewEvent::new("order", key, "order.changed");
    outbox.write(&[], &[of("1"), of("1"), of("2")]).await.unwrap();
    let (client, table) = (fresh.connection.tables().await, &fresh.settings.names.outbox);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let mut scanned =
        Box::pin(client.scan().table_name(table).send()).await.unwrap().items.unwrap();
    scanned.retain(|item| item.contains_key("pr_shard"));
    let is_first = |item: &&std::collections::HashMap<String, AttributeValue>| {
        item["pk"] == text("order/1") && item["sk"].as_s().unwrap().ends_with('1')
    };
    let mut broken = scanned.iter().find(is_first).unwrap().clone();
    let mut order = broken.clone();
    broken.retain(|name, _| ["pk", "sk", "pr_shard", "pr_at"].contains(&&**name));
    order.insert("sk".to_owned(), text("ORDER#1"));
    for item in [&broken, &order] {
        let put = client.put_item().table_name(table).set_item(Some(item.clone()));
        Box::pin(put.send()).await.unwrap();
    }
    let mut options = Options::default();
    options.stream = false;
    let relay = Relay::start(DynamoStore::with(fresh.connection.clone(), options)).await;
    let (mut settlement, rows) = relay.read_rows().await;
    assert_eq!(rows.len(), 3, "the events, and nothing else");
    assert_eq!(relay.store.tallied().foreign, 1, "it was seen");
    let bad = rows.iter().position(|row| row.event.is_err()).expect("one cannot be read");
    assert_eq!(rows[bad].key_hash, KeyHash::of("order/1"), "it is known whose it is");
    let next = rows.iter().position(|row| row.event.is_ok() && row.key_hash == rows[bad].key_hash);
    assert!(next.unwrap() > bad, "its key is in order");
    let part = &mut settlement.parts[0];
    part.passed[bad].1 = Passed::Waiting;
    let detail = "no type".to_owned();
    let attempted = Attempted { attempts: 0, reason: Reason::Malformed, detail };
    let (row, key_hash) = (rows[bad].row, rows[bad].key_hash);
    let placement = Placement::Dead { attempted, holds_key: true };
    part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(relay.store.counts(&a()).await.unwrap().dead, 1);
    let get = client.get_item().table_name(table).key("pk", text("order/1"));
    let left = Box::pin(get.key("sk", text("ORDER#1")).send()).await.unwrap().item.unwrap();
    assert_eq!(left, order, "what is not ours was not touched");
}
