//! The marker in a transaction of `diesel`.
//!
//! Invariant: nothing here begins or commits a transaction, and without one nothing is written, so a marker is
//! never written alone.

use diesel::QueryableByName;
use diesel::connection::{LoadConnection, TransactionManager};
use diesel::pg::Pg;
use diesel::query_dsl::RunQueryDsl;
use diesel::row::NamedRow;
use diesel::sql_types::{Nullable, Text};
use postrider_core::inbox::Accepted;
use postrider_core::{Event, HandlerName, Result};
use postrider_postgres::Names;

use crate::statement::Statement;
use crate::{check_open, of_diesel};

/// The inbox of a database, for handlers that act in a transaction of `diesel` or `diesel-async`. Cheap to clone;
/// holds no connection.
///
/// ```
/// # fn receive(
/// #     connection: &mut impl diesel::connection::LoadConnection<Backend = diesel::pg::Pg>,
/// #     event: postrider_core::Event,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::RunQueryDsl;
/// use diesel::sql_types::Text;
/// use postrider_core::HandlerName;
/// use postrider_core::inbox::Accepted;
/// use postrider_postgres_diesel::Inbox;
///
/// let (inbox, billing) = (Inbox::new(), HandlerName::new("billing")?);
/// connection.transaction(|connection| {
///     if inbox.accept(connection, &event, &billing)? == Accepted::FirstTime {
///         diesel::sql_query("insert into invoices (order_id) values ($1)")
///             .bind::<Text, _>(&*event.aggregate_id)
///             .execute(connection)?;
///     }
///     Ok(())
/// })
/// // Now the event may be acknowledged.
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    pub(crate) inbox: postrider_postgres::Inbox,
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

    /// Records, in the transaction that is open on the connection, that the handler acts on the event, or
    /// says that it did before. The marker commits with the handler's change or not at all. One round trip, once the statement
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
    /// `Invalid` if no transaction is open, or the event has no source; `Conflict` with
    /// [`Code::PayloadMismatch`] if the id was done with another payload; `Busy` if a worker holds a lease on
    /// it, if the wait was too long, and at `REPEATABLE READ` and `SERIALIZABLE` if another transaction accepted
    /// it since this one began; what the database says.
    ///
    /// [`Code::PayloadMismatch`]: postrider_core::Code::PayloadMismatch
    pub fn accept<C: LoadConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let status = C::TransactionManager::transaction_manager_status_mut(connection);
        check_open("accept", status)?;
        let statement = Statement::from(self.inbox.stage(event, handler)?);
        let answered = statement.get_result::<Answer>(connection);
        Answer::meaning(answered, event, handler)
    }
}

/// The one text of the statement.
pub(crate) struct Answer(Option<String>);

impl QueryableByName<Pg> for Answer {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> diesel::deserialize::Result<Answer> {
        NamedRow::get::<Nullable<Text>, Option<String>>(row, "answer").map(Answer)
    }
}

impl Answer {
    pub(crate) fn meaning(
        answered: diesel::QueryResult<Answer>,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let answer = answered.map_err(|error| of_diesel("accept", error))?;
        postrider_postgres::Inbox::accepted(answer.0.as_deref(), event, handler)
    }
}
