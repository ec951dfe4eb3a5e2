//! A handler whose whole effect is in this database: marker, change, and new events in one
//! transaction.
//!
//! Invariant: the marker commits with the change, or neither does. A handler that fails, refuses,
//! panics, or is dropped leaves nothing behind.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::inbox::{Accepted, Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, Fault, HandlerName, Result, RetryClass,
};
use tokio::sync::Semaphore;
use tokio_postgres::Transaction;

use crate::connect::Address;
use crate::error::{During, of_postgres};
use crate::marker::Inbox;
use crate::sql::{Sql, sql};
use crate::store::Options;
use crate::turns::{OPEN_MAX, Session};

const ACCEPT: Sql = sql!("inbox/accept_limited");

/// Why a handler failed: anything, so that `?` takes errors of `tokio-postgres`, of Postrider, and of the
/// application.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

type Handle = dyn for<'a> Fn(&'a Transaction<'a>, &'a Event) -> BoxFuture<'a, Result<Verdict, HandlerError>>
    + Send
    + Sync;

/// A [`Receiver`] that runs a closure once per event, in the transaction that also holds the
/// marker.
///
/// | the closure | then | the consumer engine hears |
/// |---|---|---|
/// | says `Done` | commit | `Done` |
/// | says `Done` after a statement failed in its transaction, or after a `COMMIT` or `ROLLBACK` of its own | roll back | `Retry`, which counts |
/// | says `Retry`, `Reject`, or `Busy` | roll back | the same |
/// | fails, or panics | roll back | `Retry`, which counts |
/// | fails because the database was busy, away, full, or read-only | roll back | an error, which does not count |
/// | is not called, as it was done before | nothing | `Duplicate` |
///
/// So many deliveries are in work at once as [`Options::transactions_max`] says; each has a session of
/// its own. The transaction is as the database's `default_transaction_isolation` says; every level is
/// right, and a serialization failure is `Busy`. Where one event follows another the transaction was begun with
/// the last one's commit, at most 5 ms before, which is the time that its `now()` says. Do nothing in it that waits for a network: it holds its
/// event, and after 60 s without a statement the server ends it.
///
/// ```no_run
/// use postrider_core::{inbox::Verdict, HandlerName};
/// use postrider_postgres::Transactional;
/// let url = "postgres://app@127.0.0.1/shop";
/// let billing = Transactional::new(url, HandlerName::new("billing")?, |tx, event| {
///     Box::pin(async move {
///         let order: &str = &event.aggregate_id;
///         tx.execute("insert into invoices (order_id) values ($1)", &[&order]).await?;
///         Ok(Verdict::Done)
///     })
/// })?;
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub struct Transactional {
    handling: Arc<Handling>,
    address: Address,
    in_work: Semaphore,
    idle: Arc<Mutex<Vec<Session>>>,
    stays: AtomicU64,
}

impl Transactional {
    /// A handler on a database that has Postrider's tables, at an address like
    /// `postgres://user:password@host:5432/database`. Nothing is connected before the first delivery.
    ///
    /// # Errors
    /// `Config` if it is no such address. The error does not repeat it.
    pub fn new(
        url: &str,
        handler: HandlerName,
        handle: impl for<'a> Fn(
            &'a Transaction<'a>,
            &'a Event,
        ) -> BoxFuture<'a, Result<Verdict, HandlerError>>
        + Send
        + Sync
        + 'static,
    ) -> Result<Transactional> {
        Transactional::with(url, &Options::default(), handler, handle)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Transactional::new`].
    pub fn with(
        url: &str,
        options: &Options,
        handler: HandlerName,
        handle: impl for<'a> Fn(
            &'a Transaction<'a>,
            &'a Event,
        ) -> BoxFuture<'a, Result<Verdict, HandlerError>>
        + Send
        + Sync
        + 'static,
    ) -> Result<Transactional> {
        let handling = Handling {
            handler,
            handle: Box::new(handle),
            inbox: Inbox::named(&options.names),
            accept: options.names.render(ACCEPT.text).into(),
            deadline: options.statement_deadline,
        };
        Ok(Transactional {
            handling: Arc::new(handling),
            address: Address::parse(url)?,
            in_work: Semaphore::new(options.transactions_max.max(1)),
            idle: Arc::default(),
            stays: AtomicU64::new(0),
        })
    }

    /// An idle session, or a new one.
    async fn session(&self) -> Result<Session> {
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(Session::is_sound);
            idle.pop()
        };
        if let Some(session) = idle {
            return Ok(session);
        }
        let (client, wire) = self.address.connect("receive").await?;
        // Ends by itself when the client is dropped or the connection is lost.
        let wire = tokio::spawn(async move { _ = wire.await });
        Ok(Session::new(Arc::clone(&self.handling), client, wire))
    }

    async fn receive_once(&self, event: &Arc<Event>) -> Result<Verdict> {
        let _permit = self
            .in_work
            .acquire()
            .await
            .map_err(|e| Error::new(ErrorKind::Closed, "receive").source(e))?;
        let mut session = self.session().await?;
        let verdict = session.act(event).await;
        if session.is_sound() {
            self.keep(session, matches!(verdict, Ok(Verdict::Done)));
        }
        verdict
    }

    /// Keeps a session for the next event. If it holds a transaction open, it lets go of it when no event comes.
    fn keep(&self, mut session: Session, open: bool) {
        session.open = open.then(Instant::now);
        session.stay = self.stays.fetch_add(1, Ordering::Relaxed);
        let stay = session.stay;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        if open {
            let idle = Arc::clone(&self.idle);
            tokio::spawn(async move {
                tokio::time::sleep(OPEN_MAX).await; // waits: for the next event, which tells nobody here
                let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(session) = idle.iter_mut().find(|session| session.stay == stay) {
                    session.let_go();
                }
            });
        }
    }
}

/// What all sessions of a receiver share.
pub(crate) struct Handling {
    handler: HandlerName,
    pub(crate) handle: Box<Handle>,
    inbox: Inbox,
    accept: Arc<str>,
    deadline: Duration,
}

impl Handling {
    /// A call of ours to the database, within the deadline.
    pub(crate) async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answer) => answer.during("receive"),
            Err(_) => Err(self.late()),
        }
    }

    fn late(&self) -> Error {
        Error::new(ErrorKind::Timeout, "receive").message(format!(
            "the database did not answer within {:?}; the event is delivered again",
            self.deadline
        ))
    }

    /// Writes the marker. What the engine is to hear if the handler must not act.
    pub(crate) async fn accept(
        &self,
        tx: &Transaction<'_>,
        event: &Event,
    ) -> Result<Option<Verdict>> {
        let accepted = self.inbox.accept_by(&self.accept, tx, event, &self.handler);
        let accepted = match tokio::time::timeout(self.deadline, accepted).await {
            Ok(accepted) => accepted,
            Err(_) => Err(self.late()),
        };
        match accepted {
            Ok(Accepted::FirstTime) => Ok(None),
            Ok(Accepted::Duplicate) => Ok(Some(Verdict::Duplicate)),
            Err(error) if error.retry_class() == RetryClass::Permanent => {
                Ok(Some(Verdict::Reject(Fault::new(error.kind(), error.to_string()))))
            }
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Transactional {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transactional")
            .field("handler", &self.handling.handler)
            .field("database", &self.address)
            .finish_non_exhaustive()
    }
}

impl Receiver for Transactional {
    fn handler(&self) -> &HandlerName {
        &self.handling.handler
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        _: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(self.receive_once(event))
    }
}

/// What the database cannot do now is nobody's fault; everything else counts against the event, a statement
/// of the handler's that is wrong as well.
pub(crate) fn failed(error: HandlerError) -> Result<Verdict> {
    let error = match error.downcast::<tokio_postgres::Error>() {
        Ok(error) => {
            let told = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
            let error = of_postgres("receive", *error);
            return match error.kind() {
                ErrorKind::DiskFull | ErrorKind::ReadOnly => Err(error),
                _ if error.retry_class() == RetryClass::Transient => Err(error),
                kind if error.retry_class() == RetryClass::Permanent => Ok(retry(kind, told)),
                _ => Ok(retry(ErrorKind::Internal, told)),
            };
        }
        Err(error) => error,
    };
    match error.downcast::<Error>() {
        Ok(error) if error.kind() == ErrorKind::Busy => Err(*error),
        Ok(error) => Ok(retry(error.kind(), format!("{error:?}"))),
        Err(other) => Ok(retry(ErrorKind::Internal, other.to_string())),
    }
}

pub(crate) fn retry(kind: ErrorKind, detail: String) -> Verdict {
    Verdict::Retry { after: None, fault: Fault::new(kind, detail) }
}

/// A handler that panicked is tried again, and that counts.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Verdict {
    let told = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word");
    retry(ErrorKind::Internal, format!("the handler panicked: {told}"))
}
