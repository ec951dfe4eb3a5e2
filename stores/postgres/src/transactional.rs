//! A handler whose whole effect is in this database: marker, change, and new events in one
//! transaction.
//!
//! Invariant: the marker commits with the change, or neither does. A handler that fails, refuses,
//! panics, or is dropped leaves nothing behind.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use postrider_core::inbox::{Accepted, Begun, DELIVERIES_MAX, Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, Fault, HandlerName, Result, RetryClass,
};
use tokio::sync::{Semaphore, watch};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Statement, Transaction};

use crate::accept::Marker;
use crate::connect::Address;
use crate::connection::Connection;
use crate::error::{During, of_postgres};
use crate::group::{GROUP_MAX, Groups};
use crate::leaving::{AtWork, Permit};
use crate::marker::Inbox;
use crate::session::{handed_over, is_of_another_session};
use crate::sessions::Sessions;
use crate::sql::{Sql, Texts, sql};
use crate::store::Options;

const COMMIT: Sql = sql!("inbox/commit");

/// How long an event waits whose handler found an outbox over its [watermark](crate::Outbox::watermark), and is not
/// counted: a relay takes away some ten thousand in that time, and a handler that finds nothing gone costs little.
const OVER_WATERMARK: Duration = Duration::from_secs(5);

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
/// | says `Done` after a statement failed in its transaction | roll back | `Retry`, which counts |
/// | says `Retry`, `Reject`, or `Busy` | roll back | the same |
/// | fails, or panics | roll back | `Retry`, which counts |
/// | fails because the database was busy, away, full, or read-only | roll back | an error, which does not count |
/// | fails because the outbox is over its watermark | roll back | `Busy`, which does not count |
/// | is not called, as it was done before | nothing | `Duplicate` |
///
/// So many transactions are in work at once as [`Options::transactions_max`] says; each has a session of
/// its own. The transaction is as the database's `default_transaction_isolation` says; every level is
/// right, and a serialization failure is `Busy`. Do nothing in it that waits for a network: it holds its
/// event, and after 60 s without a statement the server ends it. Do not end it: a `rollback` with a `begin` behind it
/// cannot be told from the transaction that holds the marker, and one that is prepared (`prepare transaction`) keeps the
/// marker locked until somebody ends it.
///
/// # In groups
/// Above a [`group_max`](Options::group_max) of 1, deliveries that wait for a session at the same moment share one
/// transaction: one `BEGIN`, the markers of all in one statement, the closure for one after the other, one `COMMIT`,
/// and only then their verdicts. Nobody waits for company. If anything but `Done` comes of one of them, or any statement
/// fails, all of it is rolled back and each is done again in a transaction of its own, with the verdicts above; groups
/// are smaller for a while then, and what the broker counts as delivered again is always done alone. So, with groups:
///
/// - what the closure does may be done, rolled back because of a neighbour, and done again. It must have no effect outside
///   of the transaction, which it must not have anyway;
/// - rows that it changes are locked until the last of its group is done. Where many events change the same few rows, leave it at 1: groups
///   wait for each other there, and become small;
/// - it is called by a task of the group's: in the `tracing` span of its delivery, without its task-locals;
/// - it must not end the transaction. That fails the group, every time;
/// - what one call sets for its transaction, the next ones find: `set local` of a search path, a role, a tenant, a time limit; temporary tables;
///   savepoints; and one `now()` for all. Leave it at 1 if your calls set such things, or depend on them. Only
///   `synchronous_commit` is put back before the commit where a call made it weaker;
/// - give a handler more time at the engine than 5 s and its own together (`handler_time_max`): who waits for a neighbour that hangs has
///   not begun;
/// - a group that takes longer than 5 s, or waits longer than 100 ms for a lock (where no `lock_timeout` is set), is given up, and
///   each is done alone;
/// - let more deliveries be in work at the engine (its `in_flight_max`) than there are transactions, or there is nothing
///   to group: `group_max` times [`transactions_max`](Options::transactions_max), twice.
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
    pub(crate) work: Arc<Work>,
    /// Where several may share a transaction.
    groups: Option<Groups>,
    deliveries_max: u32,
}

/// What it takes to act on a delivery.
pub(crate) struct Work {
    pub(crate) handler: HandlerName,
    pub(crate) handle: Arc<Handle>,
    pub(crate) inbox: Inbox,
    /// Where connections come from. They are the handler's own: nothing is set on them that a statement would feel.
    pub(crate) sessions: Sessions,
    pub(crate) deadline: Duration,
    pub(crate) in_work: Arc<Semaphore>,
    pub(crate) idle: Mutex<Vec<Connection>>,
    pub(crate) begun: Begun,
    /// Claims and sessions that are being let go by nobody's call.
    pub(crate) leaving: watch::Sender<usize>,
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
        if !(1..=GROUP_MAX).contains(&options.group_max) {
            return Err(Error::new(ErrorKind::Config, "receive").message(format!(
                "group_max is {}, and may be 1 to {GROUP_MAX}",
                options.group_max
            )));
        }
        let sessions = Sessions::new(
            Address::parse(url)?,
            Arc::new(Texts::new(options.names.clone())),
            options.pooler,
            options.statement_deadline,
            options.transactions_max,
        );
        let work = Arc::new(Work {
            handler,
            handle: Arc::new(handle),
            inbox: Inbox::named(&options.names),
            sessions,
            deadline: options.statement_deadline,
            in_work: Arc::new(Semaphore::new(options.transactions_max.max(1))),
            idle: Mutex::default(),
            begun: Begun::default(),
            leaving: watch::Sender::new(0),
        });
        let groups = (options.group_max > 1).then(|| Groups::new(&work, options.group_max));
        Ok(Transactional { work, groups, deliveries_max: DELIVERIES_MAX })
    }

    /// Sets after how many tries without an end a delivery is refused without calling the closure; [`DELIVERIES_MAX`] by
    /// default. From [half](postrider_core::inbox::usual_deliveries) of them on, and where an earlier process may have begun it, tries are counted in the inbox, which costs two more round trips each, and a
    /// handler whose session or statement is ended has failed. Until then a process counts for itself.
    #[must_use]
    pub fn deliveries_max(mut self, deliveries_max: u32) -> Transactional {
        self.deliveries_max = deliveries_max;
        self
    }
}

impl Work {
    /// A call of ours to the database, within the deadline.
    pub(crate) async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answer) => answer.during("receive"),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "receive").message(format!(
                "the database did not answer within {:?}; the event is delivered again",
                self.deadline
            ))),
        }
    }

    /// Acts on one event in a transaction of its own. What has not ended on the way out of here is given up, and the server
    /// rolls back.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        permit: &Permit,
        event: &Event,
    ) -> Result<Verdict> {
        let mut at_work = AtWork::new(self, permit, self.connect().await?);
        let (client, accept, may_be_cancelled) = at_work.parts();
        let tx = self.within(client.transaction()).await?;
        let verdict = match self.act(&tx, accept, event).await {
            Ok(Verdict::Done) => {
                *may_be_cancelled = false;
                self.commit(tx).await?
            }
            other => {
                // The handler's error says more than one of the way back.
                if self.within(tx.rollback()).await.is_err() {
                    return other;
                }
                *may_be_cancelled = false;
                other?
            }
        };
        at_work.ended();
        Ok(verdict)
    }

    /// Whether the event is here for the first time, in one round trip.
    async fn accept(
        &self,
        tx: &Transaction<'_>,
        prepared: Option<&Statement>,
        event: &Event,
    ) -> Result<Accepted> {
        let marker = Marker::of(event, &self.handler)?;
        let values = marker.values();
        let row = match prepared {
            Some(prepared) => tx.query_one(prepared, &values.map(|(value, _)| value)).await,
            None => tx.query_typed_one(self.inbox.receive(), &values).await,
        };
        let row = row.map_err(|error| match prepared {
            Some(_) if is_of_another_session(&error) => {
                handed_over(self.sessions.way(), "accept", error)
            }
            _ => of_postgres("accept", error),
        })?;
        Inbox::accepted(row.get("answer"), event, &self.handler)
    }

    async fn act(
        &self,
        tx: &Transaction<'_>,
        prepared: Option<&Statement>,
        event: &Event,
    ) -> Result<Verdict> {
        match self.accept(tx, prepared, event).await {
            Ok(Accepted::FirstTime) => {}
            Ok(Accepted::Duplicate) => return Ok(Verdict::Duplicate),
            Err(error) if error.kind().blames_event() => {
                return Ok(Verdict::Reject(Fault::new(error.kind(), error.to_string())));
            }
            Err(error) => return Err(error),
        }
        let answer = AssertUnwindSafe(async { (self.handle)(tx, event).await }).catch_unwind();
        match answer.await {
            Ok(Ok(verdict)) => Ok(verdict),
            Ok(Err(error)) => failed(error),
            Err(panic) => Ok(retry(
                ErrorKind::Internal,
                format!("the handler panicked: {}", panic_text(&*panic)),
            )),
        }
    }

    /// Commits what a handler did, if its transaction still stands.
    async fn commit(&self, tx: Transaction<'_>) -> Result<Verdict> {
        let committed = self.within(async {
            match tx.batch_execute(COMMIT.text).await {
                Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {
                    Ok(false)
                }
                answer => answer.map(|()| true),
            }
        });
        if committed.await? {
            ended(tx);
            return Ok(Verdict::Done);
        }
        self.within(tx.rollback()).await?;
        let told = "a statement failed in the transaction, and the handler went on: nothing of it \
                    was committed";
        Ok(retry(ErrorKind::Internal, told.to_owned()))
    }
}

impl std::fmt::Debug for Transactional {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transactional")
            .field("handler", &self.work.handler)
            .field("database", self.work.sessions.address())
            .finish_non_exhaustive()
    }
}

impl Receiver for Transactional {
    fn handler(&self) -> &HandlerName {
        &self.work.handler
    }

    fn counts_tries(&self) -> bool {
        true
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.work.at_rest())
    }

    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.work.buried(delivery, self.deliveries_max))
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async move {
            // What failed before, or has no key, would only take others along.
            let is_single = delivery.count > 1 || delivery.begun_before || event.source.is_empty();
            match &self.groups {
                Some(groups) if !is_single => groups.receive(event).await,
                _ if !delivery.is_suspicious(self.deliveries_max) => {
                    self.work.receive(&self.work.permit().await?, event).await
                }
                _ => self.work.receive_again(event, delivery, self.deliveries_max).await,
            }
        })
    }
}

/// Lets go of a transaction that a statement of ours has ended. Dropped, the driver would end it once more, which takes
/// a message to the server and back; it holds nothing else.
pub(crate) fn ended(tx: Transaction<'_>) {
    std::mem::forget(tx);
}

/// What the database cannot do now is nobody's fault; everything else counts against the event, a statement
/// of the handler's that is wrong as well.
fn failed(error: HandlerError) -> Result<Verdict> {
    let error = match error.downcast::<tokio_postgres::Error>() {
        Ok(error) => {
            let told = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
            let error = of_postgres("receive", *error);
            return match error.kind() {
                kind if kind.excuses_event() => Err(error),
                kind if error.retry_class() == RetryClass::Permanent => Ok(retry(kind, told)),
                _ => Ok(retry(ErrorKind::Internal, told)),
            };
        }
        Err(error) => error,
    };
    match error.downcast::<Error>() {
        Ok(error) => match error.kind() {
            // An outbox that is over its watermark takes the event later.
            ErrorKind::Backpressure => Ok(Verdict::Busy { retry_in: OVER_WATERMARK }),
            kind if kind.excuses_event() => Err(*error),
            kind => Ok(retry(kind, format!("{error:?}"))),
        },
        Err(other) => Ok(retry(ErrorKind::Internal, other.to_string())),
    }
}

fn retry(kind: ErrorKind, detail: String) -> Verdict {
    Verdict::Retry { after: None, fault: Fault::new(kind, detail), tries: None }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}
