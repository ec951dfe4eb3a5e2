//! Marks before publication: only where a lease brings back what was marked and never sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::source::OutboxSource as _;
use postrider_core::waiting::{Attempted, NewWaiting, Passed, Placement, Reason};
use postrider_core::{ErrorKind, EventId, NewEvent};
use postrider_dynamodb::{Connection, DynamoStore, Item, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::{LONG, Relay};

const SHORT: Duration = Duration::from_millis(800);
/// A lease, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

fn marking(connection: &Connection, mark_first: bool) -> DynamoStore {
    let mut options = Options::default();
    (options.stream, options.mark_first) = (false, mark_first);
    DynamoStore::with(connection.clone(), options)
}

async fn write(fresh: &Fresh, events: usize) -> Vec<EventId> {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let events: Vec<_> = (0..events).map(|_| NewEvent::new("order", "1", "changed")).collect();
    outbox.write(&[], &events).await.unwrap();
    events.iter().map(|event| event.event().id).collect()
}

/// How many items of events have each of these attributes.
async fn have<const N: usize>(fresh: &Fresh, names: [&str; N]) -> [usize; N] {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    let is_event = |item: &&Item| item["sk"].as_s().unwrap().starts_with("OUTBOX#");
    let events: Vec<&Item> = items.iter().filter(is_event).collect();
    names.map(|name| events.iter().filter(|item| item.contains_key(name)).count())
}

const SAID: [&str; 3] = ["published_at", "pr_shard", "expires_at"];

/// R032: a relay dies between the mark and the publication: what it marked is handed out to the next owner as
/// soon as its lease has run out, in order; and the dead one's late word changes nothing.
#[tokio::test]
async fn what_was_marked_and_never_sent_comes_back_with_the_lease() {
    for next_marks in [true, false] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let sent = write(&fresh, 3).await;
        let killed = Relay::start_for(marking(&fresh.connection, true), SHORT).await;
        let (late, rows) = killed.read_rows().await;
        assert_eq!(rows.len(), 3);
        assert_eq!(have(&fresh, SAID).await, [3, 3, 0], "marked, in the index, and kept for ever");
        let start = Instant::now();
        let next = marking(&fresh.connection, next_marks);
        let next = loop {
            let next = Relay::start_for(next.beside(), LONG).await;
            if next.owns() > 0 {
                break next;
            }
            // waits: the dead relay's lease has to run out
            tokio::time::sleep(SHORT / 8).await;
        };
        let (settlement, rows) = next.read_rows().await;
        let ids: Vec<EventId> = rows.iter().map(|row| row.row.id).collect();
        assert_eq!(ids, sent, "pending again, in order");
        assert!(start.elapsed() < PATIENCE, "with the lease: {:?}", start.elapsed());
        let error = killed.store.settle(&late).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        next.store.settle(&settlement).await.unwrap();
        assert_eq!(have(&fresh, SAID).await, [3, 0, 3], "published");
    }
}

/// R032: an owner that is none any more gets nothing that its successor has marked, though it does not know
/// that yet; marking afterwards, both would publish.
#[tokio::test]
async fn a_late_owner_gets_nothing_that_its_successor_marked() {
    for (mark_first, seen_by_both) in [(true, 0), (false, 3)] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let late = Relay::start_for(marking(&fresh.connection, mark_first), SHORT).await;
        let next = marking(&fresh.connection, mark_first);
        let next = loop {
            let next = Relay::start_for(next.beside(), LONG).await;
            if next.owns() > 0 {
                break next;
            }
            // waits: the first relay's lease has to run out
            tokio::time::sleep(SHORT / 8).await;
        };
        write(&fresh, 3).await;
        assert_eq!(next.read_rows().await.1.len(), 3);
        assert_eq!(late.read_rows().await.1.len(), seen_by_both);
    }
}

/// R032: a publication that failed rolls its mark back in the write that lets the event wait; where that write
/// fails the relay is told, and the item is in the index still.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_publication_rolls_the_mark_back_or_alerts() {
    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh, 1).await;
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let rule = move |operation: &str, _: &mut Value| match operation == "TransactWriteItems"
        && failing.load(Ordering::SeqCst)
    {
        true => Then::Answer(400, json!({"__type": "AccessDeniedException", "message": "no"})),
        false => Then::Forward,
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let connection = Connection::new(settings).unwrap();
    let relay = Relay::start(marking(&connection, true)).await;
    let (mut settlement, rows) = relay.read_rows().await;
    let part = &mut settlement.parts[0];
    part.passed[0].1 = Passed::Waiting;
    let attempted = Attempted { attempts: 1, reason: Reason::Failed, detail: "503".to_owned() };
    part.waiting.push(NewWaiting {
        row: rows[0].row,
        key_hash: rows[0].key_hash,
        event: None,
        placement: Placement::Retry { delay: LONG, attempted },
    });
    fails.store(true, Ordering::SeqCst);
    let error = relay.store.settle(&settlement).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "the relay is told: {error}");
    assert_eq!(have(&fresh, SAID).await, [1, 1, 0], "and the event is not lost");
    fails.store(false, Ordering::SeqCst);
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(have(&fresh, SAID).await, [0, 0, 0], "it waits, and nothing says it was published");
}

/// An event that a route drops does not say that it was published.
#[tokio::test]
async fn what_is_dropped_was_not_published() {
    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh, 1).await;
    let relay = Relay::start(marking(&fresh.connection, true)).await;
    let (mut settlement, rows) = relay.read_rows().await;
    assert_eq!((rows.len(), have(&fresh, SAID).await), (1, [1, 1, 0]));
    settlement.parts[0].passed[0].1 = Passed::Dropped;
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(have(&fresh, SAID).await, [0, 0, 1]);
    assert_eq!(have(&fresh, ["dropped_at", "marked_by"]).await, [1, 0]);
}

/// What is beyond the head of a drain is not marked by it.
#[tokio::test]
async fn what_is_not_handed_out_is_not_marked() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let relay = Relay::start(marking(&fresh.connection, true)).await;
    let head = relay.head().await;
    write(&fresh, 3).await;
    assert_eq!(relay.before(&head).await.rows.len(), 0);
    assert_eq!(have(&fresh, SAID).await, [0, 3, 0]);
    assert_eq!(relay.read_rows().await.1.len(), 3, "by who reads on");
    assert_eq!(have(&fresh, SAID).await, [3, 3, 0]);
}

/// An event that somebody settles between its reading and its mark is left out, and what follows it in its key is
/// not: it is not as where a later owner has the key.
#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_settled_meanwhile_does_not_end_its_key() {
    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh, 40).await;
    let (direct, mut first) = (fresh.settings.clone(), true);
    let rule = move |operation: &str, body: &mut Value| {
        let outbox = body["TableName"].as_str().is_some_and(|name| name.ends_with("outbox"));
        if operation == "UpdateItem" && outbox && std::mem::take(&mut first) {
            let settings = direct.clone();
            proxy::aside(move || async move { settle_behind(settings, 31).await });
        }
        Then::Forward
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let relay = Relay::start(marking(&Connection::new(settings).unwrap(), true)).await;
    assert_eq!(relay.read_rows().await.1.len(), 39);
    assert_eq!(relay.store.tallied().marked_by_others, 1);
}

/// Takes an event of the key out of the index, as one that is settled.
async fn settle_behind(settings: Settings, number: u64) {
    use aws_sdk_dynamodb::types::AttributeValue;
    let text = |text: String| AttributeValue::S(text);
    let table = settings.names.outbox.clone();
    let connection = Connection::new(settings).unwrap();
    let client = connection.tables().await;
    let update = client
        .update_item()
        .table_name(table)
        .key("pk", text("order/1".to_owned()))
        .key("sk", text(format!("OUTBOX#{number:020}")))
        .update_expression("REMOVE pr_shard");
    Box::pin(update.send()).await.unwrap();
}
