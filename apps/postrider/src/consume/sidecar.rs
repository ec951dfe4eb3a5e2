//! The receiver between the engine and the endpoint: pass the gate, claim, call, complete.
//!
//! Invariants: nothing is claimed while the endpoint is known to be away; nothing is called without a
//! claim; what the endpoint did is recorded only under the claim that it was called with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict, begin_anew};
use postrider_core::{
    BoxFuture, Delivery, ErrorKind, Event, Fault, HandlerName, InboxStore, Result,
};
use postrider_inbox::{Claims, Context, Leased, LeasedHandler, Outcome};
use tokio::sync::watch;

use super::endpoint::{Answer, Endpoint};
use super::gate::{Gate, Permit, Ruling};
use super::judge::{Judgement, Reply};
use super::request::{AsItIs, Call, Writer};

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
    /// Tries that may have no end, because the sidecar dies of them.
    pub(crate) deliveries_max: u32,
    /// What every call has a part of.
    pub(crate) claims: Arc<Claims>,
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
    /// With this answer, or the lack of one, and what that means.
    Answered(Answer, Ruling),
    /// It was aborted: the claim was lost, or the sidecar stops.
    Aborted,
}

/// One call, as the inbox runs it.
struct Caller {
    endpoint: Arc<Endpoint>,
    gate: Arc<Gate>,
    /// Taken when it is answered.
    permit: Mutex<Option<Permit>>,
    call: Call,
    ended: Arc<Mutex<Option<Ended>>>,
}

impl Caller {
    fn end(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }
}

impl LeasedHandler for Caller {
    fn act(&self, event: Arc<Event>, context: Context) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            let sent = self.gate.sent();
            let answer = tokio::select! {
                biased;
                () = context.cancelled() => {
                    // Nobody knows what the endpoint made of it; that is no failure of the event's.
                    self.end(Ended::Aborted);
                    return Ok(Outcome::Later { after: Duration::ZERO });
                }
                answer = self.endpoint.call(&self.call.headers, self.call.body.clone()) => answer,
            };
            // What it means for the event depends on what else the endpoint took.
            let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ruling = match permit {
                Some(permit) => permit.learn(event.id, sent, answer.reply, &answer.said),
                None => return Ok(Outcome::retry("invariant: one call for each permit")),
            };
            let outcome = match ruling.judgement {
                Judgement::Done => Outcome::Ack(answer.body.clone()),
                Judgement::Counts { after } => {
                    Outcome::RetryAfter { after, reason: answer.said.clone() }
                }
                Judgement::Waits { .. } => Outcome::Later { after: ruling.pause },
                Judgement::Refused => Outcome::Reject(answer.said.clone()),
            };
            self.end(Ended::Answered(answer, ruling));
            Ok(outcome)
        })
    }
}

impl Receiver for Sidecar {
    fn handler(&self) -> &HandlerName {
        &self.writer.handler
    }

    fn counts_tries(&self) -> bool {
        true
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.claims.at_rest())
    }

    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(event) = &delivery.event else { return Ok(()) };
            let (id, key, handler, attempt) =
                (event.id, event.key(), &self.writer.handler, delivery.count);
            tracing::error!(event = %id, %key, %handler, attempt, "dead letter");
            begin_anew(&*self.store, event, handler).await
        })
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
                tracing::error!(event = %event.id, %fault, "it cannot be written");
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
            permit: Mutex::new(Some(permit)),
            call,
            ended: Arc::clone(&ended),
        };
        let name = self.writer.handler.clone();
        let mut leased = Leased::builder(name, Arc::clone(&self.store), caller)
            .lease(self.lease)
            .deliveries_max(self.deliveries_max)
            .claims(Arc::clone(&self.claims));
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
            Some(Ended::Answered(answer, ruling)) => {
                self.conclude(event, delivery, verdict, (&answer, ruling))
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

    /// An answer came, and the inbox has heard of it.
    fn conclude(
        &self,
        event: &Arc<Event>,
        delivery: &Delivery,
        verdict: Result<Verdict>,
        (answer, ruling): (&Answer, Ruling),
    ) -> Result<Verdict> {
        let attempt = match &verdict {
            Ok(Verdict::Retry { tries: Some(tries), .. }) => delivery.count.min(*tries),
            _ => delivery.count,
        };
        self.log(event, attempt, answer, &ruling.judgement);
        // The inbox did not answer: whatever the endpoint did is asked for again, by the same key.
        Ok(match (ruling.judgement, verdict?) {
            (Judgement::Done, Verdict::Retry { fault, .. }) if fault.kind == ErrorKind::Fenced => {
                self.released(event, delivery)
            }
            (Judgement::Counts { .. }, Verdict::Retry { after, fault, tries }) => {
                let fault = Fault::new(kind(answer.reply), fault.detail);
                Verdict::Retry { after, fault, tries }
            }
            (Judgement::Waits { .. }, verdict) => {
                self.tally.uncounted.fetch_add(1, Ordering::Relaxed);
                verdict
            }
            (_, verdict) => verdict,
        })
    }

    /// One line for the log.
    fn log(&self, event: &Event, attempt: u32, answer: &Answer, judgement: &Judgement) {
        let status = match answer.reply {
            Reply::Status { status, .. } => Some(status),
            _ => None,
        };
        let (id, key, handler) = (event.id, event.key(), &self.writer.handler);
        let said = answer.said.as_str();
        if *judgement == Judgement::Done {
            tracing::debug!(event = %id, %key, %handler, attempt, status, "handled");
        } else {
            // Whether it becomes a dead letter the broker says.
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
