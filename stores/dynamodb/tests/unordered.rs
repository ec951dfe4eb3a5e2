//! Events without numbers: order is given up, and what is had for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use postrider_core::{ErrorKind, NewEvent};
use postrider_dynamodb::{Connection, Outbox, Settings};
use serde_json::Value;
use tokio::sync::Barrier;

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};

/// Writers of one key at once.
const WRITERS: usize = 8;
/// The longest that they take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was seen at the boundary.
#[derive(Default)]
struct Seen {
    reads: AtomicUsize,
    sent: AtomicUsize,
    actions: AtomicUsize,
    /// Transactions of the first round that passed: those that every writer sent before it heard of any other.
    passed: AtomicUsize,
}

/// All writers write one event of the same key, and meet where `meets` says: none goes on before all are there.
async fn at_once(fresh: &Fresh, ordered: bool, meets: &'static str) -> Arc<Seen> {
    let (seen, barrier) = (Arc::new(Seen::default()), Arc::new(Barrier::new(WRITERS)));
    let (noted, judged, met) = (Arc::clone(&seen), Arc::clone(&seen), AtomicUsize::new(0));
    let rule = move |operation: &str, body: &mut Value| {
        match operation {
            "GetItem" if body["TableName"].as_str().unwrap().ends_with("outbox") => {
                noted.reads.fetch_add(1, Ordering::SeqCst);
            }
            "TransactWriteItems" => {
                noted.sent.fetch_add(1, Ordering::SeqCst);
                let actions = body["TransactItems"].as_array().unwrap().len();
                noted.actions.fetch_add(actions, Ordering::SeqCst);
            }
            _ => return Then::Forward,
        }
        if operation != meets || met.fetch_add(1, Ordering::SeqCst) >= WRITERS {
            return Then::Forward;
        }
        let barrier = Arc::clone(&barrier);
        Then::Hold(Box::pin(async move { _ = barrier.wait().await }))
    };
    let edit = move |operation: &str, asked: &Value, answer: &mut Value| {
        let actions = asked["TransactItems"].as_array().map_or(&[][..], |actions| actions);
        let later = actions.iter().any(|action| {
            action["Update"]["ConditionExpression"].as_str().is_some_and(|it| it.contains(":from"))
        });
        if operation == "TransactWriteItems" && !later && answer.get("__type").is_none() {
            judged.passed.fetch_add(1, Ordering::SeqCst);
        }
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(edit)).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let outbox = Outbox::open(&Connection::new(settings).unwrap()).await.unwrap();
    let outbox = if ordered { outbox } else { outbox.unordered() };
    let write = |_| async {
        let event = NewEvent::new("order", if ordered { "1" } else { "2" }, "order.changed");
        while let Err(error) = outbox.write(&[], std::slice::from_ref(&event)).await {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
    };
    let all = join_all((0..WRITERS).map(write));
    tokio::time::timeout(PATIENCE, all).await.expect("all of them write");
    seen
}

/// R072: writers of one key that meet: with numbers one of them goes on, and the others begin again; without, all
/// of them do, in one call each of half the actions, and nothing is read.
#[tokio::test(flavor = "multi_thread")]
async fn without_numbers_writers_of_a_key_do_not_wait_for_each_other() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    // They meet when each has read the key's head, and before any has moved it.
    let ordered = at_once(&fresh, true, "GetItem").await;
    assert_eq!(of(&ordered.passed), 1, "one draws the next number");
    assert!(of(&ordered.sent) >= 2 * WRITERS - 1, "the others begin again: {}", of(&ordered.sent));
    assert_eq!(of(&ordered.actions), 2 * of(&ordered.sent), "the event, and the head");
    assert!(of(&ordered.reads) >= 2 * WRITERS - 1);
    // They meet with their transactions: all are under way at once.
    let unordered = at_once(&fresh, false, "TransactWriteItems").await;
    assert_eq!(of(&unordered.passed), WRITERS, "all of them");
    assert_eq!((of(&unordered.sent), of(&unordered.actions)), (WRITERS, WRITERS));
    assert_eq!(of(&unordered.reads), 0);
}
