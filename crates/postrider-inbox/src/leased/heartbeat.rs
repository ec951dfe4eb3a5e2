//! The heartbeat: prolongs a claim, and knows when it may have run out.
//!
//! Who owns a row is decided by the store's clock; when to stop, by the owner's. The owner counts
//! from the moment at which the last successful heartbeat was *sent*: the store cannot have counted
//! from an earlier one, so the claim stands at least that long on the store's side. A margin of a
//! tenth covers clocks that run at different speeds and the time that stopping takes.
//!
//! Invariant: `stands` is false before the store could give the row to somebody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::{
    BoxFuture, ClaimLease, Clock, Error, ErrorKind, InboxStore, Result, RetryClass, Tick, clock,
    planted, reach,
};

use crate::signal::Signal;

/// A claim as its owner may believe in it.
pub(crate) struct Standing {
    pub(crate) lease: ClaimLease,
    pub(crate) store: Arc<dyn InboxStore>,
    pub(crate) lost: Signal,
    /// The claim is being let go, or its handler is gone: no more heartbeats.
    pub(crate) ended: Signal,
    pub(crate) clock: Arc<dyn Clock>,
    duration: Duration,
    until: AtomicU64,
    /// The last heartbeat was not answered.
    unanswered: AtomicBool,
    /// A step or the completion was not answered.
    store_failed: AtomicBool,
}

impl Standing {
    /// A claim that was asked for at `sent`, and granted.
    pub(crate) fn new(
        lease: ClaimLease,
        store: Arc<dyn InboxStore>,
        clock: Arc<dyn Clock>,
        duration: Duration,
        sent: Tick,
    ) -> Standing {
        let standing = Standing {
            lease,
            store,
            lost: Signal::new(),
            ended: Signal::new(),
            clock,
            duration,
            until: AtomicU64::new(0),
            unanswered: AtomicBool::new(false),
            store_failed: AtomicBool::new(false),
        };
        standing.prolong(sent);
        standing
    }

    fn prolong(&self, sent: Tick) {
        let until = sent + (self.duration - self.duration / 10);
        self.until.store(until.0, Ordering::Release);
    }

    /// Whether nobody else can have the row now.
    pub(crate) fn stands(&self) -> bool {
        !self.lost.is_given() && !self.remaining().is_zero()
    }

    /// How long it stands without another heartbeat.
    pub(crate) fn remaining(&self) -> Duration {
        Tick(self.until.load(Ordering::Acquire)).since(time(&*self.clock))
    }

    /// A third of the lease: two heartbeats may be lost.
    pub(crate) fn third(&self) -> Duration {
        self.duration / 3
    }

    /// Whether the store failed under the handler: then the event is not to blame, whatever the
    /// handler says.
    pub(crate) fn store_failed(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) || self.store_failed.load(Ordering::Acquire)
    }

    /// Fails unless the claim stands.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.stands() {
            return Ok(());
        }
        if operation == "step" {
            reach!(StepRefused);
        }
        self.lost.give();
        Err(Error::new(ErrorKind::Fenced, operation)
            .message("the lease ran out or was lost while the handler worked")
            .context("event", self.lease.key.event_id)
            .context("handler", &self.lease.key.handler))
    }

    /// Asks the store, within what is left of the lease, and again where that can help: the effect
    /// is made already, so a lost answer is worth three tries.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        operation: &'static str,
        question: impl Fn() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let mut pause = self.duration / 100;
        for _ in 0..2 {
            let result = in_time(&*self.clock, operation, self.remaining(), question()).await;
            match result {
                Err(error) if error.retry_class() == RetryClass::Transient => {
                    // waits: the pause after a failed question
                    self.clock.sleep(pause).await;
                    pause *= 4;
                    self.check(operation)?;
                }
                result => return self.noted(result),
            }
        }
        let result = in_time(&*self.clock, operation, self.remaining(), question()).await;
        self.noted(result)
    }

    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            match error.kind() {
                ErrorKind::Fenced => self.lost.give(),
                ErrorKind::TooLarge | ErrorKind::Invalid => {}
                _ => self.store_failed.store(true, Ordering::Release),
            }
        }
        result
    }
}

/// Prolongs the claim at every third of the lease, until it is lost or ended.
pub(crate) async fn beat(standing: Arc<Standing>) {
    let mut ended = standing.ended.listener();
    tokio::select! {
        biased;
        () = ended.given() => {}
        () = prolong(&standing) => {}
    }
}

async fn prolong(standing: &Standing) {
    let mut pause = standing.third();
    loop {
        // waits: the beat itself, and the pause after a failed one
        standing.clock.sleep(pause.min(standing.remaining())).await;
        let remaining = standing.remaining();
        if remaining.is_zero() {
            reach!(HeartbeatLost);
            standing.lost.give();
            return;
        }
        let sent = time(&*standing.clock);
        let call = standing.store.heartbeat(&standing.lease, standing.duration);
        reach!(HeartbeatSent);
        match in_time(&*standing.clock, "heartbeat", remaining, call).await {
            Ok(()) => {
                reach!(HeartbeatProlonged);
                standing.prolong(sent);
                standing.unanswered.store(false, Ordering::Release);
                pause = standing.third();
            }
            Err(error) if error.kind() == ErrorKind::Fenced => {
                reach!(HeartbeatRefused);
                standing.lost.give();
                return;
            }
            Err(error) => {
                reach!(HeartbeatFailed);
                standing.unanswered.store(true, Ordering::Release);
                tracing::warn!(%error, "a heartbeat failed; will try again while the lease stands");
                pause = standing.duration / 12;
            }
        }
    }
}

/// The owner's monotonic clock.
pub(crate) fn time(clock: &dyn Clock) -> Tick {
    if planted!(HeartbeatByWallClock) {
        // The bug: a wall clock may be set back, and the claim then seems to stand for longer.
        let micros = u64::try_from(clock.now().as_micros()).unwrap_or_default();
        return Tick(micros.saturating_mul(1_000));
    }
    clock.tick()
}

/// Waits for the store no longer than the given time.
pub(crate) async fn in_time<T>(
    clock: &dyn Clock,
    operation: &'static str,
    limit: Duration,
    call: BoxFuture<'_, Result<T>>,
) -> Result<T> {
    clock::within(clock, limit, call).await.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Timeout, operation)
            .message(format!("the inbox's store did not answer within {limit:?}")))
    })
}
