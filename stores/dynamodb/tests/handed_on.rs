//! Events without a route, which one reading hands on to another of the same partition.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::source::{FetchRequest, OutboxSource as _};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_core::{Destination, DestinationId, NewEvent};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// An event that one reading hands on is under way in the other before the first has heard that it is written: what the
/// first forgets then is its own, and the other's word is taken.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_handed_on_is_the_other_readings_at_once() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let holds = Arc::new(AtomicBool::new(false));
    let (written, is_written) = oneshot::channel();
    let (heard, hears) = oneshot::channel();
    let (now, once) = (Arc::clone(&holds), Mutex::new(Some((written, hears))));
    let rule = move |operation: &str, body: &mut Value| {
        let outbox = body["TableName"].as_str().is_some_and(|name| name.ends_with("outbox"));
        if operation != "UpdateItem" || !outbox || !now.load(Ordering::SeqCst) {
            return Then::Forward;
        }
        let Some((written, hears)) = once.lock().unwrap().take() else { return Then::Forward };
        Then::Hold(Box::pin(async {
            written.send(()).unwrap();
            hears.await.unwrap();
        }))
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let mut options = Options::default();
    options.stream = false;
    let store = DynamoStore::with(Connection::new(settings).unwrap(), options);
    let relay = Relay::start(store.clone()).await;
    let event = NewEvent::new("order", "1", "order.changed");
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    outbox.write(&[], std::slice::from_ref(&event)).await.unwrap();
    let mut hands_on = relay.read().await.remove(0);
    hands_on.parts[0].passed[0].1 = Passed::OtherRoute;
    let lease = hands_on.lease.clone();
    let unrouted = DestinationId::new(Destination::UNROUTED).unwrap();
    let cursor = store.load(&lease, &unrouted).await.unwrap().cursor;
    holds.store(true, Ordering::SeqCst);
    let settles = tokio::spawn({
        let store = store.clone();
        async move { store.settle(&hands_on).await }
    });
    is_written.await.unwrap();
    let request = FetchRequest {
        lease: lease.clone(),
        destinations: vec![unrouted.clone()],
        after: cursor.clone(),
        until: None,
        rows_max: 10,
        bytes_max: u64::MAX,
    };
    let page = store.fetch(&request).await.unwrap();
    assert_eq!(page.rows.len(), 1, "it is there already");
    heard.send(()).unwrap();
    settles.await.unwrap().unwrap();
    let mut part = SettlementPart::new(unrouted.clone());
    part.cursor = Some((cursor, page.end));
    let row = &page.rows[0];
    let attempted = Attempted { attempts: 1, reason: Reason::NoRoute, detail: String::new() };
    let placement = Placement::Dead { attempted, holds_key: true };
    part.passed.push((row.row, Passed::Waiting));
    part.waiting.push(NewWaiting { row: row.row, key_hash: row.key_hash, event: None, placement });
    store.settle(&Settlement { lease, parts: vec![part] }).await.unwrap();
    assert_eq!(store.counts(&unrouted).await.unwrap().dead, 1);
    assert_eq!(relay.read().await[0].parts[0].passed, [], "and the first has it no more");
}
