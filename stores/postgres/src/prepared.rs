//! The same statements, prepared once for a connection: for applications that keep their connections.
//!
//! Without it the server parses and plans the statement at every call, which takes more of its time than
//! the row does.

use postrider_core::{EventId, NewEvent, Result};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement, Transaction};

use crate::enqueue::param;
use crate::error::of_postgres;
use crate::outbox::Outbox;

/// An [`Outbox`] whose statement for one event is prepared on one connection. Cheap to clone; not for use
/// behind a pooler that hands every transaction to another session.
#[derive(Clone)]
pub struct PreparedOutbox {
    outbox: Outbox,
    one: Statement,
}

impl std::fmt::Debug for PreparedOutbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedOutbox").field("outbox", &self.outbox).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Prepares the statement of [`enqueue`](Outbox::enqueue) on a connection, to be used in any of its
    /// transactions from now on.
    ///
    /// # Errors
    /// `SchemaMissing` if the tables are not there; what the database says.
    pub async fn prepare(&self, client: &Client) -> Result<PreparedOutbox> {
        let placeholder = NewEvent::new("a", "a", "a");
        let staged = self.without_preflight().stage(&placeholder)?;
        let types: Vec<Type> = staged.values.iter().map(|value| param(value).1).collect();
        let one = client.prepare_typed(&staged.statement, &types).await;
        let one = one.map_err(|error| of_postgres("prepare", error))?;
        Ok(PreparedOutbox { outbox: self.clone(), one })
    }
}

impl PreparedOutbox {
    /// [`Outbox::enqueue`], with less work for the server. An event for later is staged as there.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`]; `Internal` if the transaction is of another connection.
    pub async fn enqueue(&self, tx: &Transaction<'_>, event: &NewEvent) -> Result<EventId> {
        if event.due().is_some() {
            return self.outbox.enqueue(tx, event).await;
        }
        self.outbox.ask_limits(tx).await?;
        let staged = self.outbox.stage(event)?;
        self.outbox.check_backlog(tx).await?;
        let values: Vec<&(dyn ToSql + Sync)> =
            staged.values.iter().map(|value| param(value).0).collect();
        let done = tx.execute(&self.one, &values).await;
        done.map_err(|error| of_postgres("enqueue", error).context("event", event.event().id))?;
        Ok(event.event().id)
    }

    /// [`Outbox::enqueue_many`], as it is: its one statement is worth its planning.
    ///
    /// # Errors
    /// As there.
    pub async fn enqueue_many<'e>(
        &self,
        tx: &Transaction<'_>,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        self.outbox.enqueue_many(tx, events).await
    }
}
