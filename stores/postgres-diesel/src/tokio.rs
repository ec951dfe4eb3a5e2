//! The same for `diesel-async`.

use diesel::pg::Pg;
use diesel_async::{AsyncConnection, RunQueryDsl, TransactionManager};
use postrider_core::inbox::Accepted;
use postrider_core::{Event, EventId, HandlerName, NewEvent, Result};

use crate::inbox::{Answer, Inbox};
use crate::statement::Statement;
use crate::{Backlog, Definitions, Outbox, check_open, of_diesel};

impl Outbox {
    /// [`Outbox::enqueue`] in the transaction that is open on a connection of `diesel-async`.
    ///
    /// # Errors
    /// As there.
    pub async fn enqueue_async<C: AsyncConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
        event: &NewEvent,
    ) -> Result<EventId> {
        let id = event.event().id;
        check_open("enqueue", C::TransactionManager::transaction_manager_status_mut(connection))?;
        self.ask_limits_async(connection).await?;
        self.check_backlog_async(connection).await?;
        RunQueryDsl::execute(Statement::from(self.settings.stage(event)?), connection)
            .await
            .map_err(|error| of_diesel("enqueue", error).context("event", id))?;
        Ok(id)
    }

    /// [`Outbox::enqueue_many`] in the transaction that is open on a connection of `diesel-async`.
    ///
    /// # Errors
    /// As there.
    pub async fn enqueue_many_async<'e, C: AsyncConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        check_open("enqueue", C::TransactionManager::transaction_manager_status_mut(connection))?;
        self.ask_limits_async(connection).await?;
        self.check_backlog_async(connection).await?;
        let Some(mut staged) = self.settings.stage_many(events)? else { return Ok(Vec::new()) };
        let ids = std::mem::take(&mut staged.event_ids);
        RunQueryDsl::execute(Statement::from(staged), connection)
            .await
            .map_err(|error| of_diesel("enqueue", error))?;
        Ok(ids)
    }

    async fn ask_limits_async<C: AsyncConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
    ) -> Result<()> {
        let Some(statement) = self.settings.unknown() else { return Ok(()) };
        let query = diesel::sql_query(&*statement);
        let read = RunQueryDsl::get_result::<Definitions>(query, connection).await;
        self.settings.learn(&read.map_err(|error| of_diesel("enqueue", error))?.0);
        Ok(())
    }

    async fn check_backlog_async<C: AsyncConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
    ) -> Result<()> {
        let Some(statement) = self.settings.backlog() else { return Ok(()) };
        let query = diesel::sql_query(&*statement);
        let read = RunQueryDsl::get_result::<Backlog>(query, connection).await;
        self.settings.allow(read.map_err(|error| of_diesel("enqueue", error))?.0)
    }
}

impl Inbox {
    /// [`Inbox::accept`] in the transaction that is open on a connection of `diesel-async`.
    ///
    /// ```
    /// # async fn receive(connection: &mut diesel_async::AsyncPgConnection, event: postrider_core::Event)
    /// # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// use diesel::sql_types::Text;
    /// use diesel_async::{AsyncConnection, RunQueryDsl};
    /// use postrider_core::HandlerName;
    /// use postrider_core::inbox::Accepted;
    /// use postrider_postgres_diesel::Inbox;
    ///
    /// let (inbox, billing) = (Inbox::new(), HandlerName::new("billing")?);
    /// connection
    ///     .transaction(async |tx| {
    ///         if inbox.accept_async(tx, &event, &billing).await? == Accepted::FirstTime {
    ///             diesel::sql_query("insert into invoices (order_id) values ($1)")
    ///                 .bind::<Text, _>(&*event.aggregate_id)
    ///                 .execute(tx)
    ///                 .await?;
    ///         }
    ///         Ok(())
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn accept_async<C: AsyncConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let status = C::TransactionManager::transaction_manager_status_mut(connection);
        check_open("accept", status)?;
        let statement = Statement::from(self.inbox.stage(event, handler)?);
        let answered = RunQueryDsl::get_result::<Answer>(statement, connection).await;
        Answer::meaning(answered, event, handler)
    }
}
