//! A message that was delivered suspiciously often to a handler in a transaction, or may have been begun by a process that is
//! gone: its tries are counted in the inbox, in transactions before and after the handler's.
//!
//! Invariants: it takes no session but the handler's own; and what cannot be counted is acted on all the same, by the
//! broker's count.

use postrider_core::inbox::{Verdict, counted, is_suspect, suspicion, too_often, usual_deliveries};
use postrider_core::{Claim, ClaimLease, ClaimRequest, Delivery, ErrorKind, Event, Result, Tried};

use crate::inbox;
use crate::transactional::Work;

impl Work {
    /// Acts on an event, and counts that in the inbox.
    pub(crate) async fn receive_again(
        &self,
        event: &Event,
        delivery: &Delivery,
        deliveries_max: u32,
    ) -> Result<Verdict> {
        let permit = self.permit().await?;
        let request = suspicion(event, &self.handler)?;
        let lease = match self.claim(&request).await {
            Ok(Claim::Claimed(lease)) => lease,
            // Somebody is at it, or it is done: said by the marker's own rules.
            Ok(_) => return self.receive(permit, event).await,
            Err(error) if error.kind() == ErrorKind::Busy => {
                return self.receive(permit, event).await;
            }
            // Who may write no claims has the broker's count alone.
            Err(error) if error.kind() == ErrorKind::Unauthorized => {
                return match too_often(delivery.count, deliveries_max) {
                    Some(fault) => Ok(Verdict::Reject(fault)),
                    None => counted(self.receive(permit, event).await, delivery.count).0,
                };
            }
            Err(error) => return Err(error),
        };
        let nth = lease.lost.saturating_add(1);
        let most = deliveries_max - usual_deliveries(deliveries_max);
        let answer = match too_often(nth, most) {
            Some(fault) => Ok(Verdict::Reject(fault)),
            None if delivery.alone == Some(false) && is_suspect(nth, most) => Ok(Verdict::Alone),
            None => self.receive(permit, event).await,
        };
        let (answer, tried) = counted(answer, lease.tries);
        if let Some(tried) = tried
            && let Err(error) = self.release(&lease, tried).await
        {
            tracing::debug!(%error, event = %event.id, "this delivery stays counted as a try");
        }
        answer
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
        self.within(answer).await?;
        self.keep(connection);
        Ok(())
    }

    /// Has the tries of an event begin anew.
    pub(crate) async fn forget_tries(&self, event: &Event) -> Result<()> {
        let _permit = self.permit().await?;
        match self.claim(&suspicion(event, &self.handler)?).await? {
            Claim::Claimed(lease) => self.release(&lease, Tried::Refused).await,
            Claim::Leased { .. } | Claim::Processed { .. } | Claim::Mismatch => Ok(()),
        }
    }
}
