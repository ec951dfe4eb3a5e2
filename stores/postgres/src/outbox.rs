//! Staging events in the application's own transaction.
//!
//! Invariant: nothing here opens, commits, or ends a transaction of the caller's. An event becomes
//! real when the caller commits, together with the change it tells of, or never.

use std::sync::Arc;
use std::time::Instant;

use postrider_core::preflight::Known;
use postrider_core::{Error, ErrorKind, EventLimits, NewEvent, Preflight, Result};

use crate::Names;
use crate::sql::{Sql, sql};
use crate::staged::{self, Row, Staged};

const BACKLOG: Sql = sql!("outbox/backlog");
const LIMITS: Sql = sql!("outbox/limits");
const ONE: Sql = sql!("outbox/enqueue");
#[cfg(feature = "tokio-postgres")]
const PREPARED: Sql = sql!("outbox/enqueue_prepared");
const ONE_SCHEDULED: Sql = sql!("outbox/enqueue_scheduled");
const MANY: Sql = sql!("outbox/enqueue_many");
const MANY_SCHEDULED: Sql = sql!("outbox/enqueue_many_scheduled");
const HELD: Sql = sql!("outbox/held");
const HELD_MANY: Sql = sql!("outbox/held_many");
const HELD_MANY_SCHEDULED: Sql = sql!("outbox/held_many_scheduled");

/// Stages events. Cheap to clone; holds no connection.
///
/// Only a transaction is accepted, because an event beside a transaction is the mistake this exists
/// to prevent. A client does not compile:
///
/// ```compile_fail
/// # async fn stage(client: &tokio_postgres::Client) {
/// # let event = postrider_core::NewEvent::new("order", "42", "order.placed");
/// postrider_postgres::Outbox::new().enqueue(client, &event).await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Outbox {
    limits: EventLimits,
    names: Names,
    serialize_keys: bool,
    /// More events than this that are not passed, and nothing is taken. Default none: an outbox that
    /// refuses makes the application fail while the broker does, which only its author can want.
    watermark: Option<u64>,
    /// What the destinations can carry, if that is asked for.
    known: Option<Arc<Known>>,
    statements: Arc<Statements>,
}

/// The statements with the names in their places.
#[derive(Debug)]
struct Statements {
    backlog: Arc<str>,
    limits: Arc<str>,
    one: Arc<str>,
    #[cfg(feature = "tokio-postgres")]
    prepared: Arc<str>,
    one_scheduled: Arc<str>,
    many: Arc<str>,
    many_scheduled: Arc<str>,
}

impl Statements {
    fn new(names: &Names, serialize_keys: bool) -> Arc<Statements> {
        let render = |statement: &Sql, held: Option<&Sql>| {
            let held = held.filter(|_| serialize_keys).map_or("", |held| held.text);
            Arc::from(names.render(&statement.text.replace("$held$", held)))
        };
        Arc::new(Statements {
            backlog: render(&BACKLOG, None),
            limits: render(&LIMITS, None),
            one: render(&ONE, Some(&HELD)),
            #[cfg(feature = "tokio-postgres")]
            prepared: render(&PREPARED, Some(&HELD)),
            one_scheduled: render(&ONE_SCHEDULED, None),
            many: render(&MANY, Some(&HELD_MANY)),
            many_scheduled: render(&MANY_SCHEDULED, Some(&HELD_MANY_SCHEDULED)),
        })
    }
}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox::named(Names::default())
    }
}

impl Outbox {
    /// An outbox with the default names, and the default limits: those of the table's own CHECKs.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// An outbox whose tables have names of their own.
    pub fn named(names: Names) -> Outbox {
        let statements = Statements::new(&names, false);
        Outbox {
            limits: EventLimits::default(),
            names,
            serialize_keys: false,
            watermark: None,
            known: None,
            statements,
        }
    }

    /// The same with other limits, for destinations that carry less: what is too large for them is
    /// then refused here, where its author sees it. Limits that are wider than the table's do not widen
    /// those.
    #[must_use]
    pub fn limits(mut self, limits: EventLimits) -> Outbox {
        let table = EventLimits::default();
        self.limits = EventLimits {
            payload_bytes_max: limits.payload_bytes_max.min(table.payload_bytes_max),
            headers_bytes_max: limits.headers_bytes_max.min(table.headers_bytes_max),
            headers_max: limits.headers_max.min(table.headers_max),
            message_bytes_max: limits.message_bytes_max,
            key_bytes_max: limits.key_bytes_max.min(table.key_bytes_max),
            name_bytes_max: limits.name_bytes_max.min(table.name_bytes_max),
        };
        self
    }

    /// The same, taking an advisory lock on the key of each event before the event draws its number, until
    /// the transaction ends.
    ///
    /// Events of one key are delivered in the order of their numbers where their transactions exclude each
    /// other, and that is what most do who change the same row before they enqueue. Where two transactions
    /// write of one key and share no row, the one that draws the lower number may commit last, and the other
    /// is delivered first; this makes the second wait for the first. Several keys of one call are locked in
    /// one order; a transaction that calls more than once with different keys should do so in one order too,
    /// or it may be chosen to end a deadlock.
    #[must_use]
    pub fn serialize_keys(mut self) -> Outbox {
        self.serialize_keys = true;
        self.statements = Statements::new(&self.names, true);
        self
    }

    /// The same with a limit to the backlog: while more than about `rows` events are not passed by the
    /// slowest destination (paused ones do not count), events are refused with
    /// [`ErrorKind::Backpressure`], before anything is written and without an end to the transaction, so
    /// that producers slow down before the disk is full. What is waiting to be tried again, and what is
    /// scheduled, does not count.
    ///
    /// The number is an estimate from the cursors and each partition's newest row: a partition in which one
    /// key has most events counts for less than it has. Costs a round trip and a short read for each call of
    /// `enqueue`, and for each of `enqueue_many`.
    #[must_use]
    pub fn watermark(mut self, rows: u64) -> Outbox {
        self.watermark = Some(rows);
        self
    }

    /// The same with a pre-flight: what a destination of this store cannot carry, because it is too large in the
    /// format of its route or its topic would have no name, is refused here with `TooLarge` or `Invalid`, in the
    /// caller's transaction, and not by a relay later.
    ///
    /// What destinations can carry stands in their definitions, which are read in the transaction of the first
    /// event, and again when they are a [minute](postrider_core::preflight::GOOD_FOR) old; between, an event costs
    /// a few comparisons. So keep the outbox, or clones of it: each new one reads anew. Needs `SELECT` on
    /// `outbox_destination`.
    #[must_use]
    pub fn preflight(mut self) -> Outbox {
        self.known = Some(Arc::default());
        self
    }

    /// The statement whose one text is what destinations can carry, if that is to be known and is not, or was
    /// read too long ago.
    #[doc(hidden)]
    pub fn unknown(&self) -> Option<Arc<str>> {
        let known = self.known.as_ref()?;
        known.is_stale(Instant::now()).then(|| Arc::clone(&self.statements.limits))
    }

    /// What that statement answered.
    #[doc(hidden)]
    pub fn learn(&self, definitions: &str) {
        if let Some(known) = &self.known {
            known.learn(Instant::now(), Preflight::read(definitions));
        }
    }

    fn row<'e>(&self, event: &'e NewEvent) -> Result<Row<'e>> {
        let row = Row::new(&self.limits, event)?;
        if let Some(known) = &self.known {
            known.check(event.event()).map_err(|error| error.context("event", row.event_id))?;
        }
        Ok(row)
    }

    /// The statement whose one number is the backlog, if there is a watermark.
    #[doc(hidden)]
    pub fn backlog(&self) -> Option<Arc<str>> {
        self.watermark.map(|_| Arc::clone(&self.statements.backlog))
    }

    /// Refuses what comes while the backlog is over the watermark.
    ///
    /// # Errors
    /// `Backpressure`.
    #[doc(hidden)]
    pub fn allow(&self, backlog: i64) -> Result<()> {
        let backlog = u64::try_from(backlog).unwrap_or(0);
        match self.watermark {
            Some(limit) if backlog > limit => Err(Error::new(ErrorKind::Backpressure, "enqueue")
                .message(format!(
                    "about {backlog} events are not delivered yet, and the limit is {limit}; nothing was \
                     written: try again when the relay has caught up"
                ))),
            _ => Ok(()),
        }
    }

    /// Checks an event and lays out its row.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid`, naming what is wrong with the event.
    #[doc(hidden)]
    pub fn stage<'e>(&self, event: &'e NewEvent) -> Result<Staged<'e>> {
        let row = self.row(event)?;
        let statement = match row.due_at {
            None => &self.statements.one,
            Some(_) => &self.statements.one_scheduled,
        };
        Ok(Staged {
            statement: Arc::clone(statement),
            event_ids: vec![row.event_id],
            values: staged::one(row),
        })
    }

    /// The statement for one event, to be prepared with the columns' own types.
    #[cfg(feature = "tokio-postgres")]
    pub(crate) fn prepared(&self) -> &str {
        &self.statements.prepared
    }

    /// Checks events and lays out their columns; nothing if there are no events.
    ///
    /// # Errors
    /// As [`Outbox::stage`], for the first event that is refused.
    #[doc(hidden)]
    pub fn stage_many<'e>(
        &self,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Option<Staged<'e>>> {
        let rows: Vec<Row<'e>> =
            events.into_iter().map(|event| self.row(event)).collect::<Result<_>>()?;
        if rows.is_empty() {
            return Ok(None);
        }
        let statement = if rows.iter().all(|row| row.due_at.is_none()) {
            &self.statements.many
        } else {
            &self.statements.many_scheduled
        };
        Ok(Some(Staged {
            statement: Arc::clone(statement),
            event_ids: rows.iter().map(|row| row.event_id).collect(),
            values: staged::many(&rows),
        }))
    }
}
