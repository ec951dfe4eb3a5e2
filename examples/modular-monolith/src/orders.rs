//! The module `orders`: places orders, and cancels those that cannot be billed.

use std::path::Path;

use postrider::sqlite::{Outbox, Transactional, connect};
use postrider::{Event, HandlerName, Result, TypedEvent, Verdict};
use serde::{Deserialize, Serialize};

use crate::billing::InvoiceRefused;

/// An order was placed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "order.placed", aggregate = "order")]
pub struct OrderPlaced {
    /// Which one.
    #[event(id)]
    pub order_id: i64,
    /// What it costs.
    pub total_cents: i64,
}

/// Creates the module's own tables.
///
/// # Errors
/// If the file cannot be written to.
pub fn create_tables(file: &Path) -> rusqlite::Result<()> {
    let database = rusqlite::Connection::open(file)?;
    database.execute_batch(include_str!("../sql/orders/tables.sql"))
}

/// Places an order: the row and the event, in one transaction.
///
/// # Errors
/// If the order exists, or the file cannot be written to. Then there is neither row nor event.
pub fn place(
    file: &Path,
    order: &OrderPlaced,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut database = connect(file)?;
    let tx = database.transaction()?;
    tx.execute(include_str!("../sql/orders/place.sql"), (order.order_id, order.total_cents))?;
    Outbox::new().enqueue(&tx, &order.to_event()?)?;
    tx.commit()?;
    Ok(())
}

/// Hears of invoices that were refused.
///
/// # Errors
/// If the file cannot be opened.
pub fn handler(file: &Path) -> Result<Transactional> {
    Transactional::new(file, HandlerName::new("orders.cancel")?, |tx, event| {
        if &*event.event_type == InvoiceRefused::TYPE {
            let refused = InvoiceRefused::from_event(event)?;
            tx.execute(include_str!("../sql/orders/cancel.sql"), [refused.order_id])?;
        }
        Ok(Verdict::Done)
    })
}
