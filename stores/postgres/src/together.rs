//! Several deliveries in one transaction.
//!
//! Invariants: the markers commit with the changes of all, or none of both does; only [`Work::together`] commits, and
//! a verdict is given only after that. Whatever is not as it should be ends the group and nothing else: each of it
//! is then done alone, which finds out what is wrong with whom.

use std::collections::HashSet;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use postrider_core::inbox::{Accepted, Verdict};
use postrider_core::{Error, ErrorKind, Event, HandlerName, Result};
use tokio::sync::oneshot;
use tokio_postgres::Transaction;
use tracing::{Instrument, Span};

use crate::Inbox;
use crate::enqueue::param;
use crate::error::{During, of_postgres};
use crate::group::{Ended, Seat, Told};
use crate::sql::{Sql, sql};
use crate::transactional::{Work, ended};
use crate::typed::Param;

const SEAL: Sql = sql!("inbox/seal");
const SEALED: Sql = sql!("inbox/sealed");
const UNSEAL: Sql = sql!("inbox/unseal");

/// How long the handlers of a group may take together. Rows are locked and neighbours wait meanwhile; a handler that
/// needs longer gets it alone.
const GROUP_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a group's way back may take before its statement is cancelled.
const ROLLBACK_MAX: Duration = Duration::from_secs(1);

/// What came of the handlers.
enum Acted {
    /// They took too long, or one of those who wait has gone away.
    Stopped,
    /// Not all of them may be committed.
    Refused,
    Done(Vec<Verdict>),
}

impl Work {
    /// Acts on the events of a group. A client that is dropped on the way out of here loses its connection, and
    /// the server rolls back.
    pub(crate) async fn together(&self, group: &mut [Seat]) -> Ended {
        let events: Vec<Arc<Event>> = group.iter().map(|seat| Arc::clone(&seat.event)).collect();
        let spans: Vec<Span> = group.iter().map(|seat| seat.span.clone()).collect();
        let mut connection = match self.connect().await {
            Ok(connection) => connection,
            Err(error) => return Ended::Failed(error),
        };
        // A session that was lost while nobody used it says nothing of the next.
        let Ok(tx) = self.within(connection.client.transaction()).await else {
            return Ended::Apart;
        };
        let tells = group.iter_mut().map(|seat| &mut seat.tell).collect();
        let acted = tokio::select! {
            biased;
            () = left(tells) => Acted::Stopped,
            acted = tokio::time::timeout(
                GROUP_TIME_MAX,
                self.act_all(&tx, &events, &spans),
            ) => acted.map_or(Acted::Stopped, |verdicts| verdicts.map_or(Acted::Refused, Acted::Done)),
        };
        let kept = match acted {
            Acted::Stopped => None,
            Acted::Refused => Some(None),
            Acted::Done(verdicts) => match self.unseal(&tx).await {
                Ok(committed) => Some(committed.then_some(verdicts)),
                // Left to its end, and not cancelled: what waits for a standby would become visible without having reached it.
                Err(error) => return Ended::Unknown(error),
            },
        };
        let Some(Some(verdicts)) = kept else {
            // A handler that hangs, or gave up by itself, may have left a statement that does: it would hold the markers
            // that each alone waits for.
            let is_back = match kept {
                Some(_) => {
                    let back = tokio::time::timeout(ROLLBACK_MAX, tx.rollback()).await;
                    back.is_ok_and(|answer| answer.is_ok())
                }
                None => {
                    drop(tx);
                    false
                }
            };
            match is_back {
                true => self.keep(connection),
                false => self.give_up(connection).await,
            }
            return Ended::Apart;
        };
        ended(tx);
        self.keep(connection);
        Ended::Committed(verdicts)
    }

    /// A verdict for each, of those that may stand if the transaction is committed; nothing, if it may not be.
    async fn act_all(
        &self,
        tx: &Transaction<'_>,
        events: &[Arc<Event>],
        spans: &[Span],
    ) -> Option<Vec<Verdict>> {
        // Sent together, in this order: one round trip.
        let begun = self.within(tx.batch_execute(SEAL.text));
        let accepted = accept_many(&self.inbox, tx, events, &self.handler);
        let (begun, accepted) = tokio::join!(begun, accepted);
        begun.ok()?;
        let mut verdicts = Vec::with_capacity(events.len());
        let mut called = false;
        for ((event, span), accepted) in events.iter().zip(spans).zip(accepted.ok()?) {
            if accepted == Accepted::Duplicate {
                verdicts.push(Verdict::Duplicate);
                continue;
            }
            if called {
                // Before anything is done for the next outside of the transaction, or in vain.
                self.within(tx.batch_execute(SEALED.text)).await.ok()?;
            }
            called = true;
            let answer = AssertUnwindSafe(async { (self.handle)(tx, event).await }).catch_unwind();
            match answer.instrument(span.clone()).await {
                Ok(Ok(Verdict::Done)) => verdicts.push(Verdict::Done),
                _ => return None,
            }
        }
        Some(verdicts)
    }

    /// Commits, and says whether it did; an error, if nobody can say.
    async fn unseal(&self, tx: &Transaction<'_>) -> Result<bool> {
        match tokio::time::timeout(self.deadline, tx.batch_execute(UNSEAL.text)).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(error)) if error.as_db_error().is_some() => Ok(false),
            Ok(Err(error)) => Err(of_postgres("receive", error)),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "receive").message(format!(
                "the database did not answer a commit within {:?}; the event is delivered again, and \
                 its marker says whether it was done",
                self.deadline
            ))),
        }
    }
}

/// Whether each is here for the first time, in one round trip where nothing is in the way.
async fn accept_many(
    inbox: &Inbox,
    tx: &Transaction<'_>,
    events: &[Arc<Event>],
    handler: &HandlerName,
) -> Result<Vec<Accepted>> {
    let staged = inbox.stage_many(events, handler)?;
    let values: Vec<Param<'_>> = staged.values.iter().map(param).collect();
    let rows = tx.query_typed(&staged.statement, &values).await.during("accept")?;
    let texts = |column| rows.iter().map(move |row| row.get::<_, String>(column));
    let mut first: HashSet<(String, String)> = texts(0).zip(texts(1)).collect();
    let answers = events.iter().map(|event| {
        // Taken out, so that the same id once more is not the first.
        let is_first = first.remove(&(event.source.to_string(), event.id.to_string()));
        async move {
            match is_first {
                true => Ok(Accepted::FirstTime),
                false => inbox.accept(tx, event, handler).await,
            }
        }
    });
    // One after the other in the server; whoever it is that is refused, all are.
    try_join_all(answers).await
}

/// Returns when one of them has gone away: the engine has stopped its handler, and nothing may be left of it.
async fn left(mut tells: Vec<&mut oneshot::Sender<Told>>) {
    poll_fn(|context| {
        let gone = tells.iter_mut().any(|tell| tell.poll_closed(context).is_ready());
        if gone { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
