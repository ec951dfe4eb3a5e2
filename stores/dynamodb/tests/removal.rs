//! Destinations that are removed, and the events that wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use postrider_core::operate::{Filter, Note, PageRequest, RowKey, Submission, Verb};
use postrider_core::source::{CarryOutRequest, DefinitionChange, FetchedRow};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_core::{Destination, DestinationId, NewEvent, OutboxSource, Route, Start};
use postrider_dynamodb::{Connection, DynamoStore, Item, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::{LONG, Relay, a};

/// Events that wait: more than are dropped at once.
const MANY: usize = 110;
/// Events of a removal that is cut off.
const FEW: usize = 20;

pub(crate) fn polling(connection: Connection) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(connection, options)
}

pub(crate) async fn write(connection: &Connection, keys: std::ops::Range<usize>) {
    let outbox = Outbox::open(connection).await.unwrap();
    let events: Vec<NewEvent> =
        keys.map(|key| NewEvent::new("order", key.to_string(), "order.changed")).collect();
    for events in events.chunks(40) {
        outbox.write(&[], events).await.unwrap();
    }
}

pub(crate) async fn items(fresh: &Fresh) -> Vec<Item> {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let mut items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    items.retain(|item| item["sk"].as_s().unwrap().starts_with("OUTBOX#"));
    items
}

/// What was read, of which every row enters: dead the one half, and tried again later the other.
pub(crate) fn entering(mut settlement: Settlement, rows: &[FetchedRow]) -> Settlement {
    let part = &mut settlement.parts[0];
    for (n, (passed, row)) in part.passed.iter_mut().zip(rows).enumerate() {
        passed.1 = Passed::Waiting;
        let detail = "503".to_owned();
        let attempted = Attempted { attempts: 1, reason: Reason::Failed, detail };
        let placement = match n % 2 {
            0 => Placement::Dead { attempted, holds_key: true },
            _ => Placement::Retry { delay: LONG, attempted },
        };
        let (row, key_hash) = (row.row, row.key_hash);
        part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
    }
    settlement
}

pub(crate) fn removal() -> DefinitionChange {
    DefinitionChange { remove: vec![a()], ..DefinitionChange::default() }
}

pub(crate) fn another(name: &str) -> DefinitionChange {
    let route = Route::all("orders".parse().unwrap());
    let id = DestinationId::new(name).unwrap();
    let put = vec![(Destination::new(id, "memory", vec![route]), Start::Beginning)];
    DefinitionChange { put, ..DefinitionChange::default() }
}

pub(crate) fn is_let_go(item: &Item) -> bool {
    let has = |name: &str| item.contains_key(name);
    has("discarded_at") && has("expires_at") && !has("seq") && !has("pr_shard")
}

/// R117: what waited for a destination that is removed says so and has a time to live; what is pending, also where it
/// waited ahead of the cursor, stays so for the next one.
#[tokio::test]
async fn what_waited_for_a_removed_destination_is_let_go() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let relay = Relay::start(polling(fresh.connection.clone())).await;
    write(&fresh.connection, 0..MANY).await;
    let (read, rows) = relay.read_rows().await;
    let here = rows.len();
    relay.store.settle(&entering(read, &rows)).await.unwrap();
    // One more waits ahead of the cursor: it is pending as well.
    write(&fresh.connection, MANY..MANY + 20).await;
    let (read, rows) = relay.read_rows().await;
    let (row, key_hash) = (rows[0].row, rows[0].key_hash);
    let mut part = SettlementPart::new(a());
    let placement = Placement::Behind(Reason::Behind);
    part.waiting.push(NewWaiting { row, key_hash, event: None, placement });
    relay.store.settle(&Settlement { lease: read.lease, parts: vec![part] }).await.unwrap();
    let waits = relay.store.counts(&a()).await.unwrap();
    assert_eq!(waits.dead + waits.retrying + waits.parked, here as u64 + 1, "{waits:?}");
    relay.store.apply(&removal()).await.unwrap();
    assert_eq!(relay.store.beside().counts(&a()).await.unwrap(), Default::default());
    let items = items(&fresh).await;
    assert_eq!(items.iter().filter(|item| is_let_go(item)).count(), here);
    let pending = items.iter().filter(|item| !is_let_go(item));
    assert!(pending.clone().all(|item| item.contains_key("pr_shard")), "the others are pending");
    let ahead = row.id.to_string();
    assert!(pending.clone().any(|item| *item["id"].as_s().unwrap() == ahead));
    assert!(pending.clone().all(|item| !item.contains_key("expires_at")));
}

/// R009: a removal that is cut off at any write is finished by the next change of the destinations, before that is made, or
/// by the next relay that starts; the same command ends it as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_cut_off_is_finished() {
    for finish in ["again", "another", "same", "relay"] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let (left, armed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (passes, on) = (Arc::clone(&left), Arc::clone(&armed));
        let rule = move |operation: &str, _: &mut Value| {
            let less = |left: u64| left.checked_sub(1);
            let counted = matches!(operation, "UpdateItem" | "DeleteItem");
            if on.load(Ordering::SeqCst)
                && counted
                && passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err()
            {
                let text = "is not authorized to perform: dynamodb:DeleteItem on resource: x";
                return Then::Answer(
                    400,
                    json!({"__type": "AccessDeniedException", "message": text}),
                );
            }
            Then::Forward
        };
        let own =
            proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
        let mut settings = Settings::at(own, fresh.settings.names.clone());
        settings.call_time_max = fresh.settings.call_time_max;
        let relay = Relay::start(polling(Connection::new(settings).unwrap())).await;
        write(&fresh.connection, 0..FEW).await;
        let (read, rows) = relay.read_rows().await;
        assert_eq!(rows.len(), FEW);
        relay.store.settle(&entering(read, &rows)).await.unwrap();
        left.store(15, Ordering::SeqCst);
        armed.store(true, Ordering::SeqCst);
        relay.store.apply(&removal()).await.unwrap_err();
        armed.store(false, Ordering::SeqCst);
        let known = relay.store.destinations().await.unwrap();
        assert!(!known.rows.iter().any(|row| row.definition.id == a()), "it is removed");
        let gone = items(&fresh).await.iter().filter(|item| is_let_go(item)).count();
        assert!(gone > 0 && gone < FEW, "{gone} are let go");
        let other = polling(fresh.connection.clone());
        match finish {
            "again" => drop(other.apply(&removal()).await.unwrap()),
            "another" => drop(other.apply(&another("b")).await.unwrap()),
            "same" => drop(other.apply(&another("a")).await.unwrap()),
            _ => other.register(&[]).await.unwrap(),
        }
        let items = items(&fresh).await;
        assert_eq!(items.iter().filter(|item| is_let_go(item)).count(), FEW, "{finish}");
        let counts = other.counts(&a()).await.unwrap();
        assert_eq!(counts, Default::default(), "{finish}: no row is left");
    }
}

/// What was asked for a destination that was removed before it was carried out is left out, and writes no row that
/// nobody would ever send.
#[tokio::test]
async fn what_was_asked_of_a_removed_destination_is_left_out() {
    use postrider_core::Operator as _;

    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh.connection, 0..1).await;
    let mut relay = Relay::start(polling(fresh.connection.clone())).await;
    let (settlement, _) = relay.read_rows().await;
    assert_eq!(relay.drain().await.len(), 1);
    let operator = polling(fresh.connection.clone());
    let all = PageRequest { after: None, limit: 1 };
    let seq = operator.events(&Filter::default(), &all).await.unwrap().rows[0].seq;
    let verb = Verb::Requeue(vec![RowKey { destination: a(), seq }]);
    let note = Note::new("anna@db1", "a test").unwrap();
    let id = operator.submit(&Submission { verb, note }).await.unwrap();
    OutboxSource::apply(&relay.store, &removal()).await.unwrap();
    let asked = CarryOutRequest { leases: vec![settlement.lease], rows_max: 100 };
    relay.store.carry_out(&asked).await.unwrap();
    let request = operator.request(id).await.unwrap();
    assert_eq!((request.done, request.skipped), (0, 1));
    let counts = relay.store.beside().counts(&a()).await.unwrap();
    assert_eq!(counts.retrying + counts.parked + counts.dead, 0);
}
