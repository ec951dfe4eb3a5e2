//! The marker in a transaction of the application's.
//!
//! Invariant: nothing here begins or commits a transaction, so a marker is never written alone.

use std::sync::{Arc, OnceLock};

use postrider_core::inbox::Accepted;
use postrider_core::{Code, Error, ErrorKind, Event, HandlerName, InboxKey, Result};
use tokio_postgres::Transaction;

use crate::Names;
use crate::error::During;
use crate::sql::{Sql, sql};
use crate::typed::{params, uuid};

const ACCEPT: Sql = sql!("inbox/accept");

/// The inbox of a database, for handlers that act in a transaction of `tokio-postgres`.
///
/// Cheap to clone. [`accept`] is the same with the default names.
#[derive(Clone, Debug)]
pub struct Inbox {
    accept: Arc<str>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::named(&Names::default())
    }
}

impl Inbox {
    /// An inbox with the default names.
    pub fn new() -> Inbox {
        Inbox::default()
    }

    /// An inbox whose tables have names of their own.
    pub fn named(names: &Names) -> Inbox {
        Inbox { accept: names.render(ACCEPT.text).into() }
    }

    /// Records, in the caller's transaction, that the handler acts on the event, or says that it did
    /// before. The marker commits with the handler's change or not at all. One round trip.
    ///
    /// While another transaction is at the same event, this one waits until that ends: a commit makes it
    /// a duplicate, a rollback the first time. It waits as long as the session's `lock_timeout` says, and
    /// 10 s where that is unlimited.
    ///
    /// An error of the database ends the transaction, as always in PostgreSQL: roll it back, and have the
    /// event delivered again. Do not commit after an error of any statement: the server answers that
    /// `COMMIT` without an error and rolls back, and an acknowledged event would be lost
    /// ([`Transactional`](crate::Transactional) looks for that).
    ///
    /// # Errors
    /// `Invalid` if the event has no source; `Conflict` with [`Code::PayloadMismatch`] if the id was done
    /// with another payload; `Busy` if a worker holds a lease on it, if the wait was too long, and at
    /// `REPEATABLE READ` and `SERIALIZABLE` if another transaction accepted it since this one began;
    /// what the database says.
    pub async fn accept(
        &self,
        tx: &Transaction<'_>,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let key = InboxKey::of(event, handler)?;
        let hash = event.payload.hash();
        let values = params![
            &*key.source,
            uuid(key.event_id),
            key.handler.as_str(),
            &*event.event_type,
            hash.as_slice()
        ];
        let rows = tx.query_typed(&self.accept, values).await.during("accept")?;
        match rows.first().and_then(|row| row.get::<_, Option<&str>>(0)) {
            Some("first_time") => Ok(Accepted::FirstTime),
            Some("duplicate") => Ok(Accepted::Duplicate),
            Some("mismatch") => Err(mismatch("accept", &key)),
            Some("leased") => Err(Error::new(ErrorKind::Busy, "accept")
                .message("a worker holds a lease on the event")
                .context("event", key.event_id)
                .context("handler", &key.handler)),
            _ => Err(Error::new(ErrorKind::Internal, "accept")
                .message("the database's function gave no answer that is known")),
        }
    }
}

/// [`Inbox::accept`] with the default names.
///
/// The deduplication key comes from the event itself; there is no way to pass another. Only a
/// transaction is accepted:
///
/// ```compile_fail
/// # async fn act(
/// #     client: &tokio_postgres::Client,
/// #     event: &postrider_core::Event,
/// #     handler: &postrider_core::HandlerName,
/// # ) {
/// let _ = postrider_postgres::accept(client, event, handler).await;
/// # }
/// ```
///
/// # Errors
/// As [`Inbox::accept`].
pub async fn accept(
    tx: &Transaction<'_>,
    event: &Event,
    handler: &HandlerName,
) -> Result<Accepted> {
    static DEFAULT: OnceLock<Inbox> = OnceLock::new();
    DEFAULT.get_or_init(Inbox::new).accept(tx, event, handler).await
}

/// The error for one id with two payloads.
fn mismatch(operation: &'static str, key: &InboxKey) -> Error {
    Error::new(ErrorKind::Conflict, operation)
        .code(Code::PayloadMismatch)
        .message("this event id is known with another payload; the handler must not act on it")
        .context("source", &key.source)
        .context("event", key.event_id)
        .context("handler", &key.handler)
}
