//! Postrider's outbox and inbox on PostgreSQL, in transactions of `diesel` and `diesel-async`.
//!
//! The tables, the relay, and everything else are those of `postrider-postgres`; here are only the calls
//! that take a connection of `diesel`. Its transactions are closures over the connection itself, so no type
//! tells a transaction from a connection: outside of one these calls refuse, before they send anything.
//!
//! ```
//! # fn place(connection: &mut impl diesel::connection::LoadConnection<Backend = diesel::pg::Pg>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::NewEvent;
//! use postrider_postgres_diesel::Outbox;
//!
//! let outbox = Outbox::new();
//! connection.transaction(|connection| {
//!     let event = NewEvent::new("order", "42", "order.placed").json(&[1250])?;
//!     outbox.enqueue(connection, &event)?;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! The other side, a handler that acts once on what comes in, is [`Inbox::accept`].

mod inbox;
mod statement;
#[cfg(feature = "async")]
mod tokio;

pub use diesel;
use diesel::connection::{LoadConnection, TransactionManager, TransactionManagerStatus};
use diesel::pg::Pg;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind};
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Text};
use diesel::{QueryableByName, RunQueryDsl};
#[cfg(feature = "async")]
pub use diesel_async;
pub use inbox::Inbox;
use postrider_core::{Error, ErrorKind, EventId, NewEvent, Result};
pub use postrider_postgres::{Names, Outbox as Settings};

use crate::statement::Statement;

/// Stages events. Cheap to clone; holds no connection.
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

    /// Stages an event in the transaction that is open on the connection, and returns its id. One round trip,
    /// once the statement stands in the connection's own cache. Scheduled events
    /// ([`NewEvent::deliver_after`]) wait in `outbox_scheduled` until they are due.
    ///
    /// # Errors
    /// `Invalid` if no transaction is open; `Backpressure` over a watermark; `TooLarge` or `Invalid`, naming what is wrong with the event:
    /// nothing was written then, and the transaction goes on. Whatever else keeps the database from writing ends
    /// the transaction, as always in PostgreSQL.
    pub fn enqueue<C: LoadConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
        event: &NewEvent,
    ) -> Result<EventId> {
        let id = event.event().id;
        check_open("enqueue", C::TransactionManager::transaction_manager_status_mut(connection))?;
        self.ask_limits(connection)?;
        self.check_backlog(connection)?;
        Statement::from(self.settings.stage(event)?)
            .execute(connection)
            .map_err(|error| of_diesel("enqueue", error).context("event", id))?;
        Ok(id)
    }

    /// Stages events in their order, all or none, in one round trip however many they are, and returns
    /// their ids. A thousand at a time are plenty: more need memory and gain nothing.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`], for the first event that is refused; none of them was written then.
    pub fn enqueue_many<'e, C: LoadConnection<Backend = Pg>>(
        &self,
        connection: &mut C,
        events: impl IntoIterator<Item = &'e NewEvent>,
    ) -> Result<Vec<EventId>> {
        check_open("enqueue", C::TransactionManager::transaction_manager_status_mut(connection))?;
        self.ask_limits(connection)?;
        self.check_backlog(connection)?;
        let Some(mut staged) = self.settings.stage_many(events)? else { return Ok(Vec::new()) };
        let ids = std::mem::take(&mut staged.event_ids);
        Statement::from(staged).execute(connection).map_err(|error| of_diesel("enqueue", error))?;
        Ok(ids)
    }

    fn ask_limits<C: LoadConnection<Backend = Pg>>(&self, connection: &mut C) -> Result<()> {
        let Some(statement) = self.settings.unknown() else { return Ok(()) };
        let read = diesel::sql_query(&*statement).get_result::<Definitions>(connection);
        self.settings.learn(&read.map_err(|error| of_diesel("enqueue", error))?.0);
        Ok(())
    }

    fn check_backlog<C: LoadConnection<Backend = Pg>>(&self, connection: &mut C) -> Result<()> {
        let Some(statement) = self.settings.backlog() else { return Ok(()) };
        let read = diesel::sql_query(&*statement).get_result::<Backlog>(connection);
        self.settings.allow(read.map_err(|error| of_diesel("enqueue", error))?.0)
    }
}

/// The one number of the backlog's statement.
struct Backlog(i64);

impl QueryableByName<Pg> for Backlog {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> diesel::deserialize::Result<Backlog> {
        NamedRow::get::<BigInt, i64>(row, "backlog").map(Backlog)
    }
}

/// What the destinations can carry.
struct Definitions(String);

impl QueryableByName<Pg> for Definitions {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> diesel::deserialize::Result<Definitions> {
        NamedRow::get::<Text, String>(row, "definitions").map(Definitions)
    }
}

/// Refuses a connection without a transaction: an event or a marker beside one is the mistake this exists to
/// prevent.
fn check_open(operation: &'static str, status: &TransactionManagerStatus) -> Result<()> {
    match status.transaction_depth() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::new(ErrorKind::Invalid, operation)
            .message("no transaction is open on the connection; nothing was written")),
        Err(error) => Err(of_diesel(operation, error)),
    }
}

/// The driver's errors. It keeps no states: where its kinds do not tell, the English text of the server does, and
/// in other languages (`lc_messages`) the kind is coarser.
fn of_diesel(operation: &'static str, error: diesel::result::Error) -> Error {
    use diesel::result::Error as Diesel;
    let (kind, message) = match &error {
        Diesel::DatabaseError(kind, told) => of_kind(kind, &**told),
        Diesel::BrokenTransactionManager => {
            (ErrorKind::Unavailable, "the connection is not usable any more".to_owned())
        }
        _ => (ErrorKind::Internal, "diesel could not run the statement".to_owned()),
    };
    Error::new(kind, operation).message(message).source(error)
}

fn of_kind(
    kind: &DatabaseErrorKind,
    told: &(dyn DatabaseErrorInformation + Send + Sync),
) -> (ErrorKind, String) {
    let text = told.message();
    match kind {
        DatabaseErrorKind::CheckViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::ForeignKeyViolation => {
            (ErrorKind::Invalid, format!("refused: {text}"))
        }
        DatabaseErrorKind::UniqueViolation => {
            (ErrorKind::Conflict, format!("it is there already: {text}"))
        }
        DatabaseErrorKind::SerializationFailure => (
            ErrorKind::Busy,
            "the rows are locked by another writer; nothing was written".to_owned(),
        ),
        DatabaseErrorKind::ReadOnlyTransaction => {
            (ErrorKind::ReadOnly, "the database cannot be written to".to_owned())
        }
        DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => {
            (ErrorKind::Unavailable, "the connection to the database was lost".to_owned())
        }
        _ => of_text(text),
    }
}

fn of_text(text: &str) -> (ErrorKind, String) {
    let has = |part: &str| text.contains(part);
    if has("lock timeout") || has("deadlock detected") {
        let told = "the rows are locked by another writer; nothing was written";
        (ErrorKind::Busy, told.to_owned())
    } else if has("statement timeout") {
        (ErrorKind::Timeout, "the database cancelled the statement".to_owned())
    } else if has("permission denied") {
        let told = format!("the user of the database lacks a privilege: {text}");
        (ErrorKind::Unauthorized, told)
    } else if has("does not exist") {
        let told = format!("the database has no Postrider tables of this version: {text}");
        (ErrorKind::SchemaMissing, told)
    } else {
        (ErrorKind::Internal, format!("PostgreSQL refused a statement: {text}"))
    }
}
