//! The module `billing`: bills every order that it hears of, or refuses to.

use std::path::Path;

use postrider::sqlite::{Outbox, Transactional};
use postrider::{Event, HandlerName, Result, TypedEvent, Verdict};
use serde::{Deserialize, Serialize};

use crate::orders::OrderPlaced;

/// Nobody is billed more than this without a person.
const LIMIT_CENTS: i64 = 1_000_000;

/// An order was billed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "invoice.issued", aggregate = "invoice")]
pub struct InvoiceIssued {
    /// For which order.
    #[event(id)]
    pub order_id: i64,
}

/// An order was not billed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "invoice.refused", aggregate = "invoice")]
pub struct InvoiceRefused {
    /// For which order.
    #[event(id)]
    pub order_id: i64,
}

/// Creates the module's own tables.
///
/// # Errors
/// If the file cannot be written to.
pub fn create_tables(file: &Path) -> rusqlite::Result<()> {
    let database = rusqlite::Connection::open(file)?;
    database.execute_batch(include_str!("../sql/billing/tables.sql"))
}

/// Bills orders. The invoice, the event about it, and the record that this order was heard of commit
/// together: however often the event comes, there is one invoice.
///
/// # Errors
/// If the file cannot be opened.
pub fn handler(file: &Path) -> Result<Transactional> {
    Transactional::new(file, HandlerName::new("billing.issue")?, |tx, event| {
        if &*event.event_type != OrderPlaced::TYPE {
            return Ok(Verdict::Done);
        }
        let order = OrderPlaced::from_event(event)?;
        let said = if order.total_cents > LIMIT_CENTS {
            InvoiceRefused { order_id: order.order_id }.to_event()?
        } else {
            let sql = include_str!("../sql/billing/issue.sql");
            tx.execute(sql, (order.order_id, order.total_cents))?;
            InvoiceIssued { order_id: order.order_id }.to_event()?
        };
        Outbox::new().enqueue(tx, &said.header("causationid", event.id.to_string()))?;
        Ok(Verdict::Done)
    })
}
