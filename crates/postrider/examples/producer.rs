//! Producer only: an application that changes its rows and says so, and knows of no broker.
//!
//! `cargo run -p postrider --example producer`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;

use postrider::sqlite::{Outbox, connect, init};
use postrider::{ErrorKind, EventLimits, NewEvent};
use rusqlite::{Connection, Transaction, TransactionBehavior};

fn main() -> Result<(), Box<dyn Error>> {
    run()
}

/// Takes two orders, one of which fails, and looks at what the database says.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    init(&path)?;
    let mut database = connect(&path)?;
    database
        .execute_batch("create table orders (id integer primary key, total integer not null)")?;

    place(&mut database, 42, 1250)?;

    // The same order again: its row is refused, so its event never was.
    assert!(place(&mut database, 42, 990).is_err());

    // What is too large for a destination can be refused here, where its author sees it.
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let small = EventLimits { payload_bytes_max: 16, ..EventLimits::default() };
    let event = NewEvent::new("order", "43", "order.placed").json(&"a payload of many words")?;
    let refused = Outbox::new().limits(small).enqueue(&tx, &event).err().map(|e| e.kind());
    assert_eq!(refused, Some(ErrorKind::TooLarge));
    drop(tx);

    let (orders, events) = count(&database)?;
    assert_eq!((orders, events), (1, 1));
    println!("{orders} order and {events} event, committed together");
    Ok(())
}

/// One transaction: the order, and the event that tells of it.
fn place(database: &mut Connection, id: i64, total: i64) -> Result<(), Box<dyn Error>> {
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let placed = insert_order(&tx, id, total);
    // The event is a value that must be enqueued; forgetting it is a warning of the compiler.
    let event = NewEvent::new("order", id.to_string(), "order.placed").json(&total)?;
    Outbox::new().enqueue(&tx, &event)?;
    placed?;
    tx.commit()?;
    Ok(())
}

fn insert_order(tx: &Transaction<'_>, id: i64, total: i64) -> rusqlite::Result<()> {
    tx.execute("insert into orders (id, total) values (?1, ?2)", (id, total)).map(drop)
}

fn count(database: &Connection) -> rusqlite::Result<(i64, i64)> {
    let sql = "select (select count(*) from orders), (select count(*) from outbox)";
    database.query_row(sql, (), |row| row.try_into())
}
