//! Staging events in the application's own transaction.
//!
//! Invariant: nothing here opens, commits, or ends a transaction of the caller's. An event becomes
//! real when the caller commits, together with the change it tells of, or never.

use std::sync::Arc;
use std::time::Instant;

use postrider_core::preflight::Known;
use postrider_core::{
    Error, ErrorKind, Event, EventId, EventLimits, NewEvent, Payload, Preflight, Result, Timestamp,
};
use rusqlite::Transaction;

use crate::error::During;
use crate::sql;
use crate::store::unsigned;

/// Stages events. Cheap to make and to clone; holds no connection.
///
/// Only a transaction is accepted, because an event beside a transaction is the mistake this exists
/// to prevent. A connection does not compile:
///
/// ```compile_fail
/// # let connection = rusqlite::Connection::open_in_memory().unwrap();
/// # let event = postrider_core::NewEvent::new("order", "42", "order.placed");
/// postrider_sqlite::Outbox::new().enqueue(&connection, &event);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    limits: EventLimits,
    /// More events than this that are not passed, and nothing is taken. Default none: an outbox that
    /// refuses makes the application fail while the broker does, which only its author can want.
    watermark: Option<u64>,
    /// What the destinations can carry, if that is asked for.
    known: Option<Arc<Known>>,
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

    /// The same with a limit to the backlog: while more than `rows` events are not passed by the
    /// slowest destination (paused ones do not count), events are refused with
    /// [`ErrorKind::Backpressure`], so that producers slow down before the disk is full. What a
    /// transaction adds itself counts from its next event on; what waits to be tried again, and what
    /// is scheduled, does not.
    ///
    /// Costs two short reads for each call of `enqueue`, and for each of `enqueue_many`. Begin the
    /// transaction with `BEGIN IMMEDIATE`: one that reads first and writes later fails at once if
    /// another writer came between.
    #[must_use]
    pub fn watermark(mut self, rows: u64) -> Outbox {
        self.watermark = Some(rows);
        self
    }

    /// The same with a pre-flight: what a destination of this store cannot carry, because it is too large in the
    /// format of its route or its topic would have no name, is refused here with `TooLarge` or `Invalid`, in the
    /// caller's transaction, and not by a relay later.
    ///
    /// What destinations can carry stands in their definitions, which are read behind the first event, and again
    /// when they are a [minute](postrider_core::preflight::GOOD_FOR) old; between, an event costs a few
    /// comparisons. So keep the outbox, or clones of it: each new one reads anew.
    #[must_use]
    pub fn preflight(mut self) -> Outbox {
        self.known = Some(Arc::default());
        self
    }

    /// Stages an event in the transaction, and returns its id. Scheduled events
    /// ([`NewEvent::deliver_after`]) wait in `outbox_scheduled` until they are due.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid`, naming what is wrong with the event; `Conflict` if its id is there
    /// already; `Backpressure` if there is a [watermark](Outbox::watermark) and the backlog is over
    /// it; `SchemaMissing`; `Busy`, `DiskFull`, and whatever else keeps the database from
    /// writing. Nothing of the event was written then; whether the rest of the transaction commits
    /// is the caller's decision.
    pub fn enqueue(&self, tx: &Transaction<'_>, event: &NewEvent) -> Result<EventId> {
        if self.is_to_learn() {
            // Undone as one, if what is read then refuses it.
            self.enqueue_many(tx, [event])?;
            return Ok(event.event().id);
        }
        let values = self.values(event)?;
        self.check_backlog(tx)?;
        insert(tx, &values)
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
        self.check_backlog(tx)?;
        tx.execute_batch(sql::OUTBOX_SAVEPOINT).during("enqueue")?;
        let inserted: Result<Vec<EventId>> = all.iter().map(|values| insert(tx, values)).collect();
        let outcome = inserted.and_then(|ids| self.learn_behind(tx, &all).map(|()| ids));
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

    /// Reads what destinations can carry, if that is due, and checks what was just written: a transaction that
    /// begins with reading may fail when it writes, and one that has written may read.
    fn learn_behind(&self, tx: &Transaction<'_>, written: &[Values<'_>]) -> Result<()> {
        if !self.is_to_learn() {
            return Ok(());
        }
        let definitions: String = tx
            .prepare_cached(sql::OUTBOX_LIMITS)
            .and_then(|mut statement| statement.query_row((), |row| row.get(0)))
            .during("enqueue")?;
        self.learn(&definitions, written)
    }

    /// Whether what destinations can carry is to be known and is not, or was read too long ago.
    pub(crate) fn is_to_learn(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_stale(Instant::now()))
    }

    /// What destinations can carry was read: it counts for these as well.
    pub(crate) fn learn(&self, definitions: &str, written: &[Values<'_>]) -> Result<()> {
        let Some(known) = &self.known else { return Ok(()) };
        known.learn(Instant::now(), Preflight::read(definitions));
        written.iter().try_for_each(|values| {
            known.check(values.event).map_err(|error| error.context("event", values.event.id))
        })
    }

    fn check_backlog(&self, tx: &Transaction<'_>) -> Result<()> {
        if self.watermark.is_none() {
            return Ok(());
        }
        let backlog = tx
            .prepare_cached(sql::OUTBOX_BACKLOG)
            .and_then(|mut statement| statement.query_row((), |row| row.get(0)))
            .during("enqueue")?;
        self.allow(backlog)
    }

    /// Whether the backlog is to be asked for.
    #[cfg(feature = "sqlx")]
    pub(crate) fn has_watermark(&self) -> bool {
        self.watermark.is_some()
    }

    /// Refuses what comes while the backlog is over the watermark.
    pub(crate) fn allow(&self, backlog: Option<i64>) -> Result<()> {
        let backlog = backlog.map_or(0, unsigned);
        match self.watermark {
            Some(limit) if backlog > limit => Err(Error::new(ErrorKind::Backpressure, "enqueue")
                .message(format!(
                    "{backlog} events are not delivered yet, and the limit is {limit}; nothing was \
                     written: try again when the relay has caught up"
                ))),
            _ => Ok(()),
        }
    }

    /// Checks an event and lays out its row.
    pub(crate) fn values<'e>(&self, new: &'e NewEvent) -> Result<Values<'e>> {
        let event = new.event();
        let named = |error: Error| error.context("event", event.id);
        self.limits.check(event).map_err(named)?;
        if let Some(known) = &self.known {
            known.check(event).map_err(named)?;
        }
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
