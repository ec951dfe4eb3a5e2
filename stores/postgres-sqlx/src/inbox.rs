//! The marker in a transaction of `sqlx`.
//!
//! Invariant: nothing here begins or commits a transaction, so a marker is never written alone.

use postrider_core::inbox::Accepted;
use postrider_core::{Event, HandlerName, Result};
use postrider_postgres::Names;
use sqlx::{Postgres, Transaction};

use crate::{bound, of_sqlx};

/// The inbox of a database, for handlers that act in a transaction of `sqlx`. Cheap to clone; holds no
/// connection.
///
/// ```
/// # async fn receive(pool: sqlx::PgPool, event: postrider_core::Event)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_core::HandlerName;
/// use postrider_core::inbox::Accepted;
/// use postrider_postgres_sqlx::Inbox;
///
/// let (inbox, billing) = (Inbox::new(), HandlerName::new("billing")?);
/// let mut tx = pool.begin().await?;
/// if inbox.accept(&mut tx, &event, &billing).await? == Accepted::FirstTime {
///     let invoice = sqlx::query("insert into invoices (order_id) values ($1)");
///     invoice.bind(&*event.aggregate_id).execute(&mut *tx).await?;
/// }
/// tx.commit().await?;
/// // Now the event may be acknowledged.
/// # Ok(()) }
/// ```
///
/// Only a transaction is accepted:
///
/// ```compile_fail
/// # async fn receive(
/// #     connection: &mut sqlx::PgConnection,
/// #     event: &postrider_core::Event,
/// #     handler: &postrider_core::HandlerName,
/// # ) {
/// let _ = postrider_postgres_sqlx::Inbox::new().accept(connection, event, handler).await;
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    inbox: postrider_postgres::Inbox,
}

impl Inbox {
    /// An inbox with the default names.
    pub fn new() -> Inbox {
        Inbox::default()
    }

    /// An inbox whose tables have names of their own.
    pub fn named(names: &Names) -> Inbox {
        Inbox { inbox: postrider_postgres::Inbox::named(names) }
    }

    /// Records, in the caller's transaction, that the handler acts on the event, or says that it did
    /// before. The marker commits with the handler's change or not at all. One round trip, once the statement
    /// stands in the connection's own cache.
    ///
    /// While another transaction is at the same event, this one waits until that ends: a commit makes it
    /// a duplicate, a rollback the first time. It waits as long as the session's `lock_timeout` says, and
    /// 10 s where that is unlimited.
    ///
    /// An error of the database ends the transaction, as always in PostgreSQL: roll it back, and have the
    /// event delivered again. Do not commit after an error of any statement: the server answers that
    /// `COMMIT` without an error and rolls back, and an acknowledged event would be lost.
    ///
    /// # Errors
    /// `Invalid` if the event has no source; `Conflict` with [`Code::PayloadMismatch`] if the id was
    /// done with another payload; `Busy` if a worker holds a lease on it, if the wait was too long, and at
    /// `REPEATABLE READ` and `SERIALIZABLE` if another transaction accepted it since this one began;
    /// what the database says.
    ///
    /// [`Code::PayloadMismatch`]: postrider_core::Code::PayloadMismatch
    pub async fn accept(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let query = bound(self.inbox.stage(event, handler)?);
        let row = query.fetch_one(&mut **tx).await;
        let answer: Option<String> = row
            .and_then(|row| sqlx::Row::try_get(&row, 0))
            .map_err(|error| of_sqlx("accept", error))?;
        postrider_postgres::Inbox::accepted(answer.as_deref(), event, handler)
    }
}
