//! Endpoints that are disabled while a settlement is written: no event is left waiting for one that is in
//! service.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postrider_core::operate::{Note, Submission, Verb};
use postrider_core::source::{CarryOutRequest, OutboxSource as _};
use postrider_core::waiting::{
    Attempted, DisabledEndpoint, NewWaiting, Passed, Placement, Reason, Settlement,
};
use postrider_core::{NewEvent, Operator as _};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox};
use serde_json::Value;

use crate::fresh::Fresh;
use crate::proxy::{self, Then};
use crate::relay::{Relay, a};

const TOPIC: &str = "https://gone.example/hook";
/// Longer than it takes to carry out a request that nothing keeps.
const WHILE: Duration = Duration::from_secs(3);

fn polling(connection: Connection) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(connection, options)
}

async fn place(fresh: &Fresh, orders: &[&str]) {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let events = orders.iter().map(|order| NewEvent::new("order", *order, "order.changed"));
    outbox.write(&[], &events.collect::<Vec<_>>()).await.unwrap();
}

fn endpoint(topic: &str) -> DisabledEndpoint {
    DisabledEndpoint { topic: topic.into(), detail: "410 Gone".to_owned() }
}

/// What was read, each event waiting for an endpoint.
async fn gone(relay: &Relay, topics: &[&str]) -> Settlement {
    let (mut read, rows) = relay.read_rows().await;
    let part = &mut read.parts[0];
    assert_eq!(rows.len(), topics.len());
    for (row, topic) in rows.iter().zip(topics) {
        let detail = "410 Gone".to_owned();
        let attempted = Attempted { attempts: 1, reason: Reason::Disabled, detail };
        part.waiting.push(NewWaiting {
            row: row.row,
            key_hash: row.key_hash,
            event: None,
            placement: Placement::Disabled { endpoint: (*topic).into(), attempted },
        });
    }
    part.passed.iter_mut().for_each(|(_, passed)| *passed = Passed::Waiting);
    read
}

/// The endpoint is enabled by an operator, and that is carried out, while a request of the settlement has been
/// answered and the answer is on its way. At the end nothing waits for it.
async fn enabled_meanwhile(before: bool, is_it: fn(&str, &Value) -> bool) {
    let Some(fresh) = Fresh::new(1).await else { return };
    place(&fresh, &["1"]).await;
    let shared: Arc<OnceLock<(DynamoStore, Settlement)>> = Arc::default();
    let (tell, carried) = tokio::sync::oneshot::channel();
    let (known, settings) = (Arc::clone(&shared), fresh.settings.clone());
    let mut tell = Some(tell);
    let rule = move |operation: &str, asked: &mut Value| {
        let Some((store, settlement)) = known.get().filter(|_| is_it(operation, asked)) else {
            return Then::Forward;
        };
        let Some(tell) = tell.take() else { return Then::Forward };
        let (store, leases) = (store.clone(), vec![settlement.lease.clone()]);
        let direct = polling(Connection::new(settings.clone()).unwrap());
        let work = async move {
            let verb = Verb::Enable { destination: a(), topic: TOPIC.to_owned() };
            let note = Note::new("anna@db1", "it is back").unwrap();
            direct.submit(&Submission { verb, note }).await.unwrap();
            store.carry_out(&CarryOutRequest { leases, rows_max: 1_000 }).await.unwrap();
        };
        Then::Hold(Box::pin(async move {
            let mut work = Box::pin(work);
            if tokio::time::timeout(WHILE, &mut work).await.is_ok() {
                _ = tell.send(None);
            } else {
                // The settlement keeps it, and goes on now.
                _ = tell.send(Some(tokio::spawn(work)));
            }
        }))
    };
    let mut settings = fresh.settings.clone();
    let upstream = settings.endpoint.clone().unwrap();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| {})).await);
    let relay = Relay::start(polling(Connection::new(settings).unwrap())).await;
    let mut settlement = gone(&relay, &[TOPIC]).await;
    if before {
        let mut first = settlement.clone();
        (first.parts[0].waiting, first.parts[0].passed) = (Vec::new(), Vec::new());
        (first.parts[0].cursor, first.parts[0].disabled) = (None, vec![endpoint(TOPIC)]);
        relay.store.settle(&first).await.unwrap();
    } else {
        settlement.parts[0].disabled.push(endpoint(TOPIC));
    }
    shared.set((relay.store.clone(), settlement.clone())).ok().unwrap();
    relay.store.settle(&settlement).await.unwrap();
    if let Some(rest) = carried.await.expect("the request came by") {
        rest.await.unwrap();
    }
    assert_eq!(relay.store.destinations().await.unwrap().disabled, []);
    let written = polling(fresh.connection.clone()).counts(&a()).await.unwrap();
    assert_eq!((written.disabled, written.retrying), (0, 1), "{written:?}");
}

/// R001: an endpoint that is enabled while a settlement reads what is disabled keeps no event.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_enabled_behind_the_reading_keeps_no_event() {
    enabled_meanwhile(true, |operation, asked| {
        operation == "GetItem" && asked["Key"]["pk"]["S"] == "definitions"
    })
    .await;
}

/// R001: nor does one that is enabled right after the settlement has disabled it.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_enabled_behind_its_disabling_keeps_no_event() {
    enabled_meanwhile(false, |operation, asked| {
        operation == "TransactWriteItems"
            && asked["TransactItems"][0]["Put"]["Item"]["pk"]["S"] == "definitions"
    })
    .await;
}

/// One more endpoint than are remembered: it is disabled for nobody, so its event is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_beyond_the_bound_keeps_no_event() {
    let Some(fresh) = Fresh::new(1).await else { return };
    place(&fresh, &["1", "2"]).await;
    let relay = Relay::start(polling(fresh.connection.clone())).await;
    let topic = |n: u32| format!("https://{n}.example");
    let mut settlement = gone(&relay, &[&topic(0), &topic(1_000)]).await;
    settlement.parts[0].disabled = (0..=1_000).map(|n| endpoint(&topic(n))).collect();
    relay.store.settle(&settlement).await.unwrap();
    assert_eq!(relay.store.destinations().await.unwrap().disabled.len(), 1_000);
    let counts = relay.store.counts(&a()).await.unwrap();
    assert_eq!((counts.disabled, counts.retrying), (1, 1), "{counts:?}");
}
