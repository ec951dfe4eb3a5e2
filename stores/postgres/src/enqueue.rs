//! Enqueue in a transaction of `tokio-postgres`.

use postrider_core::{EventId, NewEvent, Result};
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use crate::error::of_postgres;
use crate::outbox::Outbox;
use crate::typed::{Param, params};

impl Outbox {
    /// Stages an event in the transaction, in one round trip, and returns its id. Scheduled events
    /// ([`NewEvent::deliver_after`]) wait in `outbox_scheduled` until they are due.
    ///
    /// The relay finds the event after the commit by itself; a relay in the same process may be told of it
    /// with its handle's `nudge`.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid`, naming what is wrong with the event: nothing was sent then, and the
    /// transaction goes on. `SchemaMissing`, `Unauthorized`, `ReadOnly`, `DiskFull`, and whatever else keeps
    /// the database from writing: after those PostgreSQL takes nothing but a rollback, of the transaction or
    /// to a savepoint.
    pub async fn enqueue(&self, tx: &Transaction<'_>, event: &NewEvent) -> Result<EventId> {
        let row = self.stage(event)?;
        let (headers, due_at) = (&*row.headers, row.due_at);
        let values = params![
            row.id,
            row.source,
            row.aggregate_type,
            row.aggregate_id,
            row.key,
            row.event_type,
            row.event_version,
            row.payload,
            row.payload_bytes,
            row.content_type,
            row.encoding,
            headers,
            row.tenant,
            row.occurred_at,
            due_at,
        ];
        let values = if due_at.is_some() { values } else { &values[..14] };
        send(tx, &row.statement, values).await.map_err(|error| error.context("event", &row.id))?;
        Ok(row.event_id)
    }

    /// Stages events in their order, all or none, in one round trip however many they are, and returns
    /// their ids. A thousand at a time are plenty: more need memory and gain nothing.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`], for the first event that is refused; none of them was written then.
    pub async fn enqueue_many<'e>(
        &self,
        tx: &Transaction<'_>,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        let rows = self.stage_many(events)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let headers: Vec<&str> = rows.headers.iter().map(|headers| &**headers).collect();
        let values = params![
            rows.id,
            rows.source,
            rows.aggregate_type,
            rows.aggregate_id,
            rows.key,
            rows.event_type,
            rows.event_version,
            rows.payload,
            rows.payload_bytes,
            rows.content_type,
            rows.encoding,
            headers,
            rows.tenant,
            rows.occurred_at,
            rows.due_at,
        ];
        let values = if rows.due_at.is_empty() { &values[..14] } else { values };
        send(tx, &rows.statement, values).await?;
        Ok(rows.event_ids)
    }
}

/// Unnamed and with the types beside the values: one round trip, and a pooler has nothing to lose.
async fn send(tx: &Transaction<'_>, statement: &str, values: &[Param<'_>]) -> Result<()> {
    let values: Vec<(&(dyn ToSql + Sync), Type)> = values.to_vec();
    tx.execute_typed(statement, &values)
        .await
        .map(drop)
        .map_err(|error| of_postgres("enqueue", error))
}
