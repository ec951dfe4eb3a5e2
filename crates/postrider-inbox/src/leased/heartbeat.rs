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
    BoxFuture, ClaimLease, Clock, Error, ErrorKind, InboxStore, Result, RetryClass, Tick,
};

use crate::signal::Signal;

/// A claim as its owner may believe in it.
pub(crate) struct Standing {
    pub(crate) lease: ClaimLease,
    pub(crate) store: Arc<dyn InboxStore>,
    pub(crate) lost: Signal,
    clock: Arc<dyn Clock>,
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
        Tick(self.until.load(Ordering::Acquire)).since(self.clock.tick())
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
            let result = in_time(operation, self.remaining(), question()).await;
            match result {
                Err(error) if error.retry_class() == RetryClass::Transient => {
                    // waits: the beat itself, and the pause after a failed one
                    tokio::time::sleep(pause).await;
                    pause *= 4;
                    self.check(operation)?;
                }
                result => return self.noted(result),
            }
        }
        let result = in_time(operation, self.remaining(), question()).await;
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

/// Prolongs the claim at every third of the lease, until it is lost or this is dropped.
pub(crate) async fn beat(standing: Arc<Standing>) {
    let mut pause = standing.third();
    loop {
        // waits: the beat itself, and the pause after a failed one
        tokio::time::sleep(pause.min(standing.remaining())).await;
        let remaining = standing.remaining();
        if remaining.is_zero() {
            standing.lost.give();
            return;
        }
        let sent = standing.clock.tick();
        let call = standing.store.heartbeat(&standing.lease, standing.duration);
        match in_time("heartbeat", remaining, call).await {
            Ok(()) => {
                standing.prolong(sent);
                standing.unanswered.store(false, Ordering::Release);
                pause = standing.third();
            }
            Err(error) if error.kind() == ErrorKind::Fenced => {
                standing.lost.give();
                return;
            }
            Err(error) => {
                standing.unanswered.store(true, Ordering::Release);
                tracing::warn!(%error, "a heartbeat failed; will try again while the lease stands");
                pause = standing.duration / 12;
            }
        }
    }
}

/// Waits for the store no longer than the given time.
pub(crate) async fn in_time<T>(
    operation: &'static str,
    limit: Duration,
    call: BoxFuture<'_, Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Timeout, operation)
            .message(format!("the inbox's store did not answer within {limit:?}"))),
    }
}
