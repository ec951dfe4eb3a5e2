//! Consumer only: a service that acts on another's events, each once, though they come twice.
//!
//! `cargo run -p postrider --example consumer`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use postrider::inbox::Consumer;
use postrider::local::{LocalBroker, SubscribeOptions};
use postrider::sqlite::{Transactional, connect, init};
use postrider::{Broker, Event, EventId, Format, HandlerName, Outcome, Outgoing, Verdict};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// Receives one event twice, and bills once.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("billing.db");
    init(&path)?;
    let database = connect(&path)?;
    database.execute_batch("create table invoices (order_id text not null)")?;
    let broker = LocalBroker::open(folder.path().join("queue.db"))?;

    // The other service's relay did not hear the answer to its first try, so it sent the event again.
    let message = outgoing();
    for _ in 0..2 {
        let outcomes = broker.publish(std::slice::from_ref(&message)).await?;
        assert_eq!(outcomes, [Outcome::Acked]);
    }

    // The closure runs in the transaction that also holds the inbox's record of the event.
    let billing = Transactional::new(&path, HandlerName::new("billing")?, |tx, event| {
        tx.execute("insert into invoices (order_id) values (?1)", [&*event.aggregate_id])?;
        Ok(Verdict::Done)
    })?;
    let orders = broker.subscribe("billing", "order.*", SubscribeOptions::default()).await?;
    let consumer = Consumer::builder(Arc::new(orders)).receiver(Arc::new(billing)).start()?;
    let stats = consumer.reached(|stats, _| stats.done + stats.duplicates == 2).await;
    consumer.drain(Duration::from_secs(5));
    consumer.stopped().await;

    assert_eq!((stats.done, stats.duplicates), (1, 1));
    let invoices: i64 =
        database.query_row("select count(*) from invoices", (), |row| row.get(0))?;
    assert_eq!(invoices, 1);
    println!("2 deliveries, {invoices} invoice");
    Ok(())
}

/// An event as another service's relay sends it: with that service's name as its source.
fn outgoing() -> Outgoing {
    let mut event = Event::new(EventId::mint(), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    Outgoing {
        event: Arc::new(event),
        topic: Arc::from("order.placed"),
        format: Format::Structured,
        layout: None,
        marks: postrider::Marks::default(),
        attempt: 1,
    }
}
