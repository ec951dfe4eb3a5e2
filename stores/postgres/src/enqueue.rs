//! Enqueue in a transaction of `tokio-postgres`.

use postrider_core::{EventId, NewEvent, Result};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use crate::error::of_postgres;
use crate::outbox::Outbox;
use crate::staged::{Staged, Value};
use crate::typed::Param;

impl Outbox {
    /// Stages an event in the transaction, in one round trip, and returns its id. Scheduled events
    /// ([`NewEvent::deliver_after`]) wait in `outbox_scheduled` until they are due.
    ///
    /// The relay finds the event after the commit by itself; a relay in the same process may be told of it
    /// with its handle's `nudge`.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid`, naming what is wrong with the event, and `Backpressure` over a
    /// [watermark](Outbox::watermark): nothing was written then, and the transaction goes on. `SchemaMissing`, `Unauthorized`, `ReadOnly`, `DiskFull`, and whatever else keeps
    /// the database from writing: after those PostgreSQL takes nothing but a rollback, of the transaction or
    /// to a savepoint.
    pub async fn enqueue(&self, tx: &Transaction<'_>, event: &NewEvent) -> Result<EventId> {
        self.ask_limits(tx).await?;
        let staged = self.stage(event)?;
        self.check_backlog(tx).await?;
        send(tx, &staged).await.map_err(|error| error.context("event", event.event().id))?;
        Ok(event.event().id)
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
        self.ask_limits(tx).await?;
        let Some(staged) = self.stage_many(events)? else { return Ok(Vec::new()) };
        self.check_backlog(tx).await?;
        send(tx, &staged).await?;
        Ok(staged.event_ids)
    }

    pub(crate) async fn ask_limits(&self, tx: &Transaction<'_>) -> Result<()> {
        let Some(statement) = self.unknown() else { return Ok(()) };
        let row = tx.query_typed_one(&statement, &[]).await;
        self.learn(row.map_err(|error| of_postgres("enqueue", error))?.get(0));
        Ok(())
    }

    pub(crate) async fn check_backlog(&self, tx: &Transaction<'_>) -> Result<()> {
        let Some(statement) = self.backlog() else { return Ok(()) };
        let row = tx.query_typed_one(&statement, &[]).await;
        self.allow(row.map_err(|error| of_postgres("enqueue", error))?.get(0))
    }
}

/// Unnamed and with the types beside the values: one round trip, and a pooler has nothing to lose.
async fn send(tx: &Transaction<'_>, staged: &Staged<'_>) -> Result<()> {
    let values: Vec<Param<'_>> = staged.values.iter().map(param).collect();
    tx.execute_typed(&staged.statement, &values)
        .await
        .map(drop)
        .map_err(|error| of_postgres("enqueue", error))
}

pub(crate) fn param<'v>(value: &'v Value<'_>) -> Param<'v> {
    match value {
        Value::Text(value) => (value, Type::TEXT),
        Value::Integer(value) => (value, Type::INT4),
        Value::BigInt(value) => (value, Type::INT8),
        Value::Bytes(value) => (value, Type::BYTEA),
        Value::Texts(values) => (values, Type::TEXT_ARRAY),
        Value::Integers(values) => (values, Type::INT4_ARRAY),
        Value::BigInts(values) => (values, Type::INT8_ARRAY),
        Value::ByteStrings(values) => (values, Type::BYTEA_ARRAY),
    }
}
