//! The memory inbox: claims with a lease on the store's clock, fenced by a token (INV-4).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::HORIZON_UNKNOWN;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Code, Error, ErrorKind, HandlerName, InboxKey,
    InboxStore, Result, Text, Tried,
};

use super::MemoryStore;
use super::server::Needs;
use super::state::State;

#[derive(Clone, Debug)]
pub(super) struct InboxRow {
    payload_hash: [u8; 32],
    /// Kept for people who look.
    #[allow(dead_code, reason = "shown by Debug when a test fails")]
    event_type: Text,
    token: u64,
    tries: u32,
    /// Those of them up to the last that came to an end.
    failed: u32,
    status: Status,
    steps: BTreeMap<String, Bytes>,
}

#[derive(Clone, Debug)]
enum Status {
    Claimed {
        ends: Duration,
    },
    Processed {
        result: Bytes,
        at: Duration,
    },
    /// As if there were no row; but steps are effects that have happened, and stay, and no token is
    /// given twice.
    Forgotten,
}

impl InboxRow {
    /// A marker written by a transaction.
    pub(super) fn processed(payload_hash: [u8; 32], event_type: Text, at: Duration) -> InboxRow {
        let result = Bytes::new();
        InboxRow {
            payload_hash,
            event_type,
            token: 1,
            tries: 1,
            failed: 0,
            status: Status::Processed { result, at },
            steps: BTreeMap::new(),
        }
    }

    pub(super) fn is_processed(&self) -> bool {
        matches!(self.status, Status::Processed { .. })
    }

    fn is_forgotten(&self) -> bool {
        matches!(self.status, Status::Forgotten)
    }

    pub(super) fn check_hash(&self, key: &InboxKey, hash: &[u8; 32]) -> Result<()> {
        if self.payload_hash == *hash || self.is_forgotten() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, "accept")
            .message("the event id is known with another payload; the handler was not called")
            .code(Code::PayloadMismatch)
            .context("event", key.event_id))
    }
}

impl MemoryStore {
    /// The effect rows that are committed, in commit order.
    pub fn effects(&self) -> Vec<InboxKey> {
        self.state().effects.clone()
    }

    /// What was forgotten, in the order in which that happened: a handler acts on it once more.
    pub fn forgotten(&self) -> Vec<InboxKey> {
        self.state().forgotten.clone()
    }

    /// Forgets that an event was handled, through the handle's line, as an operator does. The results
    /// of its steps stay. Returns the token up to which its claims are void.
    ///
    /// # Errors
    /// `Busy` while somebody is at it, `NotFound` if there is no record of it, and what the line says.
    pub async fn forget_on(&self, key: &InboxKey) -> Result<u64> {
        self.statement("forget", Needs::Writing, |state| state.forget(key, self.elapsed())).await
    }
}

impl State {
    /// Why an event cannot be claimed; none if it can.
    fn taken(&self, request: &ClaimRequest, now: Duration) -> Option<Claim> {
        let row = self.inbox.get(&request.key).filter(|row| !row.is_forgotten())?;
        if row.payload_hash != request.payload_hash {
            return Some(Claim::Mismatch);
        }
        match &row.status {
            Status::Processed { result, .. } => Some(Claim::Processed { result: result.clone() }),
            Status::Claimed { ends } if *ends > now => {
                Some(Claim::Leased { remaining: *ends - now })
            }
            Status::Claimed { .. } | Status::Forgotten => None,
        }
    }

    /// Claims an event, whoever had it.
    fn take(&mut self, request: &ClaimRequest, now: Duration) -> Claim {
        let row = self.inbox.entry(request.key.clone()).or_insert_with(|| InboxRow {
            payload_hash: request.payload_hash,
            event_type: request.event_type.clone(),
            token: 0,
            tries: 0,
            failed: 0,
            status: Status::Claimed { ends: now },
            steps: BTreeMap::new(),
        });
        let ends = now + request.duration;
        row.token += 1;
        row.failed = row.tries.min(row.failed + request.outlived);
        row.tries += 1;
        row.payload_hash = request.payload_hash;
        row.status = Status::Claimed { ends };
        let lost = row.tries.saturating_sub(1 + row.failed);
        let (key, token, tries) = (request.key.clone(), row.token, row.tries);
        let lease = ClaimLease { key, token, tries, lost };
        self.ledger.claimed(&lease, ends, now);
        Claim::Claimed(lease)
    }

    /// The row, if the lease still stands: the fence of everything that follows a claim.
    fn claimed(&mut self, operation: &'static str, lease: &ClaimLease) -> Result<&mut InboxRow> {
        match self.inbox.get_mut(&lease.key) {
            Some(row)
                if row.token == lease.token && matches!(row.status, Status::Claimed { .. }) =>
            {
                Ok(row)
            }
            _ => Err(Error::new(ErrorKind::Fenced, operation)
                .message("the claim was lost; nothing was written")
                .context("event", lease.key.event_id)
                .context("handler", &lease.key.handler)),
        }
    }

    fn complete(&mut self, lease: &ClaimLease, result: &[u8], now: Duration) -> Result<()> {
        // The same write again, after its answer was lost.
        if let Some(row) = self.inbox.get(&lease.key)
            && row.token == lease.token
            && matches!(&row.status, Status::Processed { result: stored, .. } if stored == result)
        {
            return Ok(());
        }
        self.claimed("complete", lease)?.status =
            Status::Processed { result: Bytes::copy_from_slice(result), at: now };
        self.ledger.wrote_claim("complete", lease, None);
        Ok(())
    }

    fn forget(&mut self, key: &InboxKey, now: Duration) -> Result<u64> {
        let Some(row) = self.inbox.get_mut(key).filter(|row| !row.is_forgotten()) else {
            return Err(Error::new(ErrorKind::NotFound, "forget").context("event", key.event_id));
        };
        let leased = matches!(row.status, Status::Claimed { ends } if ends > now);
        if leased || self.accepting.contains(key) {
            return Err(Error::new(ErrorKind::Busy, "forget")
                .message("somebody is at it; nothing was forgotten")
                .context("event", key.event_id));
        }
        row.status = Status::Forgotten;
        row.token += 1;
        row.tries = 0;
        row.failed = 0;
        self.forgotten.push(key.clone());
        Ok(row.token)
    }

    fn purge(&mut self, older_than: Duration, rows_max: u32, now: Duration) -> u64 {
        let horizon = self.horizons.values().max().copied().unwrap_or(HORIZON_UNKNOWN);
        let kept = older_than.max(horizon);
        let silent = older_than.max(HORIZON_UNKNOWN);
        let old: Vec<InboxKey> = self
            .inbox
            .iter()
            .filter(|(key, row)| match row.status {
                Status::Processed { at, .. } => {
                    let said = self.horizons.contains_key(&key.handler);
                    now.saturating_sub(at) > if said { kept } else { silent }
                }
                Status::Claimed { .. } | Status::Forgotten => false,
            })
            .map(|(key, _)| key.clone())
            .take(rows_max as usize)
            .collect();
        for key in &old {
            self.inbox.remove(key);
            self.ledger.forget_claim(key);
        }
        old.len() as u64
    }
}

impl InboxStore for MemoryStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async {
            if postrider_core::planted!(ClaimThenCheck) {
                // It was free when it was looked at.
                let look = |state: &mut State| Ok(state.taken(request, self.elapsed()));
                if let Some(taken) = self.statement("read claim", Needs::Nothing, look).await? {
                    return Ok(taken);
                }
                let take = |state: &mut State| Ok(state.take(request, self.elapsed()));
                return self.statement("claim", Needs::Room, take).await;
            }
            let claim = |state: &mut State| {
                let taken = state.taken(request, self.elapsed());
                Ok(taken.unwrap_or_else(|| state.take(request, self.elapsed())))
            };
            self.statement("claim", Needs::Room, claim).await
        })
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("heartbeat", Needs::Writing, move |state| {
            let ends = self.elapsed() + duration;
            state.claimed("heartbeat", lease)?.status = Status::Claimed { ends };
            state.ledger.wrote_claim("heartbeat", lease, Some(ends));
            Ok(())
        }))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("complete", Needs::Room, |state| {
            state.complete(lease, result, self.elapsed())
        }))
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("release claim", Needs::Writing, move |state| {
            let ends = self.elapsed();
            let row = state.claimed("release", lease)?;
            row.status = Status::Claimed { ends };
            // Whoever let go must not complete later.
            row.token += 1;
            row.tries = row.tries.saturating_sub(tried.taken_back());
            row.failed = match tried.came_to_an_end() {
                true => row.tries,
                false => row.failed.min(row.tries),
            };
            state.ledger.wrote_claim("release", lease, None);
            Ok(())
        }))
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(self.statement("step", Needs::Nothing, |state| {
            Ok(state.claimed("step", lease)?.steps.get(step).cloned())
        }))
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("complete step", Needs::Room, |state| {
            let row = state.claimed("complete step", lease)?;
            row.steps.insert(step.to_owned(), Bytes::copy_from_slice(result));
            state.ledger.wrote_step(lease);
            Ok(())
        }))
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("record horizon", Needs::Writing, move |state| {
            state.horizons.insert(handler.clone(), horizon);
            Ok(())
        }))
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.statement("purge", Needs::Writing, move |state| {
            Ok(state.purge(older_than, rows_max, self.elapsed()))
        }))
    }
}
