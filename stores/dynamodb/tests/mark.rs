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
    items.sort_by_key(|item| ["sk", "pk"].map(|name| item[name].as_s().unwrap().clone()));
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

/// An event waits ahead of its new owner's cursor when the old one's mark arrives: that changes nothing, and
/// the new owner's word ends it.
#[tokio::test]
async fn a_late_mark_leaves_what_waits_ahead_in_the_index() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let mut next = Relay::start(polling(&fresh)).await;
    outbox.write(&[], &[NewEvent::new("order", "0", "order.changed")]).await.unwrap();
    assert_eq!(next.drain().await.len(), 1, "so its numbers are others");
    outbox.write(&[], &[NewEvent::new("order", "1", "order.changed")]).await.unwrap();
    let late = next.twin(polling(&fresh)).await;
    let (late_word, rows) = late.read_rows().await;
    let (mut word, known) = next.read_rows().await;
    assert_eq!((rows.len(), known.len()), (1, 1));
    assert_ne!(rows[0].row.seq, known[0].row.seq);
    let attempted = Attempted { attempts: 1, reason: Reason::Failed, detail: "503".to_owned() };
    let mut ahead = SettlementPart::new(a());
    ahead.waiting.push(NewWaiting {
        row: known[0].row,
        key_hash: known[0].key_hash,
        event: None,
        placement: Placement::Retry { delay: crate::relay::LONG, attempted },
    });
    let ahead = Settlement { lease: word.lease.clone(), parts: vec![ahead] };
    next.store.settle(&ahead).await.unwrap();
    let waits = items(&fresh).await;
    assert!(waits[1].contains_key("pr_shard") && waits[1].contains_key("seq"));
    late.store.settle(&late_word).await.unwrap();
    assert_eq!(items(&fresh).await, waits, "the late mark changed nothing");
    assert_eq!(late.store.tallied().marked_by_others, 1);
    word.parts[0].passed[0].1 = Passed::Waiting;
    next.store.settle(&word).await.unwrap();
    assert!(!items(&fresh).await[1].contains_key("pr_shard"), "the cursor has passed it");
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
