//! Effects outside the database, once: claim, heartbeat, steps, complete.
//!
//! Invariants: the handler runs only under a claim; a result is recorded only under the claim's
//! token; a handler whose lease may have run out is told to stop before that moment, by the owner's
//! own clock.
//!
//! All waiting goes through the [`Clock`], so nothing here needs Tokio's time, and a simulator's can
//! stand in its place.

mod claimed;
mod claims;
mod context;
mod heartbeat;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::Receiver;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Clock, Code, Delivery, ErrorKind, Event, Fault,
    HandlerName, InboxStore, PayloadCodec, Result, codec,
    inbox::{DELIVERIES_MAX, LeftOut, Verdict, begin_anew, is_suspect, too_often},
    planted, reach,
};

pub use claims::Claims;
pub use context::Context;
pub use postrider_core::inbox::RESULT_BYTES_MAX;

use crate::clock::BootClock;
use crate::options::config;

/// How long a claim lasts without a heartbeat, by default. It bounds how long a message of a crashed
/// worker waits, and how long a worker may be cut off from the store before it must stop: 30 s is
/// beyond a store's failover and a garbage-collected neighbour's pause, and well below what people
/// notice. A slow handler needs no longer lease; the heartbeat prolongs it.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The shortest lease: below, heartbeats at a third of it would race the network.
const LEASE_MIN: Duration = Duration::from_millis(30);

/// Where the heartbeat of a claim runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heartbeat {
    /// In a task of its own, on the Tokio runtime in which the handler runs. On a runtime with
    /// several threads, a handler that blocks its thread keeps its claim.
    #[default]
    Beside,
    /// In the handler's own task: it needs no runtime, and ends with the handler at the same await
    /// point. A handler that blocks its thread blocks its heartbeat, and loses its claim when it
    /// blocks for longer than the lease: blocking work belongs in a thread of its own
    /// (`spawn_blocking`), which the handler awaits.
    Within,
}

/// How a handler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with what is to be answered to whoever asks again.
    Ack(Bytes),
    /// Not done: try again, after the delay if one is wished, and count it.
    RetryAfter {
        /// The wish; obeyed up to the longest delay of the retry policy.
        after: Option<Duration>,
        /// Why. Never a secret.
        reason: String,
    },
    /// Not done, and not for a reason that is the event's: what the effect needs is away. Try again after the delay,
    /// uncounted, however often.
    Later {
        /// When; at least the engine's shortest delay.
        after: Duration,
    },
    /// It will never succeed: to the dead letters. The reason is never a secret.
    Reject(String),
}

impl Outcome {
    /// Done, with nothing to answer.
    pub fn done() -> Outcome {
        Outcome::Ack(Bytes::new())
    }

    /// Try again by the retry policy.
    pub fn retry(reason: impl Into<String>) -> Outcome {
        Outcome::RetryAfter { after: None, reason: reason.into() }
    }
}

/// Acts on an event under a claim. Any `async` function of an event and a [`Context`] is one.
pub trait LeasedHandler: Send + Sync {
    /// Acts on an event. May run again for the same event after a failure or a takeover: effects go
    /// into [`Context::step`], which resumes instead of repeating.
    ///
    /// # Errors
    /// Count as [`Outcome::RetryAfter`], except what [`Context::step`] says about the store or the
    /// lease: pass that on.
    fn act(&self, event: Arc<Event>, context: Context) -> BoxFuture<'_, Result<Outcome>>;
}

impl<F, R> LeasedHandler for F
where
    F: Fn(Arc<Event>, Context) -> R + Send + Sync,
    R: Future<Output = Result<Outcome>> + Send + 'static,
{
    fn act(&self, event: Arc<Event>, context: Context) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self(event, context))
    }
}

/// What became of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Performed {
    /// Done now, with this result, whatever its size. One above [`RESULT_BYTES_MAX`] is not kept.
    Now(Bytes),
    /// Done before, with the result stored then; empty if it was too large to be kept.
    Before(Bytes),
    /// Somebody else is at it, for so long at most.
    Busy(Duration),
    /// It was begun suspiciously often: the engine has it tried [alone](Verdict::Alone). Never the answer to
    /// [`Leased::perform`].
    Alone,
    /// The handler wants it again after so long, uncounted.
    Later(Duration),
    /// The id came before with another payload; the handler was not called.
    Mismatch,
    /// It failed; try again.
    Retry {
        /// The handler's wish.
        after: Option<Duration>,
        /// What failed.
        fault: Fault,
        /// The tries of the event that counted, this one included, whichever process made them.
        tries: u32,
    },
    /// It will never succeed.
    Rejected(Fault),
}

/// A handler behind a leased inbox: the [`Receiver`] for effects outside the database.
pub struct Leased {
    name: HandlerName,
    store: Arc<dyn InboxStore>,
    handler: Arc<dyn LeasedHandler>,
    codecs: Vec<Arc<dyn PayloadCodec>>,
    lease: Duration,
    heartbeat: Heartbeat,
    clock: Arc<dyn Clock>,
    deliveries_max: u32,
    claims: Arc<Claims>,
}

/// A [`Leased`] that is not complete yet.
#[must_use = "it does nothing until it is built"]
pub struct LeasedBuilder(Leased);

impl Leased {
    /// A handler by name, on a store. The name is part of the deduplication key: another name acts
    /// on everything again.
    pub fn builder(
        name: HandlerName,
        store: Arc<dyn InboxStore>,
        handler: impl LeasedHandler + 'static,
    ) -> LeasedBuilder {
        LeasedBuilder(Leased {
            name,
            store,
            handler: Arc::new(handler),
            codecs: Vec::new(),
            lease: LEASE_DEFAULT,
            heartbeat: Heartbeat::default(),
            clock: Arc::new(BootClock),
            deliveries_max: DELIVERIES_MAX,
            claims: Arc::default(),
        })
    }

    /// Acts on an event once, or says what became of it before.
    ///
    /// # Errors
    /// What kept the store from answering. The effect may have happened; the next try resumes from
    /// the stored steps.
    pub async fn perform(&self, event: &Event) -> Result<Performed> {
        self.try_once(event, None).await
    }

    /// The same for what was delivered.
    async fn try_once(&self, event: &Event, delivery: Option<&Delivery>) -> Result<Performed> {
        let mut request = ClaimRequest::new(event, &self.name, self.lease)?;
        let sent = heartbeat::time(&*self.clock);
        request.outlived = self.claims.begun.ask(&request.key);
        let call = self.store.claim(&request);
        let answer = heartbeat::in_time(&*self.clock, "claim", self.lease, call).await;
        self.claims.begun.answered(&request.key, &answer);
        let claim = answer?;
        match claim {
            Claim::Claimed(lease) => {
                reach!(ClaimGranted);
                if lease.token > 1 {
                    reach!(ClaimTakenOver);
                }
                let Some(delivery) = delivery else { return self.act(event, lease, sent).await };
                let nth = lease.lost.saturating_add(1);
                // A handler that panics in ever new processes counts as well, where the broker does.
                let most = self.deliveries_max;
                let fault = delivery.alone.and_then(|_| too_often(nth, most));
                let fault = fault.or_else(|| too_often(lease.tries.min(delivery.count), most));
                if let Some(fault) = fault {
                    reach!(DeliveredTooOften);
                    return Ok(self.refuse(lease, sent, fault).await);
                }
                if delivery.alone == Some(false) && is_suspect(nth, most) {
                    return Ok(self.put_off(lease, sent).await);
                }
                self.act(event, lease, sent).await
            }
            Claim::Leased { remaining } => {
                reach!(ClaimHeldByAnother);
                Ok(Performed::Busy(remaining))
            }
            Claim::Processed { result } => {
                reach!(ClaimProcessed);
                if planted!(DuplicateRunsHandler) {
                    // The bug: what was done is done again.
                    let lease = ClaimLease { key: request.key, token: 0, tries: 1, lost: 0 };
                    return self.act(event, lease, sent).await;
                }
                Ok(Performed::Before(self.told(&request, result)))
            }
            Claim::Mismatch => {
                reach!(ClaimMismatch);
                Ok(Performed::Mismatch)
            }
        }
    }

    /// What a copy is answered: the stored result, or nothing and a word in the log where it is not kept.
    fn told(&self, request: &ClaimRequest, stored: Bytes) -> Bytes {
        let Some(left_out) = LeftOut::read(&stored) else { return stored };
        tracing::warn!(
            event = %request.key.event_id, handler = %self.name, bytes = left_out.bytes,
            "a copy gets an empty result: the event was done, and its result was not kept"
        );
        Bytes::new()
    }

    /// The event as the handler sees it: with its payload decoded.
    fn decoded(&self, event: &Event) -> Result<Arc<Event>> {
        let codecs: Vec<&dyn PayloadCodec> = self.codecs.iter().map(AsRef::as_ref).collect();
        let payload = codec::decode(event, &codecs)?;
        let mut event = event.clone();
        event.payload = payload;
        event.encoding = None;
        Ok(Arc::new(event))
    }
}

impl Receiver for Leased {
    fn handler(&self) -> &HandlerName {
        &self.name
    }

    fn counts_tries(&self) -> bool {
        true
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.claims.at_rest())
    }

    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match &delivery.event {
                Ok(event) => begin_anew(&*self.store, event, &self.name).await,
                Err(_) => Ok(()),
            }
        })
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async move {
            Ok(match self.try_once(event, Some(delivery)).await? {
                Performed::Now(_) => Verdict::Done,
                Performed::Before(_) => Verdict::Duplicate,
                Performed::Busy(retry_in) | Performed::Later(retry_in) => {
                    Verdict::Busy { retry_in }
                }
                Performed::Alone => Verdict::Alone,
                Performed::Mismatch => Verdict::Reject(mismatch(event)),
                Performed::Retry { after, fault, tries } => {
                    Verdict::Retry { after, fault, tries: Some(tries) }
                }
                Performed::Rejected(fault) => Verdict::Reject(fault),
            })
        })
    }
}

fn mismatch(event: &Event) -> Fault {
    let code = Code::PayloadMismatch;
    Fault::new(
        ErrorKind::Conflict,
        format!(
            "{code}: event {} of {} came before with another payload. {}",
            event.id,
            event.source.escape_debug(),
            code.advice()
        ),
    )
}

impl LeasedBuilder {
    /// Sets how long a claim lasts without a heartbeat; [`LEASE_DEFAULT`] by default.
    pub fn lease(mut self, lease: Duration) -> LeasedBuilder {
        self.0.lease = lease;
        self
    }

    /// Adds a codec that decodes payloads before the handler sees them.
    pub fn codec(mut self, codec: Arc<dyn PayloadCodec>) -> LeasedBuilder {
        self.0.codecs.push(codec);
        self
    }

    /// Sets where the heartbeat runs; in a task of its own by default.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> LeasedBuilder {
        self.0.heartbeat = heartbeat;
        self
    }

    /// Sets after how many tries without an end a delivery is refused without asking the handler; [`DELIVERIES_MAX`] by
    /// default.
    pub fn deliveries_max(mut self, deliveries_max: u32) -> LeasedBuilder {
        self.0.deliveries_max = deliveries_max;
        self
    }

    /// Shares what is known of this process's claims with others of its kind: for whoever makes one for each event.
    pub fn claims(mut self, claims: Arc<Claims>) -> LeasedBuilder {
        self.0.claims = claims;
        self
    }

    /// Sets the clock that decides when to stop; [`BootClock`] is the default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> LeasedBuilder {
        self.0.clock = clock;
        self
    }

    /// Checks and builds it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the lease is too short to be prolonged in time.
    pub fn build(self) -> Result<Leased> {
        if self.0.lease < LEASE_MIN {
            return Err(config(format!("the lease must be at least {LEASE_MIN:?}")));
        }
        Ok(self.0)
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LeasedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
