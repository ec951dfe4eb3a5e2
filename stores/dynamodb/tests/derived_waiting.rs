//! Events of business items that wait: what became of the item meanwhile, and what operators may do.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use postrider_core::operate::{Filter, Note, PageRequest, RowKey, Status, Submission, Verb};
use postrider_core::source::{CarryOutRequest, DefinitionChange, DueRequest, OutboxSource};
use postrider_core::waiting::{
    Attempted, Due, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
    WaitingChange,
};
use postrider_core::{ErrorKind, EventId, Operator as _, Payload};
use postrider_dynamodb::{Connection, DynamoStore};
use serde_json::{Value, json};

use crate::derived_settled::behind;
use crate::fresh::Fresh;
use crate::proxy::Then;
use crate::relay::{Relay, a};
use crate::shop::{Shop, deriving, number};

fn tried() -> Attempted {
    Attempted { attempts: 1, reason: Reason::Failed, detail: "503".to_owned() }
}

pub(crate) fn retry() -> Placement {
    Placement::Retry { delay: std::time::Duration::ZERO, attempted: tried() }
}

fn dead() -> Placement {
    Placement::Dead { attempted: tried(), holds_key: true }
}

/// The rest of what a test says of a shop with one relay.
pub(crate) struct Scene<'a> {
    pub(crate) shop: Shop<'a>,
    pub(crate) relay: Relay,
    pub(crate) settlement: Settlement,
}

impl<'a> Scene<'a> {
    /// An order in its first version that was read, and whose attempt failed.
    pub(crate) async fn failed(fresh: &'a Fresh, placement: Placement) -> (Scene<'a>, EventId) {
        Scene::failed_by(fresh, &fresh.connection, placement).await
    }

    /// The same, with a connection of the relay's own.
    pub(crate) async fn failed_by(
        fresh: &'a Fresh,
        connection: &Connection,
        placement: Placement,
    ) -> (Scene<'a>, EventId) {
        let shop = Shop::open(fresh).await;
        let first = shop.put("1", 1).await;
        let relay = Relay::start(deriving(connection)).await;
        let (mut settlement, rows) = relay.read_rows().await;
        let part = &mut settlement.parts[0];
        part.passed[0].1 = Passed::Waiting;
        let (row, key_hash) = (rows[0].row, rows[0].key_hash);
        part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
        (Scene { shop, relay, settlement }, first)
    }

    pub(crate) async fn settle(&self) {
        self.relay.store.settle(&self.settlement).await.unwrap();
    }

    fn due_request(&self) -> DueRequest {
        DueRequest {
            lease: self.settlement.lease.clone(),
            destination: a(),
            except: Vec::new(),
            rows_max: 256,
            bytes_max: u64::MAX,
        }
    }

    pub(crate) async fn due(&self) -> Due {
        self.relay.store.due(&self.due_request()).await.unwrap()
    }

    pub(crate) async fn change(&self, change: WaitingChange) {
        self.try_change(change).await.unwrap();
    }

    pub(crate) async fn try_change(&self, change: WaitingChange) -> postrider_core::Result<()> {
        let mut part = SettlementPart::new(a());
        part.changes.push(change);
        let lease = self.settlement.lease.clone();
        self.relay.store.settle(&Settlement { lease, parts: vec![part] }).await
    }

    /// How many wait, dead letters included, as a handle says that has nothing in memory.
    pub(crate) async fn waiting(&self) -> u64 {
        let counts = self.relay.store.beside().counts(&a()).await.unwrap();
        counts.retrying + counts.parked + counts.dead
    }

    async fn is_pending(&self) -> bool {
        self.shop.items().await[0].contains_key("pr_shard")
    }

    /// Has what was asked for carried out; how many rows were done, and how many left out.
    async fn carried(&self, operator: &DynamoStore, verb: Verb) -> (u64, u64) {
        let note = Note::new("anna@db1", "a test").unwrap();
        let id = operator.submit(&Submission { verb, note }).await.unwrap();
        let leases = vec![self.settlement.lease.clone()];
        self.relay.store.carry_out(&CarryOutRequest { leases, rows_max: 100 }).await.unwrap();
        let request = operator.request(id).await.unwrap();
        (request.done, request.skipped)
    }
}

/// R027: an event of a business item that fails waits as any other does: its item leaves the index in the transaction
/// in which it enters, it is made of the item when its turn comes, and delivered it is gone. Nothing is set on the item.
#[tokio::test]
async fn a_version_waits_and_is_delivered() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (scene, first) = Scene::failed(&fresh, retry()).await;
    let mut expected = scene.shop.items().await.remove(0);
    expected.remove("pr_shard");
    scene.settle().await;
    assert_eq!(scene.shop.items().await, [expected.clone()], "out of the index, and nothing else");
    assert_eq!(scene.waiting().await, 1);
    let due = scene.due().await;
    assert_eq!((due.rows.len(), due.rows[0].event.id), (1, first));
    assert_ne!(due.rows[0].event.payload, Payload::Erased);
    scene.change(WaitingChange::Delivered(due.rows[0].row)).await;
    assert_eq!(scene.waiting().await, 0);
    expected.remove("pr_at");
    assert_eq!(scene.shop.items().await, [expected], "and it says that it is published");
    assert_eq!(scene.relay.store.tallied().merged, 0);
}

/// R027: a version that was overwritten while it waited has nothing to say any more: it is handed out as erased, so that
/// it goes and its key flows, and the newest one stands for it. Where none does, because the item was deleted or written
/// without a stamp, that is counted apart: an event is lost.
#[tokio::test]
async fn a_waiting_version_that_was_overwritten_gives_way_to_the_newest() {
    for how in ["overwritten", "deleted", "unstamped"] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let (mut scene, first) = Scene::failed(&fresh, retry()).await;
        scene.settle().await;
        let mut second = None;
        match how {
            "overwritten" => second = Some(scene.shop.put("1", 2).await),
            "deleted" => scene.shop.delete("1").await,
            _ => {
                let (mut item, stamp) = scene.shop.order("1", 2);
                item.retain(|name, _| !stamp.attributes().contains_key(name));
                scene.shop.put_item(item).await;
            }
        }
        scene.due().await;
        let due = scene.due().await;
        assert_eq!((due.rows[0].event.id, &due.rows[0].event.payload), (first, &Payload::Erased));
        scene.change(WaitingChange::Erased(due.rows[0].row)).await;
        let tally = scene.relay.store.tallied();
        let lost = u64::from(second.is_none());
        assert_eq!((tally.merged, tally.gone), (1 - lost, lost), "{how}");
        assert_eq!(scene.waiting().await, 0, "{how}");
        let came: Vec<EventId> = scene.relay.drain().await.iter().map(|row| row.row.id).collect();
        assert_eq!(came, second.into_iter().collect::<Vec<_>>());
    }
}

/// R027, INV-1: an item that is changed between the attempt and the write that lets it wait stays pending in its
/// newest version; the older one's row is written all the same, because the relay counts on it.
#[tokio::test]
async fn what_enters_late_takes_no_newer_version_from_the_index() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (scene, first) = Scene::failed(&fresh, retry()).await;
    let second = scene.shop.put("1", 2).await;
    scene.settle().await;
    assert!(scene.is_pending().await);
    assert_eq!(scene.waiting().await, 1);
    let (mut newest, rows) = scene.relay.read_rows().await;
    assert_eq!(rows.last().unwrap().row.id, second);
    // It enters behind the first, and both are settled in that order.
    let row = rows.last().unwrap();
    let part = &mut newest.parts[0];
    part.passed.last_mut().unwrap().1 = Passed::Waiting;
    let placement = Placement::Behind(Reason::Behind);
    part.waiting.push(NewWaiting { row: row.row, key_hash: row.key_hash, event: None, placement });
    scene.relay.store.settle(&newest).await.unwrap();
    assert!(!scene.is_pending().await);
    let due = scene.due().await.rows;
    let said: Vec<_> =
        due.iter().map(|row| (row.event.id, !row.event.payload.is_empty())).collect();
    assert_eq!(said, [(first, false), (second, true)]);
}

/// Refuses a transaction with two actions on one item, as the service does before it looks at any condition. The local
/// server looks at the conditions first.
fn one_action_on_each_item(operation: &str, body: &mut Value) -> Then {
    let mut items = HashSet::new();
    let actions = body["TransactItems"].as_array().into_iter().flatten();
    let twice = actions.flat_map(|action| action.as_object().unwrap().values()).any(|action| {
        let of = if action["Key"].is_null() { &action["Item"] } else { &action["Key"] };
        !items.insert([&action["TableName"], &of["pk"], &of["sk"]].map(Value::to_string))
    });
    if operation != "TransactWriteItems" || !twice {
        return Then::Forward;
    }
    let message = "Transaction request cannot include multiple operations on one item";
    Then::Answer(400, json!({"__type": "ValidationException", "message": message}))
}

/// R027, INV-1: an item that was changed twice while its events fail has two versions that enter in one settlement: both
/// rows are written, and the newest version is the one that is sent.
#[tokio::test(flavor = "multi_thread")]
async fn two_versions_of_one_item_enter_in_one_settlement() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let strict = behind(&fresh, Box::new(one_action_on_each_item)).await;
    let (mut scene, first) = Scene::failed_by(&fresh, &strict, retry()).await;
    let second = scene.shop.put("1", 2).await;
    let part = &mut scene.settlement.parts[0];
    let page = scene.relay.behind(&part.cursor.as_ref().unwrap().1).await;
    let newest = page.rows.iter().find(|row| row.row.id == second).unwrap();
    part.passed.push((newest.row, Passed::Waiting));
    let placement = Placement::Behind(Reason::Behind);
    let (row, key_hash) = (newest.row, newest.key_hash);
    part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
    scene.settle().await;
    assert!(!scene.is_pending().await, "the newest waits");
    assert_eq!(scene.waiting().await, 2);
    scene.settle().await;
    assert_eq!(scene.waiting().await, 2, "the same settlement, sent again");
    let due = scene.due().await.rows;
    let said: Vec<_> =
        due.iter().map(|row| (row.event.id, row.event.payload == Payload::Erased)).collect();
    assert_eq!(said, [(first, true), (second, false)]);
    for row in due {
        scene.change(WaitingChange::Delivered(row.row)).await;
    }
    assert_eq!((scene.waiting().await, scene.relay.drain().await.len()), (0, 0));
}

/// R027: a relay that has no mapping lets be what waits of business items, due as it is: it makes no dead letter of it,
/// and a relay that has one sends it.
#[tokio::test]
async fn who_has_no_mapping_lets_be_what_waits_of_items() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (scene, first) = Scene::failed(&fresh, retry()).await;
    scene.settle().await;
    let blind = scene.relay.twin(DynamoStore::new(fresh.connection.clone())).await;
    let due = blind.store.due(&scene.due_request()).await.unwrap();
    assert_eq!((due.rows.len(), due.next_in), (0, None));
    let counts = blind.store.beside().counts(&a()).await.unwrap();
    assert_eq!((counts.retrying, counts.dead), (1, 0));
    assert_eq!(scene.due().await.rows[0].event.id, first);
}

/// INV-8: a settlement breaks off halfway, and what is sent again lets no version wait that an operator let go
/// meanwhile; everything else of it is written, once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_again_undoes_no_discard() {
    // More than one transaction writes: each takes two actions of a hundred.
    const MANY: u64 = 60;
    let Some(fresh) = Fresh::new(1).await else { return };
    let passes = Arc::new(AtomicI64::new(i64::MAX));
    let left = Arc::clone(&passes);
    let rule = move |operation: &str, _: &mut Value| match operation {
        "TransactWriteItems" if left.fetch_sub(1, Ordering::SeqCst) <= 0 => {
            let kind = "ProvisionedThroughputExceededException";
            Then::Answer(400, json!({"__type": kind, "message": "slow down"}))
        }
        _ => Then::Forward,
    };
    let connection = behind(&fresh, Box::new(rule)).await;
    let shop = Shop::open(&fresh).await;
    for order in 0..MANY {
        shop.put(&order.to_string(), 1).await;
    }
    let relay = Relay::start(deriving(&connection)).await;
    let (mut settlement, rows) = relay.read_rows().await;
    let part = &mut settlement.parts[0];
    for (passed, row) in part.passed.iter_mut().zip(&rows) {
        passed.1 = Passed::Waiting;
        let (row, key_hash) = (row.row, row.key_hash);
        part.waiting.push(NewWaiting { row, key_hash, event: None, placement: dead() });
    }
    passes.store(1, Ordering::SeqCst);
    assert_eq!(relay.store.settle(&settlement).await.unwrap_err().kind(), ErrorKind::Timeout);
    passes.store(i64::MAX, Ordering::SeqCst);
    let scene = Scene { shop, relay, settlement };
    let half = scene.waiting().await;
    assert!(half > 0 && half < MANY, "{half} of {MANY}");
    let all = PageRequest { after: None, limit: 1 };
    let listed = scene.relay.store.waiting(&Filter::default(), &all).await.unwrap().rows;
    let row = RowKey { destination: a(), seq: listed[0].seq };
    assert_eq!(scene.carried(&scene.relay.store, Verb::Discard(vec![row])).await, (1, 0));
    scene.settle().await;
    assert_eq!(scene.waiting().await, MANY - 1, "the discarded one does not wait again");
    assert_eq!(scene.relay.store.counts(&a()).await.unwrap().dead, MANY - 1);
    let items = scene.shop.items().await;
    assert!(items.iter().all(|item| !item.contains_key("pr_shard")));
}

/// R027: dead letters of business items are listed, discarded, and redriven; what was overwritten meanwhile goes when
/// it is redriven; and no verb writes anything on the item.
#[tokio::test]
async fn operators_discard_and_redrive_dead_letters_of_items() {
    for verb in ["discard", "redrive", "redrive overwritten"] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let (scene, first) = Scene::failed(&fresh, dead()).await;
        scene.settle().await;
        let operator = deriving(&fresh.connection);
        let all = PageRequest { after: None, limit: 10 };
        let listed = operator.waiting(&Filter::default(), &all).await.unwrap().rows;
        assert_eq!((listed.len(), listed[0].id, &*listed[0].key), (1, Some(first), "order/1"));
        assert_eq!(listed[0].event_type.as_deref(), Some("order.changed"));
        let detail = operator.event(first).await.unwrap();
        assert_eq!((detail.event.id, detail.deliveries[0].status), (first, Status::Dead));
        let row = vec![RowKey { destination: a(), seq: listed[0].seq }];
        if verb == "redrive overwritten" {
            scene.shop.put("1", 2).await;
        }
        let before = scene.shop.items().await;
        let asked = if verb == "discard" { Verb::Discard(row) } else { Verb::Redrive(row) };
        assert_eq!(scene.carried(&operator, asked).await, (1, 0), "{verb}");
        assert_eq!(scene.shop.items().await, before, "{verb}");
        let due = scene.due().await.rows;
        match verb {
            "discard" => assert_eq!((due.len(), scene.waiting().await), (0, 0)),
            "redrive" => assert_eq!((due[0].event.id, due[0].attempts), (first, 0)),
            _ => assert_eq!(due[0].event.payload, Payload::Erased),
        }
    }
}

/// What is pending is shown as the event that it will be; what was published is not kept, so it is not listed, and to
/// send it again is refused.
#[tokio::test]
async fn what_is_pending_is_listed_and_what_was_published_is_not_requeued() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let shop = Shop::open(&fresh).await;
    let sent = shop.put("1", 1).await;
    let mut relay = Relay::start(deriving(&fresh.connection)).await;
    let operator = deriving(&fresh.connection);
    let all = PageRequest { after: None, limit: 10 };
    let listed = operator.events(&Filter::default(), &all).await.unwrap().rows;
    assert_eq!((listed.len(), listed[0].id, &*listed[0].key), (1, sent, "order/1"));
    assert_eq!(listed[0].deliveries[0].status, Status::Pending);
    let backlog = operator.backlog(&a(), 10).await.unwrap();
    assert_eq!((backlog[0].count, &*backlog[0].event_type), (1, "order.changed"));
    assert_eq!(relay.drain().await.len(), 1);
    let verb = Verb::Requeue(vec![RowKey { destination: a(), seq: listed[0].seq }]);
    let note = Note::new("anna@db1", "a test").unwrap();
    let refused = operator.submit(&Submission { verb, note }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("new stamp"), "{refused}");
    assert!(operator.events(&Filter::default(), &all).await.unwrap().rows.is_empty());
    // Who has no mapping sees nothing of it, and no attribute of the application's instead.
    shop.put("2", 1).await;
    let blind = DynamoStore::new(fresh.connection.clone());
    assert!(blind.events(&Filter::default(), &all).await.unwrap().rows.is_empty());
}

/// A version that no route takes is handed to the built-in destination under the same condition, and back.
#[tokio::test]
async fn what_no_route_takes_is_handed_on_in_its_newest_version() {
    for changed in [false, true] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let shop = Shop::open(&fresh).await;
        shop.put("1", 1).await;
        let relay = Relay::start(deriving(&fresh.connection)).await;
        let (mut settlement, _) = relay.read_rows().await;
        settlement.parts[0].passed[0].1 = Passed::OtherRoute;
        if changed {
            shop.put("1", 2).await;
        }
        relay.store.settle(&settlement).await.unwrap();
        let shard = shop.items().await[0]["pr_shard"].as_s().unwrap().clone();
        assert_eq!(&*shard, if changed { "p00000" } else { "u00000" });
    }
}

/// Where a destination is removed, what waits of business items goes, and their items are not touched, though one has an
/// attribute that is called and valued as the outbox's own.
#[tokio::test]
async fn removing_a_destination_writes_nothing_on_items() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (scene, _) = Scene::failed(&fresh, dead()).await;
    scene.settle().await;
    let mut item = scene.shop.items().await.remove(0);
    let seq = scene.settlement.parts[0].passed[0].0.seq;
    item.insert("seq".to_owned(), number(seq));
    scene.shop.put_item(item.clone()).await;
    let change = DefinitionChange { remove: vec![a()], ..DefinitionChange::default() };
    OutboxSource::apply(&scene.relay.store, &change).await.unwrap();
    assert_eq!(scene.waiting().await, 0);
    assert_eq!(scene.shop.items().await, [item]);
}
