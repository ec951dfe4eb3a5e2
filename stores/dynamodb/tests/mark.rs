//! The mark of a published event: one wins, and only it sets the time to live.

use postrider_core::NewEvent;
use postrider_core::source::OutboxSource as _;
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_dynamodb::{DynamoStore, Item, Options, Outbox};

use crate::fresh::Fresh;
use crate::relay::{Relay, a};

fn polling(fresh: &Fresh) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(fresh.connection.clone(), options)
}

async fn three(fresh: &Fresh) {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let events: Vec<_> = (0..3).map(|_| NewEvent::new("order", "1", "order.changed")).collect();
    outbox.write(&[], &events).await.unwrap();
}

/// The items of events, by number.
async fn items(fresh: &Fresh) -> Vec<Item> {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let mut items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    items.retain(|item| item["sk"].as_s().unwrap().starts_with("OUTBOX#"));
    items.sort_by_key(|item| item["sk"].as_s().unwrap().clone());
    items
}

/// R033, R044: two that saw the same events both say that they published them: one mark of each wins, and
/// the other is counted.
#[tokio::test]
async fn of_two_that_mark_an_event_one_wins() {
    let Some(fresh) = Fresh::new(1).await else { return };
    three(&fresh).await;
    let first = Relay::start(polling(&fresh)).await;
    let second = first.twin(polling(&fresh)).await;
    let (one, other) = (first.read().await, second.read().await);
    assert_eq!(one[0].parts[0].passed.len(), 3);
    assert_eq!(other[0].parts[0].passed.len(), 3, "both see them");
    first.store.settle(&one[0]).await.unwrap();
    let marked = items(&fresh).await;
    second.store.settle(&other[0]).await.unwrap();
    assert_eq!(first.store.tallied().marked_by_others, 0);
    assert_eq!(second.store.tallied().marked_by_others, 3);
    assert_eq!(items(&fresh).await, marked, "the late mark changed nothing");
}

/// R022, R117: what is pending or waits has no time to live, however old it is; what is published has one.
#[tokio::test]
async fn only_what_was_published_has_a_time_to_live() {
    let Some(fresh) = Fresh::new(1).await else { return };
    three(&fresh).await;
    let relay = Relay::start(polling(&fresh)).await;
    let read = relay.read().await.remove(0);
    let rows = read.parts[0].passed.clone();
    let pending = items(&fresh).await;
    assert!(pending.iter().all(|item| !item.contains_key("expires_at")));
    let mut part = SettlementPart::new(a());
    // Published, dead, and pending.
    part.passed = vec![(rows[0].0, Passed::Acked), (rows[1].0, Passed::Waiting)];
    part.waiting.push(NewWaiting {
        row: rows[1].0,
        key_hash: postrider_core::KeyHash::of("order/1"),
        event: None,
        placement: Placement::Dead {
            attempted: Attempted { attempts: 1, reason: Reason::Rejected, detail: "no".to_owned() },
            holds_key: false,
        },
    });
    let settlement = Settlement { lease: read.lease, parts: vec![part] };
    relay.store.settle(&settlement).await.unwrap();
    let after = items(&fresh).await;
    let have = |name: &str| after.iter().map(|item| item.contains_key(name)).collect::<Vec<_>>();
    assert_eq!(have("expires_at"), [true, false, false]);
    assert_eq!(have("pr_shard"), [false, false, true], "and the index names what is pending");
}
