//! A handler that does not look at the answer acts on duplicates.
#![deny(unused_must_use)]

use postrider_core::{Event, HandlerName, Result};

async fn act(
    tx: &tokio_postgres::Transaction<'_>,
    event: &Event,
    handler: &HandlerName,
) -> Result<()> {
    postrider_postgres::accept(tx, event, handler).await?;
    Ok(())
}

fn main() {}
