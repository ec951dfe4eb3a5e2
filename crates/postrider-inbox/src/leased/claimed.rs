//! From a granted claim to its end: run the handler, then complete or release.
//!
//! Invariant: however this ends, by return, panic, or being dropped, the heartbeat ends with it, and
//! a claim that is not completed is let go.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX, Tried};
use postrider_core::{ClaimLease, Error, ErrorKind, Event, Fault, Result, RetryClass, Tick, reach};
use tokio::runtime::Handle;

use crate::leased::claims::Claims;
use crate::leased::context::Context;
use crate::leased::heartbeat::{Standing, beat, in_time};
use crate::leased::{Heartbeat, Leased, Outcome, Performed};
use crate::signal::{Listener, current};

/// How long letting go may take; what is not let go expires by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

impl Leased {
    /// Runs the handler under a claim that was asked for at `sent`.
    pub(super) async fn act(
        &self,
        event: &Event,
        lease: ClaimLease,
        sent: Tick,
    ) -> Result<Performed> {
        let mut hold = self.hold(lease, sent);
        hold.stop = current();
        let standing = Arc::clone(&hold.standing);
        match self.heartbeat {
            Heartbeat::Beside => {
                tokio::spawn(beat(standing));
                self.work(event, hold).await
            }
            Heartbeat::Within => tokio::select! {
                biased;
                performed = self.work(event, hold) => performed,
                never = beat_only(standing) => match never {},
            },
        }
    }

    fn hold(&self, lease: ClaimLease, sent: Tick) -> Hold {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let standing = Standing::new(lease, store, clock, self.lease, sent);
        Hold {
            standing: Arc::new(standing),
            claims: Arc::clone(&self.claims),
            lets_go: true,
            stop: None,
        }
    }

    /// Lets a claim go whose event was begun too often. It keeps its tries until there is a dead letter of it.
    pub(super) async fn refuse(&self, lease: ClaimLease, sent: Tick, fault: Fault) -> Performed {
        self.hold(lease, sent).let_go(Tried::NotCounted).await;
        Performed::Rejected(fault)
    }

    /// Lets a claim go whose event is to be tried alone.
    pub(super) async fn put_off(&self, lease: ClaimLease, sent: Tick) -> Performed {
        self.hold(lease, sent).let_go(Tried::NotCounted).await;
        Performed::Alone
    }

    /// Runs the handler, and ends the claim by its answer.
    async fn work(&self, event: &Event, mut hold: Hold) -> Result<Performed> {
        let standing = Arc::clone(&hold.standing);
        let event = match self.decoded(event) {
            Ok(event) => event,
            Err(error) => {
                let performed = undecodable(&error, standing.lease.tries);
                hold.let_go(hold.tried(&performed)).await;
                return Ok(performed);
            }
        };
        let context = Context { standing: Arc::clone(&standing), stop: current() };
        let ended = tokio::select! {
            biased;
            ended = self.handler.act(event, context) => ended,
            () = overstayed(&standing) => Err(lease_lost()),
        };
        match ended {
            Ok(Outcome::Ack(result)) => complete(&mut hold, result).await,
            Ok(other) => {
                let said = said(&standing, other);
                hold.let_go(said.as_ref().map_or(Tried::NotCounted, |it| hold.tried(it))).await;
                said
            }
            Err(error) => {
                let failed = failed(&standing, error);
                hold.let_go(failed.as_ref().map_or(Tried::NotCounted, |it| hold.tried(it))).await;
                failed
            }
        }
    }
}

/// Records the result, or of one that is too large that there was one: the effect was made, and to let the claim go
/// would have it made again. What is refused as stale was not done by this worker.
async fn complete(hold: &mut Hold, result: Bytes) -> Result<Performed> {
    let left_out = LeftOut::instead_of(&result);
    let kept = left_out.map_or_else(|| result.clone(), LeftOut::to_bytes);
    // From here on the row may be completed even if the answer is lost, so it is not let go.
    hold.lets_go = false;
    let standing = Arc::clone(&hold.standing);
    let (store, lease) = (&standing.store, &standing.lease);
    match standing.ask("complete", || store.complete(lease, &kept)).await {
        Ok(()) => {
            reach!(ClaimCompleted);
            hold.claims.begun.forget(&lease.key);
            if let Some(left_out) = left_out {
                tracing::error!(
                    event = %lease.key.event_id, handler = %lease.key.handler, bytes = left_out.bytes,
                    limit = RESULT_BYTES_MAX,
                    "the handler's result is too large to be kept: the event is recorded as done, and whoever asks \
                     again gets an empty result; keep what is large elsewhere, and return its address"
                );
            }
            Ok(Performed::Now(result))
        }
        Err(error) if error.kind() == ErrorKind::Fenced => {
            reach!(ClaimRefusedStale);
            failed(&standing, error)
        }
        Err(error) => Err(error),
    }
}

/// What a handler wants that did not do it. Where the store failed under it, the event is not to blame.
fn said(standing: &Standing, outcome: Outcome) -> Result<Performed> {
    let cut_off = standing.lost.is_given() && standing.store_failed();
    Ok(match outcome {
        Outcome::Ack(result) => Performed::Now(result),
        Outcome::Reject(reason) => Performed::Rejected(Fault::new(ErrorKind::Rejected, reason)),
        Outcome::RetryAfter { reason, .. } if cut_off => return Err(lease_lost().source(reason)),
        Outcome::Later { .. } if cut_off => return Err(lease_lost()),
        Outcome::Later { after } => Performed::Later(after),
        Outcome::RetryAfter { after, reason } => {
            let fault = Fault::new(ErrorKind::Unavailable, reason);
            Performed::Retry { after, fault, tries: standing.lease.tries }
        }
    })
}

/// A handler's error: where the store failed, it is passed on uncounted; everything else counts.
fn failed(standing: &Standing, error: Error) -> Result<Performed> {
    if standing.store_failed() { Err(error) } else { Ok(retry(&error, standing.lease.tries)) }
}

fn retry(error: &Error, tries: u32) -> Performed {
    Performed::Retry { after: None, fault: Fault::new(error.kind(), error.to_string()), tries }
}

/// A payload that cannot be decoded for ever is dead; a codec that is missing may come with the next
/// deployment.
fn undecodable(error: &Error, tries: u32) -> Performed {
    if error.retry_class() == RetryClass::Permanent {
        return Performed::Rejected(Fault::new(error.kind(), error.to_string()));
    }
    retry(error, tries)
}

/// Returns when a handler that lost its lease did not stop within a third of it.
async fn overstayed(standing: &Standing) {
    standing.lost.listener().given().await;
    // waits: the grace that a handler has after its lease was lost
    standing.clock.sleep(standing.third()).await;
    reach!(ClaimOverstayed);
}

/// Beats as long as it is polled.
async fn beat_only(standing: Arc<Standing>) -> Infallible {
    beat(standing).await;
    std::future::pending().await
}

fn lease_lost() -> Error {
    Error::new(ErrorKind::Fenced, "act")
        .message("the lease was lost while the handler worked; it was told to stop")
}

/// The claim in hand.
struct Hold {
    standing: Arc<Standing>,
    claims: Arc<Claims>,
    lets_go: bool,
    /// The engine's signal, where the handler is run by a consumer.
    stop: Option<Listener>,
}

impl Hold {
    /// What the row of the inbox keeps of a try that was not completed. Who was told to stop because the engine stops has not
    /// failed.
    fn tried(&self, performed: &Performed) -> Tried {
        match performed {
            Performed::Rejected(_) => Tried::Refused,
            Performed::Later(_) => Tried::NotCounted,
            _ => self.dropped(),
        }
    }

    fn dropped(&self) -> Tried {
        match self.stop.as_ref().is_some_and(Listener::is_for_shutdown) {
            true => Tried::NotCounted,
            false => Tried::Failed,
        }
    }

    /// Lets the claim go, so that the next try need not wait for it to expire.
    async fn let_go(&mut self, tried: Tried) {
        self.standing.ended.give();
        // Who is dropped before that is answered says it again: the second says nothing new.
        release(&self.standing, &self.claims, tried).await;
        self.lets_go = false;
    }
}

async fn release(standing: &Standing, claims: &Claims, tried: Tried) {
    let call = standing.store.release(&standing.lease, tried);
    match in_time(&*standing.clock, "release", RELEASE_TIMEOUT, call).await {
        Ok(()) => {
            reach!(ClaimReleased);
            match tried.came_to_an_end() {
                true => claims.begun.forget(&standing.lease.key),
                false => claims.begun.take_back(&standing.lease.key),
            }
        }
        Err(error) => tracing::debug!(%error, "the claim was not let go; it expires"),
    }
}

impl Drop for Hold {
    /// The handler panicked, or was dropped by the engine. Where there is no runtime to let the claim
    /// go on, it expires.
    fn drop(&mut self) {
        self.standing.ended.give();
        if !self.lets_go {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (standing, claims) = (Arc::clone(&self.standing), Arc::clone(&self.claims));
            let tried = self.dropped();
            let leaving = Claims::leave(&claims);
            runtime.spawn(async move {
                release(&standing, &claims, tried).await;
                drop(leaving);
            });
        }
    }
}
