//! The statement for one event, prepared once for a connection: for applications that keep their connections.
//!
//! Without it the server parses and plans the statement at every call, which takes more of its time than
//! the row does.

use bytes::BytesMut;
use postrider_core::{EventId, NewEvent, Result};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Statement, Transaction};
use uuid::Uuid;

use crate::enqueue::param;
use crate::error::of_postgres;
use crate::outbox::Outbox;
use crate::staged::Value;
use crate::typed::Moment;

/// The types of the columns, in the order of the statement's parameters.
const TYPES: [Type; 14] = [
    Type::UUID,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::TEXT,
    Type::BYTEA,
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::TEXT,
    Type::TIMESTAMPTZ,
];

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
        let one = client.prepare_typed(self.prepared(), &TYPES).await;
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
        let done = tx.execute_raw(&self.one, staged.values.iter().map(OfColumn)).await;
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

/// A value as its column's own type has it on the wire.
#[derive(Debug)]
struct OfColumn<'v>(&'v Value<'v>);

impl ToSql for OfColumn<'_> {
    fn to_sql(
        &self,
        column: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match (self.0, column) {
            (Value::Text(Some(text)), &Type::UUID) => Uuid::parse_str(text)?.to_sql(column, out),
            (Value::Text(Some(text)), &Type::JSONB) => {
                // The version of the binary form, which is text behind it.
                out.extend_from_slice(&[1]);
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            (Value::BigInt(micros), &Type::TIMESTAMPTZ) => Moment(*micros).to_sql(column, out),
            (value, _) => param(value).0.to_sql_checked(column, out),
        }
    }

    // What does not fit is refused above, by the value itself.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
