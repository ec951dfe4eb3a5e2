//! The consumer's side of a store: the record of which (source, event id, handler) was done.

mod again;
mod begun;
mod left_out;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::{
    BoxFuture, Delivery, Error, ErrorKind, Event, EventId, Fault, HandlerName, Result, Text,
};

pub use again::{
    DELIVERIES_MAX, counted, is_suspect, suspicion, too_often, unbegun, usual_deliveries,
};
pub use begun::Begun;
pub use left_out::{LeftOut, RESULT_BYTES_MAX};

/// How long a purge leaves every row while no consumer has said for how long its messages may come again.
/// 35 days: a queue of the cloud keeps a message for 14 days, its dead letters for 14 more, and a week is
/// left to notice. It is also what the program keeps.
pub const HORIZON_UNKNOWN: Duration = Duration::from_secs(35 * 86_400);

/// The deduplication key.
///
/// It can only be taken from an event that came in: there is no way to pass a fresh id by mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct InboxKey {
    /// Who said it.
    pub source: Arc<str>,
    /// What was said.
    pub event_id: EventId,
    /// Who acts on it.
    pub handler: HandlerName,
}

impl InboxKey {
    /// The key of an event for a handler.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the event has no source: without one, ids of two services could
    /// be taken for each other.
    pub fn of(event: &Event, handler: &HandlerName) -> Result<InboxKey> {
        if event.source.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "inbox key")
                .message("the event has no source, so it cannot be told from another service's")
                .context("event", event.id));
        }
        Ok(InboxKey {
            source: Arc::clone(&event.source),
            event_id: event.id,
            handler: handler.clone(),
        })
    }

    /// The idempotency key of one external step: the same at every attempt, and of no other event, handler, or step.
    ///
    /// An id belongs to its source, and names may have colons, so the words that a person reads are followed by eight
    /// bytes of a digest (SHA-256) of source, handler, and step.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use postrider_core::{Event, EventId, HandlerName, InboxKey};
    /// let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
    /// event.source = Arc::from("/shop");
    /// let key = InboxKey::of(&event, &HandlerName::new("billing")?)?;
    /// assert_eq!(
    ///     key.step_key("charge"),
    ///     "00000000-0000-0000-0000-000000000007:billing:charge:03387c1d35539c9a"
    /// );
    /// # Ok::<(), postrider_core::Error>(())
    /// ```
    pub fn step_key(&self, step: &str) -> String {
        let mut digest = Sha256::new();
        for part in [&*self.source, self.handler.as_str(), step] {
            // Each with its length, so that no two lists of parts are the same bytes.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
        let short = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        format!("{}:{}:{step}:{short:016x}", self.event_id, self.handler)
    }
}

/// The inbox for effects outside the database: claims with a lease.
///
/// | row | `claim` answers | leaves the row |
/// |---|---|---|
/// | absent | `Claimed` | claimed |
/// | claimed, lease runs | `Leased` | as it is |
/// | claimed, lease expired | `Claimed`, with a greater token | claimed |
/// | processed | `Processed` | as it is |
///
/// **Atomicity.** `claim` is one conditional write: of any number of concurrent claims one wins.
/// **Fencing.** Everything that follows a claim carries its token, and a worker that lost its lease
/// is refused with [`Fenced`](ErrorKind::Fenced).
/// **Clock.** Leases run on the store's clock. A store that has none, such as DynamoDB, says what it goes by
/// instead, and takes nothing over before the lease has surely ended.
pub trait InboxStore: Send + Sync {
    /// Claims an event for a handler.
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>>;

    /// Prolongs a claim from now.
    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>>;

    /// Records that it is done, with a result of at most [`RESULT_BYTES_MAX`] for whoever asks again. Of a larger
    /// one the caller passes that it is [left out](LeftOut): a refusal would have the effect made again.
    fn complete<'a>(&'a self, lease: &'a ClaimLease, result: &'a [u8])
    -> BoxFuture<'a, Result<()>>;

    /// Lets the claim go, so that the next try need not wait for the lease to expire, and says what became of the
    /// try. Stored steps stay.
    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>>;

    /// The stored result of a step, if it was done.
    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>>;

    /// Stores the result of a step; of one above [`RESULT_BYTES_MAX`], that it is [left out](LeftOut).
    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>>;

    /// Says for how long a message of a handler may come again: its consumer's retries, and whatever the
    /// broker adds. From then on [`purge`](Self::purge) leaves every row for at least the longest of these
    /// times. Saying it again replaces it. Every consumer of an inbox says it, since no other knows; what a handler did
    /// whose consumer has not is left for [`HORIZON_UNKNOWN`].
    ///
    /// A store in a database tells it to every program; DynamoDB's, whose rows go by themselves, keeps it for
    /// this inbox and its clones.
    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>>;

    /// Deletes processed rows older than the retention, at most so many, and says how many. A claim whose lease runs stays;
    /// one that ended so long ago, and that nobody took again, goes too in PostgreSQL and SQLite, with its steps. Whatever it is asked, no row goes before the longest
    /// [recorded](Self::record_horizon) time has passed, and of a handler without a record none before
    /// [`HORIZON_UNKNOWN`]: what comes again after its row is gone is acted on again.
    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>>;
}

/// A request to act on an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// What, and for whom.
    pub key: InboxKey,
    /// The event's type, kept for people who look.
    pub event_type: Text,
    /// SHA-256 of the payload: the same id with another payload is an error, not a duplicate.
    pub payload_hash: [u8; 32],
    /// How long the claim lasts without a heartbeat.
    pub duration: Duration,
    /// How many tries of the event this process has lost, and lived on ([`Begun`] knows): they are no longer among the row's
    /// [lost](ClaimLease::lost), whoever asks.
    pub outlived: u32,
}

impl ClaimRequest {
    /// A claim on an event for a handler.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the event has no source.
    pub fn new(event: &Event, handler: &HandlerName, duration: Duration) -> Result<ClaimRequest> {
        Ok(ClaimRequest {
            key: InboxKey::of(event, handler)?,
            event_type: event.event_type.clone(),
            payload_hash: event.payload.hash(),
            duration,
            outlived: 0,
        })
    }
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is yours.
    Claimed(ClaimLease),
    /// Somebody else is at it, for so long at most.
    Leased {
        /// The rest of the lease.
        remaining: Duration,
    },
    /// It was done.
    Processed {
        /// What was stored then.
        result: Bytes,
    },
    /// The id is known with another payload. The handler must not be called.
    Mismatch,
}

/// The right to act on an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimLease {
    /// What, and for whom.
    pub key: InboxKey,
    /// Grows at every claim of the row.
    pub token: u64,
    /// Claims of the row that count as tries, this one included: all but those that were [let go](InboxStore::release)
    /// otherwise. One whose worker died counts. Every process sees the same number, whatever the broker counts.
    pub tries: u32,
    /// How many of those before this one were never let go, since one last [came to an end](Tried::came_to_an_end): whoever had
    /// them died, or was cut off from the store. What fails and says so is not taken for what [ends the process](is_suspect).
    pub lost: u32,
}

/// What became of a try whose claim is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It failed, and counts.
    Failed,
    /// It was none: whatever kept the event is not the event's fault. It was not begun, or broken off, or what its handler needs is
    /// away, and nobody knows what would have come of it.
    NotCounted,
    /// It was refused, and becomes a dead letter: should that be sent again, its tries begin anew.
    Refused,
}

impl Tried {
    /// By how many the tries of the row become fewer, at most.
    ///
    /// ```
    /// use postrider_core::inbox::Tried;
    /// assert_eq!(3_u32.saturating_sub(Tried::NotCounted.taken_back()), 2);
    /// assert_eq!(3_u32.saturating_sub(Tried::Refused.taken_back()), 0);
    /// ```
    pub fn taken_back(self) -> u32 {
        match self {
            Tried::Failed => 0,
            Tried::NotCounted => 1,
            Tried::Refused => i32::MAX.unsigned_abs(),
        }
    }

    /// Whether the event was tried, and let its worker come to an end: then those before it that were [lost](ClaimLease::lost) are
    /// not the event's doing.
    pub fn came_to_an_end(self) -> bool {
        self != Tried::NotCounted
    }
}

/// What [`accept`](self)ing an event inside a transaction says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a duplicate must not be acted on"]
pub enum Accepted {
    /// The marker was written in the caller's transaction: act, then commit.
    FirstTime,
    /// It was done before: change nothing.
    Duplicate,
}

/// A handler behind an inbox, as the consumer engine sees it: whatever it does to be safe against
/// duplicates happens inside.
pub trait Receiver: Send + Sync {
    /// The handler's name, the last part of the deduplication key.
    fn handler(&self) -> &HandlerName;

    /// Whether it counts tries in its inbox and refuses by itself what is begun again and again without an end, because it
    /// may stop the process. Otherwise the engine does, by what the broker counts, which may be more: brokers
    /// count each delivery, also one that was merely given back.
    fn counts_tries(&self) -> bool {
        false
    }

    /// Acts on an event once, or says why not.
    ///
    /// # Errors
    /// Whatever kept the inbox itself from answering; the delivery is tried again and not counted
    /// against the event.
    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>>;

    /// A dead letter was made of a delivery. Should that be sent again, its tries begin anew; who counts them sees to it.
    ///
    /// # Errors
    /// What the inbox says. Nothing depends on it but how often what is sent again is tried.
    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        let _ = delivery;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns when what calls left to be done that were dropped is done, as to let a claim go. The engine waits for it before it
    /// says that it has stopped, for no longer than an answer of the broker may take.
    fn at_rest(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Has a receiver's tries of an event begin anew, if nobody is at it and it was not done.
///
/// # Errors
/// What the inbox says.
pub async fn begin_anew(
    inbox: &dyn InboxStore,
    event: &Event,
    handler: &HandlerName,
) -> Result<()> {
    let request = ClaimRequest::new(event, handler, Duration::ZERO)?;
    match inbox.claim(&request).await? {
        Claim::Claimed(lease) => inbox.release(&lease, Tried::Refused).await,
        Claim::Leased { .. } | Claim::Processed { .. } | Claim::Mismatch => Ok(()),
    }
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done now.
    Done,
    /// It had been done before.
    Duplicate,
    /// Somebody else is at it, or what it needs is away: leave it on the queue, uncounted.
    Busy {
        /// When to look again.
        retry_in: Duration,
    },
    /// It was begun suspiciously often, and may stop the process: ask again when nothing else is in work, with
    /// [`Delivery::alone`] set to true. Not a try. Said only where that is set to false.
    Alone,
    /// It failed, and counts; try again.
    Retry {
        /// The handler's wish.
        after: Option<Duration>,
        /// What failed.
        fault: Fault,
        /// The tries that counted, this one included, where the inbox knows: the broker may have counted more.
        tries: Option<u32>,
    },
    /// It will never succeed: to the dead letters.
    Reject(Fault),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// R089: one id of two sources, and names that have colons, are as many keys.
    #[test]
    fn what_is_another_effect_has_another_key() {
        let keys: BTreeSet<String> = [
            ("/shop", "billing", "charge"),
            ("/shop2", "billing", "charge"),
            ("/shop", "billing:charge", "now"),
            ("/shop", "billing", "charge:now"),
            ("/shopbilling", "charge", "now"),
            ("/shop", "billingcharge", "now"),
        ]
        .map(|(source, handler, step)| {
            let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
            event.source = Arc::from(source);
            let handler = HandlerName::new(handler).expect("a name");
            InboxKey::of(&event, &handler).expect("a key").step_key(step)
        })
        .into();
        assert_eq!(keys.len(), 6, "{keys:?}");
    }
}
