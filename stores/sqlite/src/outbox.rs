//! Staging events in the application's own transaction.
//!
//! Invariant: nothing here opens, commits, or ends a transaction of the caller's. An event becomes
//! real when the caller commits, together with the change it tells of, or never.

use postrider_core::{
    Error, ErrorKind, Event, EventId, EventLimits, NewEvent, Payload, Result, Timestamp,
};
use rusqlite::Transaction;

use crate::error::During;
use crate::sql;

/// Stages events. Cheap to make and to copy; holds no connection.
///
/// Only a transaction is accepted, because an event beside a transaction is the mistake this exists
/// to prevent. A connection does not compile:
///
/// ```compile_fail
/// # let connection = rusqlite::Connection::open_in_memory().unwrap();
/// # let event = postrider_core::NewEvent::new("order", "42", "order.placed");
/// postrider_sqlite::Outbox::new().enqueue(&connection, &event);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Outbox {
    limits: EventLimits,
}

/// The values of one row, as both drivers bind them.
pub(crate) struct Values<'a> {
    pub(crate) id: String,
    pub(crate) source: Option<&'a str>,
    pub(crate) event: &'a Event,
    pub(crate) event_version: i64,
    pub(crate) payload: Option<&'a str>,
    pub(crate) payload_bytes: Option<&'a [u8]>,
    pub(crate) headers: String,
    pub(crate) occurred_at: String,
    /// When it is due, if it is for later.
    pub(crate) due_at: Option<String>,
}

impl Outbox {
    /// An outbox with the default limits: those of the table's own CHECKs.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// The same with other limits, for destinations that carry less: what is too large for them is
    /// then refused here, where its author sees it.
    #[must_use]
    pub fn limits(mut self, limits: EventLimits) -> Outbox {
        self.limits = limits;
        self
    }

    /// Stages an event in the transaction, and returns its id. Scheduled events
    /// ([`NewEvent::deliver_after`]) wait in `outbox_scheduled` until they are due.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid`, naming what is wrong with the event; `Conflict` if its id is there
    /// already; `SchemaMissing`; `Busy`, `DiskFull`, and whatever else keeps the database from
    /// writing. Nothing of the event was written then; whether the rest of the transaction commits
    /// is the caller's decision.
    pub fn enqueue(&self, tx: &Transaction<'_>, event: &NewEvent) -> Result<EventId> {
        insert(tx, &self.values(event)?)
    }

    /// Stages events in their order, all or none, with one prepared statement.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`], for the first event that is refused; none of them was written then.
    pub fn enqueue_many<'e>(
        &self,
        tx: &Transaction<'_>,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        let all: Vec<Values<'e>> =
            events.into_iter().map(|event| self.values(event)).collect::<Result<_>>()?;
        tx.execute_batch(sql::OUTBOX_SAVEPOINT).during("enqueue")?;
        let outcome = all.iter().map(|values| insert(tx, values)).collect();
        let end = match &outcome {
            Ok(_) => sql::OUTBOX_SAVEPOINT_KEEP,
            Err(_) => sql::OUTBOX_SAVEPOINT_UNDO,
        };
        let ended = tx.execute_batch(end).during("enqueue");
        // The first failure is the one that tells what happened.
        let ids: Vec<EventId> = outcome?;
        ended?;
        Ok(ids)
    }

    /// Checks an event and lays out its row.
    pub(crate) fn values<'e>(&self, new: &'e NewEvent) -> Result<Values<'e>> {
        let event = new.event();
        let named = |error: Error| error.context("event", event.id);
        self.limits.check(event).map_err(named)?;
        let (payload, payload_bytes) = match &event.payload {
            Payload::Json(text) => {
                let text = std::str::from_utf8(text)
                    .map_err(|e| named(invalid("a JSON payload is not UTF-8").source(e)))?;
                (Some(text), None)
            }
            Payload::Bytes(bytes) => (None, Some(&**bytes)),
            Payload::Erased => return Err(named(invalid("an erased payload cannot be enqueued"))),
        };
        let headers = if event.headers.is_empty() {
            "{}".to_owned()
        } else {
            serde_json::to_string(&event.headers)
                .map_err(|e| named(invalid("the headers cannot be written as JSON").source(e)))?
        };
        Ok(Values {
            id: event.id.to_string(),
            source: Some(&*event.source).filter(|source| !source.is_empty()),
            event,
            event_version: i64::from(event.event_version),
            payload,
            payload_bytes,
            headers,
            occurred_at: event.occurred_at.to_string(),
            due_at: new.due().map(|due| up_to_the_millisecond(due).to_string()),
        })
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, "enqueue").message(message)
}

/// SQLite's clock has milliseconds: rounded up, so that nothing is delivered before its time.
fn up_to_the_millisecond(time: Timestamp) -> Timestamp {
    let micros = time.as_micros();
    let over = micros.rem_euclid(1_000);
    Timestamp::from_micros(if over == 0 { micros } else { micros.saturating_add(1_000 - over) })
}

fn insert(tx: &Transaction<'_>, values: &Values<'_>) -> Result<EventId> {
    let event = values.event;
    let statement = match values.due_at {
        None => sql::OUTBOX_ENQUEUE,
        Some(_) => sql::OUTBOX_ENQUEUE_SCHEDULED,
    };
    let row = rusqlite::params![
        values.id,
        values.source,
        &*event.aggregate_type,
        &*event.aggregate_id,
        event.key.as_deref(),
        &*event.event_type,
        values.event_version,
        values.payload,
        values.payload_bytes,
        &*event.content_type,
        event.encoding.as_deref(),
        values.headers,
        event.tenant.as_deref(),
        values.occurred_at,
        values.due_at,
    ];
    let columns = if values.due_at.is_some() { 15 } else { 14 };
    tx.prepare_cached(statement)
        .and_then(|mut statement| statement.execute(&row[..columns]))
        .during("enqueue")
        .map_err(|error| error.context("event", &values.id))?;
    Ok(event.id)
}
