//! A removal of a destination beside others: who settles for it at that moment, and who finishes the same one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::operate::{Filter, Note, PageRequest, RowKey, Submission, Verb};
use postrider_core::source::{CarryOutRequest, DefinitionChange, DueRequest};
use postrider_core::waiting::{Counts, Settlement, SettlementPart, WaitingChange};
use postrider_core::{ErrorKind, Operator as _, OutboxSource, Timestamp};
use postrider_dynamodb::{Connection, DynamoStore, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Rule, Then, aside};
use crate::relay::{Relay, a};
use crate::removal::{another, entering, is_let_go, items, polling, removal, write};

/// Events that wait when the destination is removed.
const OLD: usize = 2;
/// Events that wait for the one that comes after it.
const NEW: usize = 2;

/// Settings of a connection through a rule. What is done aside takes as long as it takes.
async fn through(fresh: &Fresh, rule: Rule) -> Connection {
    let own = proxy::start(&fresh::url().unwrap(), rule, Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = Duration::from_secs(300);
    Connection::new(settings).unwrap()
}

/// Whether a request writes a waiting event's row.
fn writes_a_row(operation: &str, body: &Value) -> bool {
    operation == "TransactWriteItems" && body.to_string().contains("\"W#a#")
}

/// What waits for the destination, as a program reads it that knows nothing.
async fn waiting(fresh: &Fresh) -> Counts {
    polling(fresh.connection.clone()).counts(&a()).await.unwrap()
}

fn sum(counts: &Counts) -> u64 {
    counts.dead + counts.retrying + counts.parked + counts.held + counts.disabled
}

/// A relay whose first write of a row, once that is armed, comes after the whole removal of its destination, of which it
/// knows nothing when it writes.
async fn late(fresh: &Fresh) -> (Relay, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let (on, settings) = (Arc::clone(&armed), fresh.settings.clone());
    let rule = move |operation: &str, body: &mut Value| {
        if writes_a_row(operation, body) && on.swap(false, Ordering::SeqCst) {
            let settings = settings.clone();
            aside(move || async move {
                let other = polling(Connection::new(settings).unwrap());
                OutboxSource::apply(&other, &removal()).await.unwrap();
            });
        }
        Then::Forward
    };
    let connection = through(fresh, Box::new(rule)).await;
    (Relay::start(polling(connection)).await, armed)
}

/// R009: what a settlement writes down as waiting after a removal has looked, having read the definitions before it, is
/// refused with nothing lost: its events are pending for whoever comes next, and no row is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_that_is_late_leaves_no_row_of_a_removed_destination() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (relay, armed) = late(&fresh).await;
    write(&fresh.connection, 0..OLD).await;
    let (read, rows) = relay.read_rows().await;
    let settlement = entering(read, &rows);
    armed.store(true, Ordering::SeqCst);
    let error = relay.store.settle(&settlement).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("nothing of it was written"), "{error}");
    assert_eq!(waiting(&fresh).await, Counts::default());
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(waiting(&fresh).await, Counts::default(), "sent again, it is about nothing");
    let items = items(&fresh).await;
    assert!(items.iter().all(|item| item.contains_key("pr_shard")), "all of them are pending");
}

/// R009: nor does one that writes a row that was there: it comes back for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_is_late_brings_no_row_back() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (relay, armed) = late(&fresh).await;
    write(&fresh.connection, 0..OLD).await;
    let (read, rows) = relay.read_rows().await;
    let lease = read.lease.clone();
    relay.store.settle(&entering(read, &rows)).await.unwrap();
    let mut part = SettlementPart::new(a());
    // The second one is tried again later.
    let delay = Duration::from_secs(1);
    part.changes.push(WaitingChange::Postpone { row: rows[1].row, delay });
    armed.store(true, Ordering::SeqCst);
    let settlement = Settlement { lease, parts: vec![part] };
    let error = relay.store.settle(&settlement).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(waiting(&fresh).await, Counts::default());
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(waiting(&fresh).await, Counts::default());
    assert_eq!(items(&fresh).await.iter().filter(|item| is_let_go(item)).count(), OLD);
}

/// R009: a request that an owner carries out while the destination is removed is done to nothing, and told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_late_brings_no_row_back() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (mut relay, armed) = late(&fresh).await;
    write(&fresh.connection, 0..1).await;
    let (read, _) = relay.read_rows().await;
    assert_eq!(relay.drain().await.len(), 1);
    let operator = polling(fresh.connection.clone());
    let all = PageRequest { after: None, limit: 1 };
    let seq = operator.events(&Filter::default(), &all).await.unwrap().rows[0].seq;
    let verb = Verb::Requeue(vec![RowKey { destination: a(), seq }]);
    let note = Note::new("anna@db1", "a test").unwrap();
    let id = operator.submit(&Submission { verb, note }).await.unwrap();
    let asked = CarryOutRequest { leases: vec![read.lease], rows_max: 100 };
    armed.store(true, Ordering::SeqCst);
    let error = relay.store.carry_out(&asked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(waiting(&fresh).await, Counts::default());
    relay.store.carry_out(&asked).await.unwrap();
    let request = operator.request(id).await.unwrap();
    assert_eq!((request.done, request.skipped), (0, 1));
    assert_eq!(waiting(&fresh).await, Counts::default());
}

/// R009: what waited for a destination that is removed under its owner is handed out no more once a settlement has met
/// that, and not sent again and again until the owner hears of the removal.
#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_a_removed_destination_is_not_handed_out_again() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let relay = Relay::start(polling(fresh.connection.clone())).await;
    write(&fresh.connection, 0..OLD).await;
    let (read, rows) = relay.read_rows().await;
    let lease = read.lease.clone();
    relay.store.settle(&entering(read, &rows)).await.unwrap();
    let change = |change| {
        let mut part = SettlementPart::new(a());
        part.changes.push(change);
        Settlement { lease: lease.clone(), parts: vec![part] }
    };
    let now = WaitingChange::Postpone { row: rows[1].row, delay: Duration::ZERO };
    relay.store.settle(&change(now)).await.unwrap();
    let request = DueRequest {
        lease: lease.clone(),
        destination: a(),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    let other = polling(fresh.connection.clone());
    OutboxSource::apply(&other, &removal()).await.unwrap();
    let due = relay.store.due(&request).await.unwrap().rows;
    assert_eq!(due.len(), 1, "its owner has not heard of the removal");
    relay.store.settle(&change(WaitingChange::Delivered(due[0].row))).await.unwrap();
    assert!(relay.store.due(&request).await.unwrap().rows.is_empty());
}

/// Begins a removal of which nothing more is done than that the definitions say so.
async fn begin_removal(fresh: &Fresh) {
    let mut begun = false;
    let rule = move |operation: &str, body: &mut Value| {
        if begun {
            let text = "is not authorized to perform: dynamodb:Query on resource: x";
            let answer = json!({"__type": "AccessDeniedException", "message": text});
            return Then::Answer(400, answer);
        }
        let body = body.to_string();
        begun = operation == "TransactWriteItems" && body.contains("\"definitions\"");
        Then::Forward
    };
    let store = polling(through(fresh, Box::new(rule)).await);
    OutboxSource::apply(&store, &removal()).await.unwrap_err();
}

/// Whoever only looks leaves a removal to those that change something, or deliver: it may be somebody's who is still at it.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_looks_finishes_no_removal() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let relay = Relay::start(polling(fresh.connection.clone())).await;
    write(&fresh.connection, 0..OLD).await;
    let (read, rows) = relay.read_rows().await;
    relay.store.settle(&entering(read, &rows)).await.unwrap();
    begin_removal(&fresh).await;
    let looks = polling(fresh.connection.clone());
    let (nothing, page) = (Filter::default(), PageRequest { after: None, limit: 10 });
    looks.open().await.unwrap();
    looks.overview().await.unwrap();
    looks.events(&nothing, &page).await.unwrap();
    looks.event(rows[0].row.id).await.unwrap();
    looks.waiting(&nothing, &page).await.unwrap();
    looks.doctor(Timestamp::now()).await.unwrap();
    assert_eq!(sum(&waiting(&fresh).await), OLD as u64);
    assert_eq!(gone(&fresh).await, 0);
    // A relay that starts does: it registers what it delivers to.
    looks.register(&[]).await.unwrap();
    assert_eq!(waiting(&fresh).await, Counts::default());
    assert_eq!(gone(&fresh).await, OLD);
}

/// Another finishes the removal, and adds a destination of the same name, for which events wait soon.
async fn overtake(fresh: &Fresh, relay: &Relay) {
    // A connection of its own: it is on another thread, while the one that is overtaken stands still.
    let connection = Connection::new(fresh.settings.clone()).unwrap();
    let store = polling(connection.clone());
    OutboxSource::apply(&store, &DefinitionChange::default()).await.unwrap();
    OutboxSource::apply(&store, &another("a")).await.unwrap();
    write(&connection, OLD..OLD + NEW).await;
    let twin = relay.twin(store).await;
    let (read, rows) = twin.read_rows().await;
    assert_eq!(rows.len(), NEW);
    twin.store.settle(&entering(read, &rows)).await.unwrap();
}

/// One finishes a removal, and is overtaken before its request of this number, counted from zero; how many it made.
async fn finish_overtaken(fresh: &Arc<Fresh>, relay: &Arc<Relay>, at: usize, again: bool) -> usize {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let overtaker = Mutex::new((Arc::clone(fresh), Arc::clone(relay)));
    let rule = move |_: &str, _: &mut Value| {
        if counted.fetch_add(1, Ordering::SeqCst) == at {
            let (fresh, relay) = overtaker.lock().unwrap().clone();
            aside(move || async move {
                overtake(&fresh, &relay).await;
                if again {
                    begin_removal(&fresh).await;
                }
            });
        }
        Then::Forward
    };
    let store = polling(through(fresh, Box::new(rule)).await);
    OutboxSource::apply(&store, &DefinitionChange::default()).await.unwrap();
    made.load(Ordering::SeqCst)
}

/// How many events were let go.
async fn gone(fresh: &Fresh) -> usize {
    items(fresh).await.iter().filter(|item| is_let_go(item)).count()
}

/// A removal is begun, and finished by two: one is overtaken before its request of this number, counted from zero. Gives how
/// many it made: no more than that if it was done before anybody could overtake it.
async fn play(fresh: &Arc<Fresh>, store: &DynamoStore, at: usize, again: bool) -> usize {
    let before = gone(fresh).await;
    let relay = Arc::new(Relay::start(polling(fresh.connection.clone())).await);
    write(&fresh.connection, 0..1).await;
    let (read, rows) = relay.read_rows().await;
    relay.store.settle(&entering(read, &rows)).await.unwrap();
    begin_removal(fresh).await;
    let made = finish_overtaken(fresh, &relay, at, again).await;
    relay.go().await;
    if made > at {
        if again {
            OutboxSource::apply(store, &DefinitionChange::default()).await.unwrap();
            assert_eq!(waiting(fresh).await, Counts::default(), "overtaken at {at}");
        } else {
            assert_eq!(sum(&waiting(fresh).await), NEW as u64, "overtaken at {at}");
            assert_eq!(gone(fresh).await - before, 1, "overtaken at {at}");
            OutboxSource::apply(store, &removal()).await.unwrap();
        }
        assert_eq!(gone(fresh).await - before, 1 + NEW, "overtaken at {at}");
    }
    OutboxSource::apply(store, &another("a")).await.unwrap();
    made
}

/// R009: of two that finish one removal the slower one, wherever it stands, drops nothing of a destination that was added
/// again under the name, and takes no other removal for its own.
#[tokio::test(flavor = "multi_thread")]
async fn who_finishes_a_removal_late_leaves_the_next_destination_alone() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let fresh = Arc::new(fresh);
    let store = polling(fresh.connection.clone());
    let mut all = 0;
    while play(&fresh, &store, all, false).await > all {
        all += 1;
    }
    assert!(all > 5, "{all} requests");
    // The first way goes through every place, the second one through the first, the last, and one between.
    let mut overtaken = 0;
    for at in [0, all / 2, all - 1] {
        overtaken += usize::from(play(&fresh, &store, at, true).await > at);
    }
    assert!(overtaken >= 2, "{overtaken} of 3 were overtaken");
}
