//! The receiver between the engine and the endpoint: pass the gate, claim, call, complete.
//!
//! Invariants: nothing is claimed while the endpoint is known to be away; nothing is called without a
//! claim; what the endpoint did is recorded only under the claim that it was called with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, Fault, HandlerName, InboxStore, Result,
};
use postrider_inbox::{Context, Leased, LeasedHandler, Outcome};
use tokio::sync::watch;

use super::endpoint::{Answer, Endpoint};
use super::gate::{Gate, Permit};
use super::judge::{Judgement, Reply};
use super::request::{AsItIs, Call, Writer};
use super::tries::Taken;

/// How long an event waits here for an endpoint that is away, before it goes back to the broker for
/// whoever has a better one. Default 60 s: endpoints restart faster, and other sidecars of the group
/// may be fine.
pub(crate) const GATE_WAIT_MAX: Duration = Duration::from_secs(60);

/// How soon an event that waited so long comes again.
const RETURN_DELAY: Duration = Duration::from_secs(1);

/// Hands events to the endpoint.
pub(crate) struct Sidecar {
    pub(crate) writer: Writer,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) store: Arc<dyn InboxStore>,
    pub(crate) lease: Duration,
    /// Counted attempts, of which the last one's failure is a dead letter.
    pub(crate) attempts_max: u32,
    /// True from when it stops: what waits at the gate goes back at once.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) tally: Arc<Tally>,
}

/// What the engine cannot count, because it sees verdicts and no answers.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Calls that failed and counted against no event.
    pub(crate) uncounted: AtomicU64,
    /// Claims that were lost while the endpoint worked.
    pub(crate) lost: AtomicU64,
}

/// How a call ended.
#[derive(Debug)]
enum Ended {
    /// With this answer, or the lack of one.
    Answered(Answer, Taken),
    /// It was aborted: the claim was lost, or the sidecar stops.
    Aborted,
}

/// One call, as the inbox runs it.
struct Caller {
    endpoint: Arc<Endpoint>,
    gate: Arc<Gate>,
    call: Call,
    ended: Arc<Mutex<Option<Ended>>>,
}

impl Caller {
    fn end(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }
}

impl LeasedHandler for Caller {
    fn act(&self, _: Arc<Event>, context: Context) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            let sent = self.gate.sent();
            let answer = tokio::select! {
                biased;
                () = context.cancelled() => {
                    self.end(Ended::Aborted);
                    return Err(Error::new(ErrorKind::Fenced, "call endpoint")
                        .message("the call was aborted: the claim was lost, or the sidecar stops"));
                }
                answer = self.endpoint.call(&self.call.headers, self.call.body.clone()) => answer,
            };
            let outcome = match answer.reply {
                Reply::Status { status: 200..=299, .. } => Outcome::Ack(answer.body.clone()),
                // Lets the claim go; whose failure it is, is judged afterwards.
                _ => Outcome::retry(&answer.said),
            };
            self.end(Ended::Answered(answer, sent));
            Ok(outcome)
        })
    }
}

impl Receiver for Sidecar {
    fn handler(&self) -> &HandlerName {
        &self.writer.handler
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(self.hand_over(event, delivery))
    }
}

impl Sidecar {
    async fn hand_over(&self, event: &Arc<Event>, delivery: &Delivery) -> Result<Verdict> {
        let call = match self.writer.write(event, delivery) {
            Ok(call) => call,
            Err(error) => {
                let fault = Fault::new(error.kind(), error.to_string());
                tracing::error!(event = %event.id, %fault, "dead letter: it cannot be written");
                return Ok(Verdict::Reject(fault));
            }
        };
        let permit = tokio::select! {
            biased;
            () = self.stops() => return Ok(Verdict::Busy { retry_in: Duration::ZERO }),
            passed = tokio::time::timeout(GATE_WAIT_MAX, self.gate.pass()) => match passed {
                Ok(permit) => permit,
                Err(_) => return Ok(Verdict::Busy { retry_in: RETURN_DELAY }),
            },
        };
        let ended = Arc::default();
        let caller = Caller {
            endpoint: Arc::clone(&self.endpoint),
            gate: Arc::clone(&self.gate),
            call,
            ended: Arc::clone(&ended),
        };
        let name = self.writer.handler.clone();
        let mut leased = Leased::builder(name, Arc::clone(&self.store), caller).lease(self.lease);
        if event.encoding.is_some() {
            leased = leased.codec(Arc::new(AsItIs(Arc::clone(event))));
        }
        let verdict = leased.build()?.receive(event, delivery).await;
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        match ended {
            None => verdict,
            Some(Ended::Aborted) => {
                verdict?;
                Ok(self.released(event, delivery))
            }
            Some(Ended::Answered(answer, sent)) => {
                self.conclude(event, delivery, verdict, (answer, sent), permit)
            }
        }
    }

    /// Returns when it stops.
    async fn stops(&self) {
        let mut stopping = self.stopping.clone();
        // An error says that nobody can stop it any more.
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// An answer came; what it means for the event depends on what else the endpoint took.
    fn conclude(
        &self,
        event: &Arc<Event>,
        delivery: &Delivery,
        verdict: Result<Verdict>,
        (answer, sent): (Answer, Taken),
        permit: Permit,
    ) -> Result<Verdict> {
        let ruling = permit.learn(event.id, sent, answer.reply, &answer.said);
        self.log(event, delivery, &answer, &ruling.judgement);
        // The inbox did not answer: whatever the endpoint did is asked for again, by the same key.
        let verdict = verdict?;
        Ok(match ruling.judgement {
            Judgement::Done => match verdict {
                Verdict::Retry { fault, .. } if fault.kind == ErrorKind::Fenced => {
                    self.released(event, delivery)
                }
                verdict => verdict,
            },
            Judgement::Counts { after } => {
                let fault = Fault::new(kind(answer.reply), answer.said);
                Verdict::Retry { after, fault }
            }
            Judgement::Waits { .. } => {
                self.tally.uncounted.fetch_add(1, Ordering::Relaxed);
                Verdict::Busy { retry_in: ruling.pause }
            }
            Judgement::Refused => Verdict::Reject(Fault::new(ErrorKind::Rejected, answer.said)),
        })
    }

    /// One line for the log.
    fn log(&self, event: &Event, delivery: &Delivery, answer: &Answer, judgement: &Judgement) {
        let status = match answer.reply {
            Reply::Status { status, .. } => Some(status),
            _ => None,
        };
        let (id, key, handler) = (event.id, event.key(), &self.writer.handler);
        let (attempt, said) = (delivery.count, answer.said.as_str());
        let dead = match judgement {
            Judgement::Done => {
                tracing::debug!(event = %id, %key, %handler, attempt, status, "handled");
                return;
            }
            Judgement::Refused => true,
            Judgement::Counts { .. } => attempt >= self.attempts_max,
            Judgement::Waits { .. } => false,
        };
        if dead {
            tracing::error!(event = %id, %key, %handler, attempt, status, said, "dead letter");
        } else {
            tracing::warn!(event = %id, %key, %handler, attempt, status, said, "not handled");
        }
    }

    /// Nothing was completed: somebody else has the claim, or will have it.
    fn released(&self, event: &Event, delivery: &Delivery) -> Verdict {
        if !*self.stopping.borrow() {
            self.tally.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                event = %event.id,
                handler = %self.writer.handler,
                attempt = delivery.count,
                "the claim was lost while the endpoint worked; nothing was completed"
            );
        }
        Verdict::Busy { retry_in: Duration::ZERO }
    }
}

/// What kind of failure a dead letter names.
fn kind(reply: Reply) -> ErrorKind {
    match reply {
        Reply::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Unavailable,
    }
}
