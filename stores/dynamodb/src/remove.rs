//! Removal: the tables go with all that is in them, for those that were made for a trial.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::connection::{Connection, call};

/// How long a table that is being made or changed is waited for: the service deletes none in that state.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// How often it is tried meanwhile.
const BUSY_LOOK: Duration = Duration::from_secs(1);

/// Deletes the three tables, each whatever came of those before it. **Every event, waiting or done, goes with them.** What is absent is no failure. A table
/// of the application's stays, with the events in it.
///
/// # Errors
/// What the service says of the first that could not be deleted; the message names all that are left.
pub async fn remove(connection: &Connection) -> Result<()> {
    let names = connection.names();
    let client = connection.tables().await;
    let outbox = (!names.shared).then_some(&names.outbox);
    let mut failed: Option<Error> = None;
    let mut left = Vec::new();
    for table in outbox.into_iter().chain([&names.store, &names.inbox]) {
        if let Err(error) = delete(client, table).await {
            left.push(table.as_str());
            failed.get_or_insert(error);
        }
    }
    match failed {
        None => Ok(()),
        Some(error) => Err(Error::new(error.kind(), "remove tables")
            .message(format!("{} may be left: delete them by hand", left.join(" and ")))
            .source(error)),
    }
}

async fn delete(client: &aws_sdk_dynamodb::Client, table: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let delete = client.delete_table().table_name(table);
        match call("remove tables", table, delete.send()).await {
            Err(error) if error.kind() == ErrorKind::SchemaMissing => return Ok(()),
            Err(error)
                if error.to_string().contains("ResourceInUse") && begun.elapsed() < BUSY_MAX =>
            {
                sleep(BUSY_LOOK).await; // waits: the service gives no signal
            }
            other => return other.map(drop),
        }
    }
}
