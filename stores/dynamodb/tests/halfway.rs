//! Settlements that break off halfway, and what happens before they are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use postrider_core::operate::{Note, RowKey, Submission, Verb};
use postrider_core::source::{CarryOutRequest, DueRequest, OutboxSource as _};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingChange,
};
use postrider_core::{ErrorKind, NewEvent, Operator as _};
use postrider_dynamodb::{Connection, DynamoStore, Item, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::{Relay, a};

/// More than one transaction writes: each takes two actions of a hundred.
const MANY: usize = 60;

/// So many transactions pass, and the others are refused; all pass while it is negative.
#[derive(Clone)]
struct Passes(Arc<AtomicI64>);

impl Passes {
    fn next(&self, passes: i64) {
        self.0.store(passes, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        let less = |left: i64| (left > 0).then(|| left - 1);
        let taken = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        taken.is_ok() || self.0.load(Ordering::SeqCst) < 0
    }
}

/// A relay behind a table that throttles transactions when it is told to.
async fn throttled(fresh: &Fresh) -> (Relay, Passes) {
    let passes = Passes(Arc::new(AtomicI64::new(-1)));
    let left = passes.clone();
    let rule = move |operation: &str, _: &mut Value| match operation {
        "TransactWriteItems" if !left.take() => {
            let kind = "ProvisionedThroughputExceededException";
            Then::Answer(400, json!({"__type": kind, "message": "slow down"}))
        }
        _ => Then::Forward,
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let mut options = Options::default();
    options.stream = false;
    let store = DynamoStore::with(Connection::new(settings).unwrap(), options);
    (Relay::start(store).await, passes)
}

async fn write(fresh: &Fresh, events: usize) {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let events: Vec<NewEvent> =
        (0..events).map(|key| NewEvent::new("order", key.to_string(), "order.changed")).collect();
    for events in events.chunks(40) {
        outbox.write(&[], events).await.unwrap();
    }
}

async fn items(fresh: &Fresh) -> Vec<Item> {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let mut items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    items.retain(|item| item["sk"].as_s().unwrap().starts_with("OUTBOX#"));
    items
}

/// All that was read, dead.
async fn all_dead(relay: &Relay) -> Settlement {
    let (mut settlement, rows) = relay.read_rows().await;
    let part = &mut settlement.parts[0];
    for (passed, row) in part.passed.iter_mut().zip(&rows) {
        passed.1 = Passed::Waiting;
        let detail = "422".to_owned();
        let attempted = Attempted { attempts: 1, reason: Reason::Rejected, detail };
        let placement = Placement::Dead { attempted, holds_key: true };
        let (row, key_hash) = (row.row, row.key_hash);
        part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
    }
    settlement
}

/// INV-8: a settlement of which a part is written says so, and not that nothing is; what an operator lets go before it
/// is sent again stays so, and everything else of it is written.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_discards_between_two_tries_stays_discarded() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (relay, passes) = throttled(&fresh).await;
    write(&fresh, MANY).await;
    let settlement = all_dead(&relay).await;
    assert_eq!(settlement.parts[0].waiting.len(), MANY);
    passes.next(1);
    let error = relay.store.settle(&settlement).await.unwrap_err();
    // Who hears of this kind carries out nothing, and gives the partition up where something was carried out.
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("a part of it is written"), "{error}");
    passes.next(-1);
    let half = relay.store.counts(&a()).await.unwrap().dead;
    assert!(half > 0 && half < MANY as u64, "{half} of {MANY}");
    let written = items(&fresh).await.into_iter().find(|item| !item.contains_key("pr_shard"));
    let seq: u64 = written.unwrap()["seq"].as_n().unwrap().parse().unwrap();
    let verb = Verb::Discard(vec![RowKey { destination: a(), seq }]);
    let note = Note::new("anna@db1", "a test order").unwrap();
    let id = relay.store.submit(&Submission { verb, note }).await.unwrap();
    let leases = vec![settlement.lease.clone()];
    relay.store.carry_out(&CarryOutRequest { leases, rows_max: 100 }).await.unwrap();
    assert_eq!(relay.store.request(id).await.unwrap().done, 1);
    relay.store.settle(&settlement).await.unwrap();
    let counts = relay.store.counts(&a()).await.unwrap();
    assert_eq!(counts.dead, MANY as u64 - 1, "the discarded one does not wait again: {counts:?}");
    let again = relay.store.beside().counts(&a()).await.unwrap();
    assert_eq!(again.dead, MANY as u64 - 1, "and so it is written");
    let items = items(&fresh).await;
    let discarded: Vec<&Item> =
        items.iter().filter(|item| item.contains_key("discarded_at")).collect();
    assert_eq!(discarded.len(), 1);
    assert!(discarded[0].contains_key("expires_at") && !discarded[0].contains_key("seq"));
    assert!(items.iter().all(|item| !item.contains_key("pr_shard")), "all of it is written");
}

/// A settlement of which nothing was written goes on saying so: the same relay may carry requests out meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_that_was_not_begun_is_busy() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (relay, passes) = throttled(&fresh).await;
    write(&fresh, 2).await;
    let settlement = all_dead(&relay).await;
    passes.next(0);
    let error = relay.store.settle(&settlement).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    passes.next(-1);
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(relay.store.counts(&a()).await.unwrap().dead, 2);
}

/// INV-8: an event whose item somebody deletes while it is under way keeps no other from being settled: it waits, and is
/// dead as soon as it is due; and where it had waited before, its row goes.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_deleted_under_way_stops_no_settlement() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (relay, _) = throttled(&fresh).await;
    write(&fresh, 3).await;
    let (mut settlement, rows) = relay.read_rows().await;
    let part = &mut settlement.parts[0];
    for (passed, row) in part.passed.iter_mut().zip(&rows) {
        passed.1 = Passed::Waiting;
        let (row, key_hash) = (row.row, row.key_hash);
        let placement = Placement::Behind(Reason::Behind);
        part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
    }
    delete(&fresh, &rows[0].row.id.to_string()).await;
    relay.store.settle(&settlement).await.unwrap();
    let request = DueRequest {
        lease: settlement.lease.clone(),
        destination: a(),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    assert_eq!(relay.store.due(&request).await.unwrap().rows.len(), 2);
    assert_eq!(relay.store.counts(&a()).await.unwrap().dead, 1, "with its reason");
    delete(&fresh, &rows[1].row.id.to_string()).await;
    let mut part = SettlementPart::new(a());
    part.changes = rows[1..].iter().map(|row| WaitingChange::Delivered(row.row)).collect();
    relay.store.settle(&Settlement { lease: settlement.lease, parts: vec![part] }).await.unwrap();
    let counts = relay.store.beside().counts(&a()).await.unwrap();
    assert_eq!((counts.retrying, counts.dead), (0, 1), "{counts:?}");
}

async fn delete(fresh: &Fresh, id: &str) {
    let item =
        items(fresh).await.into_iter().find(|item| item["id"].as_s().unwrap() == id).unwrap();
    let client = fresh.connection.tables().await;
    let delete = client
        .delete_item()
        .table_name(&fresh.settings.names.outbox)
        .key("pk", item["pk"].clone())
        .key("sk", item["sk"].clone());
    Box::pin(delete.send()).await.unwrap();
}
