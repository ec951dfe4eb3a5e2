//! A message that was delivered suspiciously often to a handler in a transaction, or may have been begun by a process that is
//! gone: its tries are counted in the inbox, in transactions before and after the handler's.
//!
//! Invariants: it takes no session but the handler's own; and what cannot be counted is acted on all the same, by the
//! broker's count.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::{Verdict, counted, suspicion, too_often, unbegun, usual_deliveries};
use postrider_core::{Claim, ClaimLease, ClaimRequest, Delivery, ErrorKind, Event, Result, Tried};

use tokio::runtime::Handle;

use crate::inbox;
use crate::leaving::Leaving;
use crate::transactional::Work;

/// How often it is tried to let go of a claim whose handler was dropped, and how soon again: for some four seconds, since an
/// engine that stops waits no longer than five.
const LET_GO_MAX: u32 = 10;
const LET_GO_EVERY: Duration = Duration::from_millis(200);

impl Work {
    /// Acts on an event, and counts that in the inbox.
    pub(crate) async fn receive_again(
        self: &Arc<Self>,
        event: &Event,
        delivery: &Delivery,
        deliveries_max: u32,
    ) -> Result<Verdict> {
        let permit = self.permit().await?;
        let mut request = suspicion(event, &self.handler)?;
        request.outlived = self.begun.ask(&request.key);
        let claimed = self.claim(&request).await;
        self.begun.answered(&request.key, &claimed);
        let lease = match claimed {
            Ok(Claim::Claimed(lease)) => lease,
            // Somebody is at it, or it is done: said by the marker's own rules.
            Ok(_) => return self.receive(&permit, event).await,
            Err(error) if error.kind() == ErrorKind::Busy => {
                return self.receive(&permit, event).await;
            }
            // Who may write no claims has the broker's count alone.
            Err(error) if error.kind() == ErrorKind::Unauthorized => {
                return match too_often(delivery.count, deliveries_max) {
                    Some(fault) => Ok(Verdict::Reject(fault)),
                    None => counted(self.receive(&permit, event).await, delivery.count, true).0,
                };
            }
            Err(error) => return Err(error),
        };
        let usual = usual_deliveries(deliveries_max);
        let (tries, lost) = (lease.tries, lease.lost);
        let mut held = Held { work: Arc::clone(self), lease: Some(lease.clone()) };
        let (answer, tried) = match unbegun(lost, delivery.alone, deliveries_max - usual) {
            Some(verdict) => (Ok(verdict), Some(Tried::NotCounted)),
            None => {
                let answer = self.receive(&permit, event).await;
                counted(answer, tries, delivery.count > usual)
            }
        };
        match tried {
            Some(tried) => _ = self.let_go(&lease, tried).await,
            None => self.begun.forget(&lease.key),
        }
        // Who is dropped before that is answered says it again.
        held.lease = None;
        answer
    }

    /// Whether nothing is left to do.
    async fn let_go(&self, lease: &ClaimLease, tried: Tried) -> bool {
        match self.release(lease, tried).await {
            Ok(()) if tried.came_to_an_end() => self.begun.forget(&lease.key),
            Ok(()) => self.begun.take_back(&lease.key),
            Err(error) => {
                tracing::debug!(%error, event = %lease.key.event_id, "this delivery stays counted as a try");
                return error.kind() == ErrorKind::Fenced;
            }
        }
        true
    }

    /// The same for a handler that was dropped, on a session that it is given leave to have. The server may still be at the
    /// handler's statement, and have the row locked for it.
    async fn let_go_at_last(&self, lease: &ClaimLease) {
        let Ok(_permit) = self.permit().await else { return };
        for _ in 0..LET_GO_MAX {
            if self.let_go(lease, Tried::NotCounted).await {
                return;
            }
            // waits: nobody tells when a statement that nobody waits for has ended
            tokio::time::sleep(LET_GO_EVERY).await;
        }
    }

    /// A claim on a handler's connection: it has no other.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let connection = self.connect().await?;
        let answer = inbox::claim_on(&connection.client, self.sessions.texts(), request);
        let answer = self.within(answer).await;
        if answer.as_ref().map_or_else(|error| error.kind() == ErrorKind::Unauthorized, |_| true) {
            // Who may not is told so, and keeps his session: another one could be one too many for him.
            self.keep(connection);
        }
        inbox::answered(&answer?, request)
    }

    async fn release(&self, lease: &ClaimLease, tried: Tried) -> Result<()> {
        let connection = self.connect().await?;
        let answer = inbox::release_on(&connection.client, self.sessions.texts(), lease, tried);
        let row = self.within(answer).await?;
        self.keep(connection);
        inbox::released(&row, lease)
    }

    /// Has the tries of an event begin anew, if any can have been counted.
    pub(crate) async fn buried(&self, delivery: &Delivery, deliveries_max: u32) -> Result<()> {
        let Ok(event) = &delivery.event else { return Ok(()) };
        if !delivery.is_suspicious(deliveries_max) {
            return Ok(());
        }
        let _permit = self.permit().await?;
        match self.claim(&suspicion(event, &self.handler)?).await? {
            Claim::Claimed(lease) => self.release(&lease, Tried::Refused).await,
            Claim::Leased { .. } | Claim::Processed { .. } | Claim::Mismatch => Ok(()),
        }
    }
}

/// A claim whose handler is at work. Dropped with it, as at the end of a drain, it is let go: nobody died of the event.
struct Held {
    work: Arc<Work>,
    lease: Option<ClaimLease>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let (Some(lease), Ok(runtime)) = (self.lease.take(), Handle::try_current()) else { return };
        let leaving = Leaving::new(&self.work);
        runtime.spawn(async move { leaving.0.let_go_at_last(&lease).await });
    }
}
