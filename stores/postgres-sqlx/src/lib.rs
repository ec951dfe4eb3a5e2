//! Postrider's outbox and inbox on PostgreSQL, in transactions of `sqlx`.
//!
//! The tables, the relay, and everything else are those of `postrider-postgres`; here are only the calls
//! that take `sqlx`'s own transaction. This crate has its own line of versions, so that a new `sqlx` is a new
//! version of this crate and of nothing else.
//!
//! ```
//! # async fn place(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::NewEvent;
//! use postrider_postgres_sqlx::Outbox;
//!
//! let outbox = Outbox::new();
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into orders (id, total) values (42, 1250)").execute(&mut *tx).await?;
//! let event = NewEvent::new("order", "42", "order.placed").json(&[1250])?;
//! outbox.enqueue(&mut tx, &event).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! The other side, a handler that acts once on what comes in, is [`Inbox::accept`].

mod inbox;

pub use inbox::Inbox;
use postrider_core::{Error, ErrorKind, EventId, NewEvent, Result};
pub use postrider_postgres::{Names, Outbox as Settings};
use postrider_postgres::{Staged, Value, of_state};
pub use sqlx;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Transaction};

/// Stages events. Cheap to clone; holds no connection.
///
/// Only a transaction is accepted, because an event beside a transaction is the mistake this exists to
/// prevent. A pool does not compile, and neither does a connection:
///
/// ```compile_fail
/// # async fn stage(pool: &mut sqlx::PgPool, event: &postrider_core::NewEvent) {
/// let _ = postrider_postgres_sqlx::Outbox::new().enqueue(pool, event).await;
/// # }
/// ```
///
/// ```compile_fail
/// # async fn stage(connection: &mut sqlx::PgConnection, event: &postrider_core::NewEvent) {
/// let _ = postrider_postgres_sqlx::Outbox::new().enqueue(connection, event).await;
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
    /// `Backpressure` over a watermark; `TooLarge` or `Invalid`, naming what is wrong with the event: nothing was written then, and the
    /// transaction goes on. Whatever else keeps the database from writing ends the transaction, as always
    /// in PostgreSQL.
    pub async fn enqueue(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        event: &NewEvent,
    ) -> Result<EventId> {
        self.ask_limits(&mut *tx).await?;
        let staged = self.settings.stage(event)?;
        self.check_backlog(&mut *tx).await?;
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
        tx: &mut Transaction<'_, Postgres>,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        self.ask_limits(&mut *tx).await?;
        let Some(mut staged) = self.settings.stage_many(events)? else { return Ok(Vec::new()) };
        self.check_backlog(&mut *tx).await?;
        let ids = std::mem::take(&mut staged.event_ids);
        send(tx, staged).await?;
        Ok(ids)
    }

    async fn ask_limits(&self, tx: &mut Transaction<'_, Postgres>) -> Result<()> {
        let Some(statement) = self.settings.unknown() else { return Ok(()) };
        let text = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&mut **tx).await;
        let text: String = text.map_err(|error| of_sqlx("enqueue", error))?;
        self.settings.learn(&text);
        Ok(())
    }

    async fn check_backlog(&self, tx: &mut Transaction<'_, Postgres>) -> Result<()> {
        let Some(statement) = self.settings.backlog() else { return Ok(()) };
        let row = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&mut **tx).await;
        self.settings.allow(row.map_err(|error| of_sqlx("enqueue", error))?)
    }
}

async fn send(tx: &mut Transaction<'_, Postgres>, staged: Staged<'_>) -> Result<()> {
    let sent = bound(staged).execute(&mut **tx).await;
    sent.map(drop).map_err(|error| of_sqlx("enqueue", error))
}

/// The statement with its values in their places.
fn bound(staged: Staged<'_>) -> Query<'_, Postgres, PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(staged.statement));
    for value in staged.values {
        query = match value {
            Value::Text(value) => query.bind(value),
            Value::Integer(value) => query.bind(value),
            Value::BigInt(value) => query.bind(value),
            Value::Bytes(value) => query.bind(value),
            Value::Texts(values) => query.bind(values),
            Value::Integers(values) => query.bind(values),
            Value::BigInts(values) => query.bind(values),
            Value::ByteStrings(values) => query.bind(values),
        };
    }
    query
}

/// The driver's errors, by the server's own states.
fn of_sqlx(operation: &'static str, error: sqlx::Error) -> Error {
    let said = error
        .as_database_error()
        .and_then(|told| Some(of_state(operation, &told.code()?, told.message())));
    let ours = said.unwrap_or_else(|| {
        Error::new(ErrorKind::Unavailable, operation)
            .message("the connection to the database failed")
    });
    ours.source(error)
}
