//! The marker in a transaction of the application's.
//!
//! Invariant: nothing here begins or commits a transaction, so a marker is never written alone.

use std::sync::OnceLock;

use postrider_core::inbox::Accepted;
use postrider_core::{Event, HandlerName, InboxKey, Result};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::During;
use crate::marker::Inbox;
use crate::typed::{Param, uuid};

/// A marker as the columns' own types have it.
pub(crate) struct Marker<'e> {
    source: &'e str,
    event_id: Uuid,
    handler: &'e str,
    event_type: &'e str,
    payload_hash: Vec<u8>,
}

impl<'e> Marker<'e> {
    /// The types of its values, in their order.
    pub(crate) const TYPES: [Type; 5] =
        [Type::TEXT, Type::UUID, Type::TEXT, Type::TEXT, Type::BYTEA];

    /// # Errors
    /// `Invalid` if the event has no source.
    pub(crate) fn of(event: &'e Event, handler: &'e HandlerName) -> Result<Marker<'e>> {
        let key = InboxKey::of(event, handler)?;
        Ok(Marker {
            source: &event.source,
            event_id: uuid(key.event_id),
            handler: handler.as_str(),
            event_type: &event.event_type,
            payload_hash: event.payload.hash().to_vec(),
        })
    }

    pub(crate) fn values(&self) -> [Param<'_>; 5] {
        let [source, event_id, handler, event_type, payload_hash] = Marker::TYPES;
        [
            (&self.source, source),
            (&self.event_id, event_id),
            (&self.handler, handler),
            (&self.event_type, event_type),
            (&self.payload_hash, payload_hash),
        ]
    }
}

impl Inbox {
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
    /// `Invalid` if the event has no source; `Conflict` with [`PayloadMismatch`](postrider_core::Code::PayloadMismatch) if the id was done
    /// with another payload; `Busy` if a worker holds a lease on it, if the wait was too long, and at
    /// `REPEATABLE READ` and `SERIALIZABLE` if another transaction accepted it since this one began;
    /// what the database says.
    pub async fn accept(
        &self,
        tx: &Transaction<'_>,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let marker = Marker::of(event, handler)?;
        let row = tx.query_typed_one(self.accept_typed(), &marker.values()).await;
        Inbox::accepted(row.during("accept")?.get(0), event, handler)
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
