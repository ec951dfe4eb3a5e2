//! The control: the same calls with a transaction compile.
#![deny(unused_must_use)]

use postrider_core::{Event, HandlerName, Result};
use postrider_postgres::{Inbox, accept};
use tokio_postgres::Transaction;

async fn act(tx: &Transaction<'_>, event: &Event, handler: &HandlerName) -> Result<()> {
    let _ = accept(tx, event, handler).await?;
    let _ = Inbox::new().accept(tx, event, handler).await?;
    Ok(())
}

fn main() {
    let _ = act;
}
