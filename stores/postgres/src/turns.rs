//! A session of handlers that act in this database: one event after the other, a transaction each.
//!
//! A commit begins the next transaction in the same round trip, so an event that follows soon costs as
//! many as one without an inbox. What is open between two events has no snapshot and no lock, and is
//! given up after [`OPEN_MAX`].
//!
//! Invariant: the marker commits with the change, or neither does. A handler that fails, refuses, panics, or is
//! dropped leaves nothing behind; whoever drops a session ends its connection, and the server rolls back.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use postrider_core::inbox::Verdict;
use postrider_core::{Error, ErrorKind, Event, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Transaction};

use crate::sql::{Sql, sql};
use crate::transactional::{Handling, failed, panicked, retry};

const COMMIT: Sql = sql!("inbox/commit");
const NEXT: Sql = sql!("inbox/next");

/// What the server says of a commit where there is nothing to commit any more.
const ENDED: [SqlState; 2] =
    [SqlState::IN_FAILED_SQL_TRANSACTION, SqlState::NO_ACTIVE_SQL_TRANSACTION];

/// How long a transaction is held open for the next event: longer than a busy consumer takes to bring it, and
/// too short for anybody who looks for transactions that are idle.
pub(crate) const OPEN_MAX: Duration = Duration::from_millis(5);

/// What a session is asked for.
enum Turn {
    /// To act on an event, and to tell what came of it.
    Act(Arc<Event>, oneshot::Sender<Result<Verdict>>),
    /// To give up the transaction that it holds open.
    LetGo,
}

/// A session, as its user holds it. Its work goes on only while it is waited for, and in the task of whoever
/// waits: a handler finds there what it would find without us.
pub(crate) struct Session {
    turns: mpsc::Sender<Turn>,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
    wire: JoinHandle<()>,
    /// Tells one stay among the idle ones from another.
    pub(crate) stay: u64,
    /// Since when a transaction is open for the next event.
    pub(crate) open: Option<Instant>,
}

impl Session {
    /// A session on a connection, whose own work is the other.
    pub(crate) fn new(handling: Arc<Handling>, client: Client, wire: JoinHandle<()>) -> Session {
        // One turn at a time: the next is asked for when the last is told.
        let (turns, asked) = mpsc::channel(1);
        let work = Box::pin(async move { handling.serve(client, asked).await });
        Session { turns, work, ended: false, wire, stay: 0, open: None }
    }

    /// Whether another event may be brought here.
    pub(crate) fn is_sound(&self) -> bool {
        !self.ended && !self.wire.is_finished()
    }

    /// Has the event acted on.
    ///
    /// # Errors
    /// What the database cannot do now.
    pub(crate) async fn act(&mut self, event: &Arc<Event>) -> Result<Verdict> {
        let closed = || Error::new(ErrorKind::Unavailable, "receive").message("the session ended");
        // Whoever was stopped for a while comes before its timer.
        if self.open.is_some_and(|since| since.elapsed() > OPEN_MAX) {
            self.let_go();
        }
        self.open = None;
        let (answer, mut told) = oneshot::channel();
        let asked = self.turns.try_send(Turn::Act(Arc::clone(event), answer));
        asked.map_err(|_| closed())?;
        std::future::poll_fn(|context| {
            if !self.ended {
                self.ended = self.work.as_mut().poll(context).is_ready();
            }
            match told.poll_unpin(context) {
                Poll::Ready(answer) => Poll::Ready(answer.unwrap_or_else(|_| Err(closed()))),
                // It may be told, and only this task's turn be over.
                Poll::Pending if self.ended => {
                    Poll::Ready(told.try_recv().unwrap_or_else(|_| Err(closed())))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Gives up what is held open. The server is told so, and nobody waits for it.
    pub(crate) fn let_go(&mut self) {
        let was_open = self.open.take().is_some();
        if was_open && !self.ended && self.turns.try_send(Turn::LetGo).is_ok() {
            self.ended = (&mut self.work).now_or_never().is_some();
        }
    }
}

impl Handling {
    /// Takes turns until nobody asks for more, or the session is of no use any more.
    async fn serve(&self, mut client: Client, mut turns: mpsc::Receiver<Turn>) {
        while let Some(turn) = turns.recv().await {
            // Nothing is open here.
            let Turn::Act(event, answer) = turn else { continue };
            let tx = match self.within(client.transaction()).await {
                Ok(tx) => tx,
                Err(error) => return tell(answer, Err(error)),
            };
            if !self.serve_open(tx, event, answer, &mut turns).await {
                return;
            }
        }
    }

    /// Acts on an event in a transaction, and on those that follow it in the ones that its commits begin. Answers
    /// whether the session can go on without it.
    async fn serve_open(
        &self,
        tx: Transaction<'_>,
        mut event: Arc<Event>,
        mut answer: oneshot::Sender<Result<Verdict>>,
        turns: &mut mpsc::Receiver<Turn>,
    ) -> bool {
        loop {
            let verdict = match self.act(&tx, &event).await {
                Ok(Verdict::Done) => match self.commit(&tx).await {
                    Ok(verdict) => verdict,
                    Err(error) => {
                        tell(answer, Err(error));
                        return false;
                    }
                },
                Ok(verdict) => Some(verdict),
                // The handler's error says more than one of the way back.
                Err(error) => {
                    _ = self.within(tx.rollback()).await;
                    tell(answer, Err(error));
                    return false;
                }
            };
            if let Some(verdict) = verdict {
                let back = self.within(tx.rollback()).await;
                tell(answer, Ok(verdict));
                return back.is_ok();
            }
            tell(answer, Ok(Verdict::Done));
            match turns.recv().await {
                Some(Turn::Act(next, told)) => (event, answer) = (next, told),
                // What is open is rolled back as it is dropped.
                Some(Turn::LetGo) => return true,
                None => return false,
            }
        }
    }

    /// Accepts the event, and calls the handler if it is the first time.
    async fn act(&self, tx: &Transaction<'_>, event: &Event) -> Result<Verdict> {
        if let Some(verdict) = self.accept(tx, event).await? {
            return Ok(verdict);
        }
        let answer = AssertUnwindSafe(async { (self.handle)(tx, event).await }).catch_unwind();
        match answer.await {
            Ok(Ok(verdict)) => Ok(verdict),
            Ok(Err(error)) => failed(error),
            Err(panic) => Ok(panicked(&*panic)),
        }
    }

    /// Commits what a handler did and begins the next transaction, if the handler's still stands. Otherwise what
    /// the engine is to hear after it is rolled back.
    async fn commit(&self, tx: &Transaction<'_>) -> Result<Option<Verdict>> {
        let both = async {
            // Sent together, in this order: one round trip.
            let (done, next) =
                tokio::join!(tx.batch_execute(COMMIT.text), tx.batch_execute(NEXT.text));
            match done {
                Err(error) if ENDED.iter().any(|code| error.code() == Some(code)) => Ok(false),
                Err(error) => Err(error),
                // If the next one was not begun the session is at its end, and the event is known when it comes again.
                Ok(()) => next.map(|()| true),
            }
        };
        if self.within(both).await? {
            return Ok(None);
        }
        let told = "the transaction had ended, by a statement that failed or by a COMMIT or ROLLBACK of the \
                    handler's own, and the handler went on: its marker was not committed with it";
        Ok(Some(retry(ErrorKind::Internal, told.to_owned())))
    }
}

/// Tells the engine, unless it has given up waiting.
fn tell(answer: oneshot::Sender<Result<Verdict>>, verdict: Result<Verdict>) {
    _ = answer.send(verdict);
}
