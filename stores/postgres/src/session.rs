//! One session with the database: named statements, prepared once, each with a deadline.
//!
//! What is shared by tasks is pipelined: a statement is on its way before the one before it is answered.
//! So a shared session runs single statements only, each a transaction of its own; whoever needs a
//! transaction over several has a session to himself ([`Tx`](crate::sessions::Tx)).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use postrider_core::{Code, Error, ErrorKind, Result};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, RowStream, Statement};

use crate::error::of_postgres;
use crate::pooler::{Ownership, Way};
use crate::silence::{Ear, Silence};
use crate::sql::{Sql, Texts};
use crate::state::{STOOD_STILL, of_state};
use crate::typed::Param;

/// A session.
pub(crate) struct Session {
    client: Client,
    texts: Arc<Texts>,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// Whether statements may be prepared: not behind a pooler that hands every transaction to
    /// another session.
    prepares: bool,
    /// What is known of the way to the server.
    way: Arc<Way>,
    /// How long a statement may take.
    deadline: Duration,
    /// Nothing more is to be sent: an answer was given up, or a transaction was.
    broken: AtomicBool,
    /// Whether the server ended it because a transaction stood still.
    stood_still: Arc<AtomicBool>,
    /// When the server was heard last.
    ear: Ear,
}

impl Session {
    pub(crate) fn new(
        client: Client,
        texts: Arc<Texts>,
        way: Arc<Way>,
        deadline: Duration,
        silence: &Arc<Silence>,
    ) -> Session {
        let (prepared, broken) = (Mutex::default(), AtomicBool::new(false));
        let prepares = way.ownership() == Ownership::Own;
        let (stood_still, ear) = (Arc::default(), Ear::new(silence));
        Session { client, texts, prepared, prepares, way, deadline, broken, stood_still, ear }
    }

    /// The same session, whose wire says there why the server ended it.
    pub(crate) fn told(self, stood_still: Arc<AtomicBool>) -> Session {
        Session { stood_still, ..self }
    }

    /// The same session for statements that may take longer.
    pub(crate) fn patient(self, deadline: Duration) -> Session {
        Session { deadline, ..self }
    }

    /// Whether it keeps what is prepared and set in it.
    pub(crate) fn prepares(&self) -> bool {
        self.prepares
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || self.client.is_closed() || self.ear.is_deaf()
    }

    /// Ends its use: the server rolls back what is open when the connection goes.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn texts(&self) -> &Arc<Texts> {
        &self.texts
    }

    /// All rows of a statement.
    pub(crate) async fn rows(
        &self,
        operation: &'static str,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        let all = async { self.stream(statement, params).await?.try_collect().await };
        self.within(operation, all).await
    }

    /// Hands over each row of a statement as it comes, while the server is still at the others.
    pub(crate) async fn each(
        &self,
        operation: &'static str,
        statement: &Sql,
        params: &[Param<'_>],
        mut take: impl FnMut(Row),
    ) -> Result<()> {
        let all = async {
            let stream = self.stream(statement, params).await?;
            futures_util::pin_mut!(stream);
            while let Some(row) = stream.try_next().await? {
                take(row);
            }
            Ok(())
        };
        self.within(operation, all).await
    }

    /// The one row of a statement that has one.
    pub(crate) async fn row(
        &self,
        operation: &'static str,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<Row> {
        self.optional(operation, statement, params).await?.ok_or_else(|| {
            Error::new(ErrorKind::Internal, operation)
                .message("a statement that has a row had none")
                .context("statement", statement.name)
        })
    }

    /// The row of a statement that has at most one.
    pub(crate) async fn optional(
        &self,
        operation: &'static str,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<Option<Row>> {
        let mut rows = self.rows(operation, statement, params).await?;
        Ok(rows.pop())
    }

    /// Runs a statement and says how many rows it changed.
    pub(crate) async fn execute(
        &self,
        operation: &'static str,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<u64> {
        let changed = async {
            let stream = self.stream(statement, params).await?;
            futures_util::pin_mut!(stream);
            while stream.try_next().await?.is_some() {}
            Ok(stream.rows_affected().unwrap_or_default())
        };
        self.within(operation, changed).await
    }

    /// Runs a text of several statements, without values.
    pub(crate) async fn batch(&self, operation: &'static str, text: &str) -> Result<()> {
        self.within(operation, self.client.batch_execute(text)).await
    }

    async fn stream(
        &self,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<RowStream, tokio_postgres::Error> {
        if !self.prepares || self.way.ownership() == Ownership::Shared {
            return self.unprepared(statement, params).await;
        }
        match self.by_name(statement, params).await {
            // Nothing was done, so it is asked once more, as it should have been. Within a transaction, which has ended by
            // that, the first error says more.
            Err(error) if is_of_another_session(&error) => {
                self.give_up();
                self.way.lost();
                match self.way.ownership() {
                    Ownership::Shared => self.unprepared(statement, params).await.or(Err(error)),
                    _ => Err(error),
                }
            }
            answer => answer,
        }
    }

    async fn unprepared(
        &self,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<RowStream, tokio_postgres::Error> {
        let text = self.texts.text(statement);
        let typed = params.iter().map(|(value, of)| (*value, of.clone()));
        self.client.query_typed_raw(&text, typed).await
    }

    async fn by_name(
        &self,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<RowStream, tokio_postgres::Error> {
        let prepared = self.prepare(statement, params).await?;
        let values = params.iter().map(|(value, _)| *value as &(dyn ToSql + Sync));
        self.client.query_raw(&prepared, values).await
    }

    async fn prepare(
        &self,
        statement: &Sql,
        params: &[Param<'_>],
    ) -> Result<Statement, tokio_postgres::Error> {
        let known = self.lock().get(statement.name).cloned();
        if let Some(prepared) = known {
            return Ok(prepared);
        }
        let types: Vec<_> = params.iter().map(|(_, of)| of.clone()).collect();
        let text = self.texts.text(statement);
        let prepared = self.client.prepare_typed(&text, &types).await?;
        self.lock().insert(statement.name, prepared.clone());
        Ok(prepared)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Statement>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn within<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let question = self.ear.ask();
        let answer = tokio::time::timeout(self.deadline, call).await;
        if answer.is_ok() {
            question.answered();
        }
        match answer {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) if self.prepares && is_of_another_session(&error) => {
                self.give_up();
                Err(handed_over(&self.way, operation, error))
            }
            Ok(Err(error)) if error.is_closed() && self.stood_still.load(Ordering::Relaxed) => {
                Err(of_state(operation, STOOD_STILL, "").source(error))
            }
            Ok(Err(error)) => {
                // A plan of before a migration: the next use prepares it anew.
                if error.code().is_some_and(|state| state.code() == "0A000") {
                    self.lock().clear();
                }
                let error = of_postgres(operation, error);
                if error.kind() == ErrorKind::ReadOnly {
                    // It may be so by a default of its role or database, which a session keeps to its end.
                    self.give_up();
                }
                Err(error)
            }
            Err(_) => {
                self.give_up();
                Err(Error::new(ErrorKind::Timeout, operation).message(format!(
                    "the database did not answer within {:?}; what was asked may have happened",
                    self.deadline
                )))
            }
        }
    }
}

/// A statement that was prepared is gone, or is there though it was not: another session answers.
pub(crate) fn is_of_another_session(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| matches!(state.code(), "26000" | "42P05"))
}

/// Notes that sessions are handed over, and says so.
pub(crate) fn handed_over(
    way: &Way,
    operation: &'static str,
    error: tokio_postgres::Error,
) -> Error {
    way.lost();
    Error::new(ErrorKind::Unavailable, operation)
        .message(
            "a pooler handed the session to somebody else; nothing was done, and statements go \
             unprepared from now on, unless `pooler = \"none\"` forbids it",
        )
        .code(Code::SessionsShared)
        .source(error)
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
