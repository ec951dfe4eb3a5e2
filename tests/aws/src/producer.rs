//! One application process for the tests: it places orders, each with its event, until somebody kills it.
//!
//! `aws-producer TABLES PREFIX ORDERS [apart]`: prints the number of each order that it was told is committed. One that
//! writes `apart` is the wrong way: the order first, and then its event.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::ExitCode;

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use postrider_core::{Error, ErrorKind, EventId, NewEvent, Result};
use postrider_dynamodb::{Connection, Names, Outbox, Settings};

/// Somebody kills it long before.
const ORDERS_MAX: u32 = 100_000;

fn wrong(message: impl ToString) -> Error {
    Error::new(ErrorKind::Config, "start").message(message.to_string())
}

fn order(table: &str, id: &str) -> Result<TransactWriteItem> {
    let item = HashMap::from([("pk".to_owned(), AttributeValue::S(id.to_owned()))]);
    let put = Put::builder().table_name(table).set_item(Some(item)).build().map_err(wrong)?;
    Ok(TransactWriteItem::builder().put(put).build())
}

async fn run(args: &[String]) -> Result<()> {
    let [tables, prefix, orders, apart @ ..] = args else {
        return Err(wrong("aws-producer TABLES PREFIX ORDERS [apart]"));
    };
    let connection = Connection::new(Settings::at(tables, Names::with_prefix(prefix)))?;
    let outbox = Outbox::open(&connection).await?;
    let mut said = std::io::stdout();
    for _ in 0..ORDERS_MAX {
        let id = EventId::mint().to_string();
        let event = NewEvent::new("order", &*id, "order.placed").source("/shop").json(&id)?;
        let placed = order(orders, &id)?;
        if apart.is_empty() {
            outbox.write(&[placed], &[event]).await?;
        } else {
            let alone = connection.tables().await.transact_write_items().transact_items(placed);
            alone.send().await.map_err(wrong)?;
            outbox.write(&[], &[event]).await?;
        }
        writeln!(said, "{id}").and_then(|()| said.flush()).map_err(wrong)?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&args).await {
        _ = writeln!(std::io::stderr(), "{error}");
    }
    ExitCode::FAILURE
}
