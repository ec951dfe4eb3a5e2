//! Removal: the tables go with all that is in them, for those that were made for a trial.

use postrider_core::{ErrorKind, Result};

use crate::connection::{Connection, call};

/// Deletes the three tables. **Every event, waiting or done, goes with them.** What is absent is no failure. A table
/// of the application's stays, with the events in it.
///
/// # Errors
/// Whatever the service says; then some of the tables may be left.
pub async fn remove(connection: &Connection) -> Result<()> {
    let names = connection.names();
    let client = connection.tables().await;
    let outbox = (!names.shared).then_some(&names.outbox);
    for table in outbox.into_iter().chain([&names.store, &names.inbox]) {
        let delete = client.delete_table().table_name(table);
        match call("remove tables", table, delete.send()).await {
            Err(error) if error.kind() == ErrorKind::SchemaMissing => {}
            other => drop(other?),
        }
    }
    Ok(())
}
