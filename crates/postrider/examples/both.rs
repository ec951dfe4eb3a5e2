//! Consume, act, and produce in one transaction: the marker, the change, and the new event commit
//! together or not at all.
//!
//! `cargo run -p postrider --example both`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postrider::inbox::{Consumer, ConsumerOptions};
use postrider::local::{LocalBroker, SubscribeOptions};
use postrider::relay::{Relay, Target};
use postrider::sqlite::{Outbox, SqliteStore, Transactional, connect, init_as};
use postrider::{
    Destination, DestinationId, HandlerName, NewEvent, Result, RetryPolicy, Route, Verdict,
};

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    run().await
}

/// A shop places an order; billing issues the invoice for it, and says so.
pub(crate) async fn run() -> std::result::Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (shop, bills) = (folder.path().join("shop.db"), folder.path().join("billing.db"));
    // Two services, two databases. Events are told apart by their source and id.
    init_as(&shop, "/shop")?;
    init_as(&bills, "/billing")?;
    let database = connect(&bills)?;
    database.execute_batch("create table invoices (order_id text primary key)")?;
    let broker = LocalBroker::open(folder.path().join("queue.db"))?;

    place_order(&shop)?;
    assert_eq!(relay_once(&shop, &broker).await?, 1);

    // The first try fails after everything was written: nothing of it remains, and the event comes
    // again.
    let tries = Arc::new(AtomicU32::new(0));
    let billing = billing(&bills, Arc::clone(&tries))?;
    let orders = broker.subscribe("billing", "order.*", SubscribeOptions::default()).await?;
    let soon = RetryPolicy { delay_min: Duration::from_millis(10), ..RetryPolicy::default() };
    let consumer = Consumer::builder(Arc::new(orders))
        .receiver(Arc::new(billing))
        .options(ConsumerOptions { retry: soon, ..ConsumerOptions::default() })
        .start()?;
    consumer.reached(|stats, _| stats.done == 1).await;
    consumer.drain(Duration::from_secs(5));
    consumer.stopped().await;
    assert_eq!(tries.load(Ordering::Relaxed), 2);

    // One marker, one invoice, one event to tell of it.
    let sql = "select (select count(*) from inbox where status = 'processed'),
                      (select count(*) from invoices), (select count(*) from outbox)";
    let rows: (i64, i64, i64) = database.query_row(sql, (), |row| row.try_into())?;
    assert_eq!(rows, (1, 1, 1));

    assert_eq!(relay_once(&bills, &broker).await?, 1);
    let issued = broker.messages("invoice.issued").await?;
    assert_eq!(issued.len(), 1);
    println!("1 order, 2 tries, {} invoice issued", issued.len());
    Ok(())
}

fn place_order(shop: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let mut database = connect(shop)?;
    let tx = database.transaction()?;
    let event = NewEvent::new("order", "42", "order.placed").json(&1250)?;
    Outbox::new().enqueue(&tx, &event)?;
    tx.commit()?;
    Ok(())
}

/// The handler. It gets the transaction that holds the inbox's marker, and puts everything into it.
fn billing(path: &Path, tries: Arc<AtomicU32>) -> Result<Transactional> {
    Transactional::new(path, HandlerName::new("billing")?, move |tx, event| {
        tx.execute("insert into invoices (order_id) values (?1)", [&*event.aggregate_id])?;
        let issued = NewEvent::new("invoice", &event.aggregate_id, "invoice.issued")
            .json(&event.aggregate_id)?
            .header("causationid", event.id.to_string());
        Outbox::new().enqueue(tx, &issued)?;
        if tries.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err("the printer is on fire".into());
        }
        Ok(Verdict::Done)
    })
}

/// Delivers what is committed in a store now, and says how many events that were.
async fn relay_once(store: &Path, broker: &LocalBroker) -> Result<u64> {
    let route = Route::all("{event_type}".parse()?);
    let destination = Destination::new(DestinationId::new("queue")?, "local", vec![route]);
    let relay = Relay::builder(Arc::new(SqliteStore::new(store)?))
        .destination(destination, Arc::new(broker.clone()))
        .target(Target::Once)
        .start()
        .await?;
    Ok(relay.stopped().await.health.delivered)
}
