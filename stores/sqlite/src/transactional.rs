//! A handler whose whole effect is in this database: marker, change, and new events in one
//! transaction.
//!
//! Invariant: the marker commits with the change, or neither does. A handler that fails, refuses,
//! or panics leaves nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::{
    Accepted, Begun, DELIVERIES_MAX, Receiver, Verdict, counted, suspicion, unbegun,
    usual_deliveries,
};
use postrider_core::{
    BoxFuture, Claim, Delivery, Error, ErrorKind, Event, Fault, HandlerName, Result, Tried,
};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::{During, of_sqlite};
use crate::file::StoreFile;
use crate::inbox::{accept, claim, release};
use crate::worker::{Worker, panic_text};

/// How long an event waits whose handler found an outbox over its [watermark](crate::Outbox::watermark), and is not
/// counted: a relay takes away some thousand in that time, and a handler that finds nothing gone costs little.
const OVER_WATERMARK: Duration = Duration::from_secs(5);

/// Why a handler failed: anything, so that `?` takes errors of `rusqlite`, of Postrider, and of the
/// application.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

type Handle =
    dyn Fn(&Transaction<'_>, &Event) -> Result<Verdict, HandlerError> + Send + Sync + 'static;

/// A [`Receiver`] that runs a closure once per event, in the transaction that also holds the
/// marker.
///
/// | the closure | then | the consumer engine hears |
/// |---|---|---|
/// | says `Done` | commit | `Done` |
/// | says `Retry`, `Reject`, or `Busy` | roll back | the same |
/// | fails, or panics | roll back | `Retry`, which counts |
/// | fails because the database was locked, full, or read-only | roll back | an error, which does not count |
/// | fails because the outbox is over its watermark | roll back | `Busy`, which does not count |
/// | is not called, as it was done before | nothing | `Duplicate` |
///
/// The transaction has the write lock from its start (`BEGIN IMMEDIATE`), so that the closure never
/// loses to another writer halfway; keep it short, and do nothing in it that waits for a network.
///
/// ```
/// use postrider_core::{inbox::Verdict, HandlerName};
/// use postrider_sqlite::Transactional;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("billing.db");
/// # postrider_sqlite::init(&path)?;
/// let billing = Transactional::new(&path, HandlerName::new("billing")?, |tx, event| {
///     tx.execute("insert into invoices (order_id) values (?1)", [&*event.aggregate_id])?;
///     Ok(Verdict::Done)
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transactional {
    handler: HandlerName,
    handle: Arc<Handle>,
    worker: Worker,
    deliveries_max: u32,
    begun: Arc<Begun>,
}

impl Transactional {
    /// A handler on a database file that has Postrider's tables. It has a connection and a thread
    /// of its own; the file is opened with the first delivery.
    ///
    /// # Errors
    /// `Config` if the path cannot be made absolute; `Unavailable` if no thread can be started.
    pub fn new(
        path: impl AsRef<Path>,
        handler: HandlerName,
        handle: impl Fn(&Transaction<'_>, &Event) -> Result<Verdict, HandlerError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Transactional> {
        let file = Arc::new(StoreFile::new(path.as_ref())?);
        Ok(Transactional {
            handler,
            handle: Arc::new(handle),
            worker: Worker::start("handler", file)?,
            deliveries_max: DELIVERIES_MAX,
            begun: Arc::default(),
        })
    }

    /// Sets after how many tries without an end a delivery is refused without calling the closure; [`DELIVERIES_MAX`] by
    /// default. From [half](usual_deliveries) of them on, and where an earlier process may have begun it, tries are counted in the inbox, which costs two more transactions each. Until
    /// then a process counts for itself.
    #[must_use]
    pub fn deliveries_max(mut self, deliveries_max: u32) -> Transactional {
        self.deliveries_max = deliveries_max;
        self
    }
}

impl std::fmt::Debug for Transactional {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transactional").field("handler", &self.handler).finish_non_exhaustive()
    }
}

impl Receiver for Transactional {
    fn handler(&self) -> &HandlerName {
        &self.handler
    }

    fn counts_tries(&self) -> bool {
        true
    }

    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        let (Ok(event), handler) = (delivery.event.clone(), self.handler.clone()) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let is_usual = !delivery.is_suspicious(self.deliveries_max);
        Box::pin(self.worker.call("forget tries", move |connection| match is_usual {
            true => Ok(()),
            false => forget_tries(connection, &event, &handler),
        }))
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        let (event, handler) = (Arc::clone(event), self.handler.clone());
        let handle = Arc::clone(&self.handle);
        let max = self.deliveries_max;
        let again = Again {
            begun: Arc::clone(&self.begun),
            most: max - usual_deliveries(max),
            alone: delivery.alone,
            often: delivery.count > usual_deliveries(max),
        };
        let is_usual = !delivery.is_suspicious(max);
        Box::pin(self.worker.call("receive", move |connection| match is_usual {
            true => receive(connection, &event, &handler, &*handle),
            false => receive_again(connection, &event, (&handler, &*handle), &again),
        }))
    }
}

/// What is known of a delivery whose tries are counted in the inbox.
struct Again {
    begun: Arc<Begun>,
    /// Tries without an end.
    most: u32,
    alone: Option<bool>,
    /// The broker has delivered it suspiciously often.
    often: bool,
}

/// Acts on an event, and counts that in the inbox.
fn receive_again(
    connection: &mut Connection,
    event: &Event,
    (handler, handle): (&HandlerName, &Handle),
    again: &Again,
) -> Result<Verdict> {
    let mut request = suspicion(event, handler)?;
    request.outlived = again.begun.ask(&request.key);
    let claimed = apart(connection, "claim", |tx| claim(tx, &request));
    again.begun.answered(&request.key, &claimed);
    let Claim::Claimed(lease) = claimed? else {
        // Somebody is at it, or it is done: said by the marker's own rules.
        return receive(connection, event, handler, handle);
    };
    let (answer, tried) = match unbegun(lease.lost, again.alone, again.most) {
        Some(verdict) => (Ok(verdict), Some(Tried::NotCounted)),
        None => counted(receive(connection, event, handler, handle), lease.tries, again.often),
    };
    let Some(tried) = tried else {
        again.begun.forget(&lease.key);
        return answer;
    };
    // Where that fails, this delivery stays counted as a try.
    if apart(connection, "release", |tx| release(tx, &lease, tried)).is_ok() {
        match tried.came_to_an_end() {
            true => again.begun.forget(&lease.key),
            false => again.begun.take_back(&lease.key),
        }
    }
    answer
}

/// Has the tries of an event begin anew.
fn forget_tries(connection: &mut Connection, event: &Event, handler: &HandlerName) -> Result<()> {
    let request = suspicion(event, handler)?;
    apart(connection, "forget tries", |tx| match claim(tx, &request)? {
        Claim::Claimed(lease) => release(tx, &lease, Tried::Refused),
        Claim::Leased { .. } | Claim::Processed { .. } | Claim::Mismatch => Ok(()),
    })
}

/// A transaction of its own.
fn apart<T>(
    connection: &mut Connection,
    operation: &'static str,
    act: impl FnOnce(&Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let tx =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).during(operation)?;
    let answer = act(&tx)?;
    tx.commit().during(operation)?;
    Ok(answer)
}

fn receive(
    connection: &mut Connection,
    event: &Event,
    handler: &HandlerName,
    handle: &Handle,
) -> Result<Verdict> {
    let tx =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).during("receive")?;
    // A transaction that is dropped on the way out of here is rolled back.
    match accept(&tx, event, handler) {
        Ok(Accepted::FirstTime) => {}
        Ok(Accepted::Duplicate) => return Ok(Verdict::Duplicate),
        Err(error) if error.kind().blames_event() => {
            return Ok(Verdict::Reject(Fault::new(error.kind(), error.to_string())));
        }
        Err(error) => return Err(error),
    }
    match catch_unwind(AssertUnwindSafe(|| handle(&tx, event))) {
        Ok(Ok(Verdict::Done)) => tx.commit().during("receive").map(|()| Verdict::Done),
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(error)) => failed(error),
        Err(panic) => {
            Ok(retry(ErrorKind::Internal, format!("the handler {}", panic_text(&*panic))))
        }
    }
}

/// What the database cannot do now is nobody's fault; everything else counts against the event.
fn failed(error: HandlerError) -> Result<Verdict> {
    let error = match error.downcast::<rusqlite::Error>() {
        Ok(error) => of_sqlite("receive", *error),
        Err(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => return Ok(retry(ErrorKind::Internal, other.to_string())),
        },
    };
    match error.kind() {
        // An outbox that is over its watermark takes the event later.
        ErrorKind::Backpressure => Ok(Verdict::Busy { retry_in: OVER_WATERMARK }),
        kind if kind.excuses_event() => Err(error),
        kind => Ok(retry(kind, format!("{error:?}"))),
    }
}

fn retry(kind: ErrorKind, detail: String) -> Verdict {
    Verdict::Retry { after: None, fault: Fault::new(kind, detail), tries: None }
}
