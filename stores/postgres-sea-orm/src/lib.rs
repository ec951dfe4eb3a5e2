//! Postrider's outbox and inbox on PostgreSQL, in transactions of `sea-orm`.
//!
//! The tables, the relay, and everything else are those of `postrider-postgres`; here are only the calls
//! that take `sea-orm`'s own transaction. This crate has its own line of versions, so that a new `sea-orm` is
//! a new version of this crate and of nothing else.
//!
//! ```
//! # async fn place(db: sea_orm::DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::NewEvent;
//! use postrider_postgres_sea_orm::Outbox;
//! use sea_orm::TransactionTrait;
//!
//! let outbox = Outbox::new();
//! let tx = db.begin().await?;
//! let event = NewEvent::new("order", "42", "order.placed").json(&[1250])?;
//! outbox.enqueue(&tx, &event).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! The other side, a handler that acts once on what comes in, is [`Inbox::accept`].

mod inbox;

use std::borrow::Cow;
use std::fmt::Write as _;

pub use inbox::Inbox;
use postrider_core::{Error, ErrorKind, EventId, NewEvent, Result};
pub use postrider_postgres::{Names, Outbox as Settings};
use postrider_postgres::{Staged, Value as Ours, of_state};
pub use sea_orm;
use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, RuntimeErr, Statement, Value,
};

/// Stages events. Cheap to clone; holds no connection.
///
/// Only a transaction is accepted, because an event beside a transaction is the mistake this exists to
/// prevent. A connection does not compile:
///
/// ```compile_fail
/// # async fn stage(db: &sea_orm::DatabaseConnection, event: &postrider_core::NewEvent) {
/// let _ = postrider_postgres_sea_orm::Outbox::new().enqueue(db, event).await;
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    settings: Settings,
}

impl From<Settings> for Outbox {
    /// An outbox with names, limits, or locks of one's own.
    fn from(settings: Settings) -> Outbox {
        Outbox { settings }
    }
}

impl Outbox {
    /// An outbox with the default names and limits. For others: `Outbox::from(Settings::new().limits(…))`.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Stages an event in the transaction, and returns its id. One round trip, once the statement stands in
    /// the connection's own cache. Scheduled events ([`NewEvent::deliver_after`]) wait in
    /// `outbox_scheduled` until they are due.
    ///
    /// # Errors
    /// `Invalid` if the database is no PostgreSQL; `TooLarge` or `Invalid`, naming what is wrong with the
    /// event: nothing was written then, and the transaction goes on. Whatever else keeps the database from
    /// writing ends the transaction, as always in PostgreSQL.
    pub async fn enqueue(&self, tx: &DatabaseTransaction, event: &NewEvent) -> Result<EventId> {
        self.ask_limits(tx).await?;
        let staged = self.settings.stage(event)?;
        self.check_backlog(tx).await?;
        send(tx, staged).await.map_err(|error| error.context("event", event.event().id))?;
        Ok(event.event().id)
    }

    /// Stages events in their order, all or none, in one round trip however many they are, and returns
    /// their ids. A thousand at a time are plenty: more need memory and gain nothing.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`], for the first event that is refused; none of them was written then.
    pub async fn enqueue_many<'e>(
        &self,
        tx: &DatabaseTransaction,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        self.ask_limits(tx).await?;
        let Some(mut staged) = self.settings.stage_many(events)? else { return Ok(Vec::new()) };
        self.check_backlog(tx).await?;
        let ids = std::mem::take(&mut staged.event_ids);
        send(tx, staged).await?;
        Ok(ids)
    }

    async fn ask_limits(&self, tx: &DatabaseTransaction) -> Result<()> {
        let Some(statement) = self.settings.unknown() else { return Ok(()) };
        let statement = Statement::from_string(DbBackend::Postgres, &*statement);
        let row = tx.query_one_raw(statement).await;
        let row = row.map_err(|error| of_sea_orm("enqueue", error))?;
        let text = row.map_or(Ok(String::new()), |row| row.try_get_by_index(0));
        self.settings.learn(&text.map_err(|error| of_sea_orm("enqueue", error))?);
        Ok(())
    }

    async fn check_backlog(&self, tx: &DatabaseTransaction) -> Result<()> {
        let Some(statement) = self.settings.backlog() else { return Ok(()) };
        let statement = Statement::from_string(DbBackend::Postgres, &*statement);
        let row = tx.query_one_raw(statement).await;
        let row = row.map_err(|error| of_sea_orm("enqueue", error))?;
        let backlog = row.map_or(Ok(0), |row| row.try_get_by_index(0));
        self.settings.allow(backlog.map_err(|error| of_sea_orm("enqueue", error))?)
    }
}

async fn send(tx: &DatabaseTransaction, staged: Staged<'_>) -> Result<()> {
    let statement = bound("enqueue", tx, staged)?;
    tx.execute_raw(statement).await.map(drop).map_err(|error| of_sea_orm("enqueue", error))
}

/// The statement with its values, for a transaction of PostgreSQL.
fn bound(
    operation: &'static str,
    tx: &DatabaseTransaction,
    staged: Staged<'_>,
) -> Result<Statement> {
    if tx.get_database_backend() != DbBackend::Postgres {
        return Err(Error::new(ErrorKind::Invalid, operation).message(
            "the transaction is of another database than PostgreSQL; nothing was written",
        ));
    }
    let values = staged.values.into_iter().map(value);
    Ok(Statement::from_sql_and_values(DbBackend::Postgres, &*staged.statement, values))
}

fn value(value: Ours<'_>) -> Value {
    match value {
        Ours::Text(value) => Value::String(value.map(Cow::into_owned)),
        Ours::Integer(value) => Value::Int(Some(value)),
        Ours::BigInt(value) => Value::BigInt(Some(value)),
        Ours::Bytes(value) => Value::Bytes(value.map(<[u8]>::to_vec)),
        Ours::Texts(values) => array(values, |text, value| quote(text, &value)),
        Ours::Integers(values) => {
            array(values.into_iter().map(Some), |text, value| text.push_str(&value.to_string()))
        }
        Ours::BigInts(values) => array(values, |text, value| text.push_str(&value.to_string())),
        Ours::ByteStrings(values) => array(values, |text, value| {
            text.push_str("\"\\\\x");
            for byte in value {
                // Writing to a string does not fail.
                _ = write!(text, "{byte:02x}");
            }
            text.push('"');
        }),
    }
}

/// An array as the text of its literal, which the statement casts: the driver's own arrays take no null.
fn array<T>(values: impl IntoIterator<Item = Option<T>>, put: impl Fn(&mut String, T)) -> Value {
    let mut text = String::from("{");
    for value in values {
        if text.len() > 1 {
            text.push(',');
        }
        match value {
            Some(value) => put(&mut text, value),
            None => text.push_str("NULL"),
        }
    }
    text.push('}');
    Value::String(Some(text))
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
}

/// The driver's errors, by the server's own states.
fn of_sea_orm(operation: &'static str, error: DbErr) -> Error {
    let said = match &error {
        DbErr::Exec(RuntimeErr::SqlxError(inner)) | DbErr::Query(RuntimeErr::SqlxError(inner)) => {
            inner
                .as_database_error()
                .and_then(|told| Some(of_state(operation, &told.code()?, told.message())))
        }
        _ => None,
    };
    let ours = said.unwrap_or_else(|| {
        Error::new(ErrorKind::Unavailable, operation)
            .message("the connection to the database failed")
    });
    ours.source(error)
}
