//! Derived events from a transaction in SQLite, through relay and broker, to a handler that reads
//! them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider::inbox::Consumer;
use postrider::local::{LocalBroker, SubscribeOptions};
use postrider::relay::{Relay, Target};
use postrider::sqlite::{Outbox, SqliteStore, Transactional, connect, init};
use postrider::{
    Destination, DestinationId, Event, Fault, HandlerName, Match, Result, Route, TypedEvent,
    Verdict,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "order.placed", version = 1)]
struct PlacedInEuro {
    #[event(id)]
    order: u32,
    total: i64,
}

#[derive(Serialize, Deserialize, Event)]
#[event(type = "order.placed", version = 2)]
struct Placed {
    #[event(id)]
    order: u32,
    cents: i64,
}

#[derive(Serialize, Deserialize, Event)]
#[event(type = "order.placed", version = 3)]
struct PlacedInFuture {
    #[event(id)]
    order: String,
}

/// A command: it asks for something, and goes to one queue.
#[derive(Serialize, Deserialize, Event)]
#[event(type = "invoice.issue", aggregate = "order")]
struct IssueInvoice {
    #[event(id)]
    order: u32,
}

/// Stages one event of each kind in one transaction.
fn stage(path: &Path) {
    init(path).unwrap();
    let mut database = connect(path).unwrap();
    database.execute_batch("create table bills (order_id integer primary key, cents)").unwrap();
    let tx = database.transaction().unwrap();
    let outbox = Outbox::new();
    let staged = [
        PlacedInEuro { order: 1, total: 12 }.to_event().unwrap(),
        Placed { order: 2, cents: 1250 }.to_event().unwrap(),
        PlacedInFuture { order: "three".to_owned() }.to_event().unwrap(),
        IssueInvoice { order: 1 }.to_event().unwrap(),
    ];
    outbox.enqueue_many(&tx, &staged).unwrap();
    tx.commit().unwrap();
}

async fn relay_once(path: &Path, broker: &LocalBroker) -> u64 {
    let routes = vec![
        Route::all("commands.{aggregate_type}".parse().unwrap())
            .only(Match::event_type("invoice.issue")),
        Route::all("{event_type}".parse().unwrap()),
    ];
    let queue = Destination::new(DestinationId::new("queue").unwrap(), "local", routes);
    let relay = Relay::builder(Arc::new(SqliteStore::new(path).unwrap()))
        .destination(queue, Arc::new(broker.clone()))
        .target(Target::Once)
        .start()
        .await
        .unwrap();
    relay.stopped().await.health.delivered
}

/// The shape of today, out of both versions that are on their way.
fn read(event: &Event) -> Result<Placed> {
    match (&*event.event_type, event.event_version) {
        (PlacedInEuro::TYPE, PlacedInEuro::VERSION) => {
            let old = PlacedInEuro::from_event(event)?;
            Ok(Placed { order: old.order, cents: old.total * 100 })
        }
        _ => Placed::from_event(event),
    }
}

/// A handler that writes a bill for each order that its reader understands.
async fn bill(
    path: &Path,
    broker: &LocalBroker,
    name: &str,
    read: fn(&Event) -> Result<Placed>,
) -> Vec<(i64, i64)> {
    let handler = Transactional::new(path, HandlerName::new(name).unwrap(), move |tx, event| {
        let placed = match read(event) {
            Ok(placed) => placed,
            Err(error) => {
                return Ok(Verdict::Reject(Fault::new(error.kind(), error.to_string())));
            }
        };
        tx.execute("insert into bills values (?1, ?2)", (placed.order, placed.cents))?;
        Ok(Verdict::Done)
    })
    .unwrap();
    let orders = broker.subscribe(name, "order.*", SubscribeOptions::default()).await.unwrap();
    let consumer = Consumer::builder(Arc::new(orders)).receiver(Arc::new(handler)).start().unwrap();
    consumer.reached(|stats, _| stats.done + stats.rejected == 3).await;
    consumer.drain(Duration::from_secs(5));
    consumer.stopped().await;
    let database = connect(path).unwrap();
    let mut bills = database.prepare("delete from bills returning order_id, cents").unwrap();
    let rows = bills.query_map((), |row| row.try_into()).unwrap();
    let mut rows: Vec<(i64, i64)> = rows.map(std::result::Result::unwrap).collect();
    rows.sort_unstable();
    rows
}

/// R016: consumers of one version, of the other, and of both run beside each other on one mixed
/// stream. R064: events go to the topic of their type and commands to their queue, keyed by their
/// aggregate. R126: what a consumer does not know is a dead letter with the reason, never dropped.
#[tokio::test]
async fn derived_events_are_delivered_and_read_by_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    stage(&path);
    let broker = LocalBroker::open(folder.path().join("queue.db")).unwrap();
    assert_eq!(relay_once(&path, &broker).await, 4);

    let commands = broker.messages("commands.order").await.unwrap();
    assert_eq!(commands.len(), 1);
    assert_eq!(IssueInvoice::from_event(&commands[0].event).unwrap().order, 1);
    assert_eq!(commands[0].event.key(), "order/1");
    assert_eq!(broker.messages(Placed::TYPE).await.unwrap().len(), 3);

    let old: fn(&Event) -> Result<Placed> = |event| {
        PlacedInEuro::from_event(event).map(|old| Placed { order: old.order, cents: old.total })
    };
    assert_eq!(bill(&path, &broker, "old", old).await, [(1, 12)]);
    assert_eq!(bill(&path, &broker, "new", Placed::from_event).await, [(2, 1250)]);
    assert_eq!(bill(&path, &broker, "both", read).await, [(1, 1200), (2, 1250)]);

    for (group, unknown) in [("old", &[2, 3][..]), ("new", &[1, 3]), ("both", &[3])] {
        let dead = broker.dead_letters(group).await.unwrap();
        let versions: Vec<u32> =
            dead.iter().map(|letter| letter.event.as_ref().unwrap().event_version).collect();
        assert_eq!(versions, unknown, "{group}");
        for (letter, version) in dead.iter().zip(unknown) {
            let named = format!("`order.placed` version {version}, and is read as");
            assert!(letter.reason.contains(&named), "{}", letter.reason);
        }
    }
}
