//! Waiting events: what cannot be handed out comes to an end, and what is behind it is not forgotten.

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::source::{DueRequest, OutboxSource as _};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, RowRef, Settlement, SettlementPart,
    WaitingChange,
};
use postrider_core::{Code, ErrorKind, KeyHash, Lease, NewEvent};
use postrider_dynamodb::{ACTIONS_MAX, DynamoStore, Options, Outbox};

use crate::fresh::Fresh;
use crate::relay::{Relay, a};

/// What one question for what is due takes.
const DUE_MAX: u32 = 100;
/// More than that.
const MANY: usize = 120;

fn polling(fresh: &Fresh) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(fresh.connection.clone(), options)
}

fn of(key: &str) -> NewEvent {
    NewEvent::new("order", key, "order.changed")
}

fn hash(key: &str) -> KeyHash {
    KeyHash::of(&format!("order/{key}"))
}

fn is_of(settlement: &Settlement, key: &str, rows: &[(RowRef, KeyHash)]) -> Vec<RowRef> {
    let known = |row: &RowRef| rows.iter().any(|(other, of)| other == row && *of == hash(key));
    let passed = settlement.parts[0].passed.iter();
    passed.map(|(row, _)| *row).filter(|row| known(row)).collect()
}

/// Everything that was read enters: the first of each key is tried again at once, the others stand behind.
fn enter_all(mut read: Settlement, rows: &[(RowRef, KeyHash)]) -> Settlement {
    let part = &mut read.parts[0];
    for (row, passed) in &mut part.passed {
        *passed = Passed::Waiting;
        let key_hash = rows.iter().find(|(other, _)| other == row).unwrap().1;
        let placement = Placement::Behind(Reason::Behind);
        part.waiting.push(NewWaiting { row: *row, key_hash, event: None, placement });
    }
    read
}

async fn ask(relay: &Relay, lease: &Lease) -> Vec<KeyHash> {
    let request = DueRequest {
        lease: lease.clone(),
        destination: a(),
        except: Vec::new(),
        rows_max: DUE_MAX,
        bytes_max: u64::MAX,
    };
    let due = relay.store.due(&request).await.unwrap();
    due.rows.into_iter().map(|row| row.key_hash).collect()
}

async fn write(fresh: &Fresh, events: &[NewEvent]) {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    for events in events.chunks(ACTIONS_MAX / 2) {
        outbox.write(&[], events).await.unwrap();
    }
}

/// What was read, with each row's key.
async fn read(relay: &Relay) -> (Settlement, Vec<(RowRef, KeyHash)>) {
    let (read, rows) = relay.read_rows().await;
    (read, rows.iter().map(|row| (row.row, row.key_hash)).collect())
}

async fn alter(fresh: &Fresh, key: &str, n: u64, change: Option<&str>) {
    let client = fresh.connection.tables().await;
    let table = &fresh.settings.names.outbox;
    let text = |text: String| AttributeValue::S(text);
    let (pk, sk) = (text(format!("order/{key}")), text(format!("OUTBOX#{n:020}")));
    match change {
        None => {
            let delete = client.delete_item().table_name(table).key("pk", pk).key("sk", sk);
            Box::pin(delete.send()).await.unwrap();
        }
        Some(change) => {
            let update = client.update_item().table_name(table).key("pk", pk).key("sk", sk);
            let update = update
                .update_expression(change)
                .expression_attribute_names("#format", "format")
                .expression_attribute_values(":two", AttributeValue::N("2".to_owned()));
            Box::pin(update.send()).await.unwrap();
        }
    }
}

/// INV-8: an event that waits and whose item somebody deleted is dead, with that as its reason, and so is one
/// of a newer format; whatever is parked behind it does not keep the retries of other keys.
#[tokio::test]
async fn what_cannot_be_handed_out_is_dead_and_keeps_nobody_else() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let mut events: Vec<NewEvent> = (0..MANY).map(|_| of("gone")).collect();
    events.extend([of("newer"), of("fine")]);
    write(&fresh, &events).await;
    let relay = Relay::start(polling(&fresh)).await;
    let (all, rows) = read(&relay).await;
    assert_eq!(is_of(&all, "gone", &rows).len(), MANY);
    let lease = all.lease.clone();
    relay.store.settle(&enter_all(all, &rows)).await.unwrap();
    alter(&fresh, "gone", 1, None).await;
    alter(&fresh, "newer", 1, Some("SET #format = :two")).await;
    assert_eq!(ask(&relay, &lease).await, [hash("fine")]);
    let counts = relay.store.counts(&a()).await.unwrap();
    assert_eq!((counts.dead, counts.retrying), (2, 1), "{counts:?}");
    assert_eq!(counts.parked, MANY as u64 - 1, "its key waits for an operator");
    let again = DynamoStore::with(fresh.connection.clone(), Options::default()).beside();
    let counts = again.counts(&a()).await.unwrap();
    assert_eq!(counts.dead, 2, "and so it is written");
}

/// A key with more parked than one question takes leaves room for others that are due.
#[tokio::test]
async fn a_long_run_of_one_key_leaves_room_for_the_others() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let mut events: Vec<NewEvent> = (0..MANY).map(|_| of("many")).collect();
    events.push(of("one"));
    write(&fresh, &events).await;
    let relay = Relay::start(polling(&fresh)).await;
    let (all, rows) = read(&relay).await;
    let lease = all.lease.clone();
    relay.store.settle(&enter_all(all, &rows)).await.unwrap();
    let due = ask(&relay, &lease).await;
    assert!(due.contains(&hash("one")), "{} of the other", due.len());
    assert!(due.contains(&hash("many")));
}

/// Events of two ordering keys in one item collection: a dead letter of one that holds its key parks its own
/// successors alone.
#[tokio::test]
async fn keys_of_one_item_collection_do_not_wait_for_each_other() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let events = [of("a"), of("b"), of("a"), of("b")];
    outbox.write_under("ORDER#1", &[], &events).await.unwrap();
    let relay = Relay::start(polling(&fresh)).await;
    let (all, rows) = read(&relay).await;
    let (lease, first) = (all.lease.clone(), is_of(&all, "a", &rows)[0]);
    relay.store.settle(&enter_all(all, &rows)).await.unwrap();
    let mut part = SettlementPart::new(a());
    let attempted = Attempted { attempts: 1, reason: Reason::Rejected, detail: "no".to_owned() };
    part.changes.push(WaitingChange::Dead { row: first, attempted, holds_key: true });
    relay.store.settle(&Settlement { lease: lease.clone(), parts: vec![part] }).await.unwrap();
    assert_eq!(ask(&relay, &lease).await, [hash("b"), hash("b")]);
}

/// Beyond the most that an owner remembers, settlements are written and retries go on, and nothing new is
/// read, which is said with a code; when there are fewer, reading goes on.
#[tokio::test]
async fn a_full_owner_reads_nothing_new_and_goes_on_with_what_waits() {
    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh, &[of("1"), of("2"), of("3")]).await;
    let mut options = Options::default();
    (options.stream, options.waiting_max) = (false, 2);
    let relay = Relay::start(DynamoStore::with(fresh.connection.clone(), options)).await;
    let (all, rows) = read(&relay).await;
    let lease = all.lease.clone();
    let entered = enter_all(all, &rows);
    relay.store.settle(&entered).await.expect("a settlement goes through");
    write(&fresh, &[of("4")]).await;
    let error = relay.try_read().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operator_code()),
        (ErrorKind::Backpressure, Some(Code::WaitingFull))
    );
    assert_eq!(ask(&relay, &lease).await.len(), 3, "retries go on");
    let mut part = SettlementPart::new(a());
    part.changes = rows[..2].iter().map(|(row, _)| WaitingChange::Delivered(*row)).collect();
    relay.store.settle(&Settlement { lease, parts: vec![part] }).await.unwrap();
    let (more, _) = read(&relay).await;
    assert_eq!(more.parts[0].passed.len(), 1, "and reading, when there is room");
}
