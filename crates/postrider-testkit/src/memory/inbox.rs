//! The memory inbox: claims with a lease on the store's clock, fenced by a token (INV-4).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Code, Error, ErrorKind, InboxKey, InboxStore,
    Result,
};

use super::MemoryStore;
use super::server::Needs;
use super::state::State;

#[derive(Clone, Debug)]
pub(super) struct InboxRow {
    payload_hash: [u8; 32],
    /// Kept for people who look.
    #[allow(dead_code, reason = "shown by Debug when a test fails")]
    event_type: Box<str>,
    token: u64,
    status: Status,
    steps: BTreeMap<String, Bytes>,
}

#[derive(Clone, Debug)]
enum Status {
    Claimed { ends: Duration },
    Processed { result: Bytes, at: Duration },
}

impl InboxRow {
    /// A marker written by a transaction.
    pub(super) fn processed(
        payload_hash: [u8; 32],
        event_type: Box<str>,
        at: Duration,
    ) -> InboxRow {
        let result = Bytes::new();
        InboxRow {
            payload_hash,
            event_type,
            token: 1,
            status: Status::Processed { result, at },
            steps: BTreeMap::new(),
        }
    }

    pub(super) fn is_processed(&self) -> bool {
        matches!(self.status, Status::Processed { .. })
    }

    pub(super) fn check_hash(&self, key: &InboxKey, hash: &[u8; 32]) -> Result<()> {
        if self.payload_hash == *hash {
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
}

impl State {
    fn claim(&mut self, request: &ClaimRequest, now: Duration) -> Claim {
        let row = self.inbox.entry(request.key.clone()).or_insert_with(|| InboxRow {
            payload_hash: request.payload_hash,
            event_type: request.event_type.clone(),
            token: 0,
            status: Status::Claimed { ends: now },
            steps: BTreeMap::new(),
        });
        if row.payload_hash != request.payload_hash {
            return Claim::Mismatch;
        }
        match &row.status {
            Status::Processed { result, .. } => Claim::Processed { result: result.clone() },
            Status::Claimed { ends } if *ends > now => Claim::Leased { remaining: *ends - now },
            Status::Claimed { .. } => {
                row.token += 1;
                row.status = Status::Claimed { ends: now + request.duration };
                Claim::Claimed(ClaimLease { key: request.key.clone(), token: row.token })
            }
        }
    }

    /// The row, if the lease still stands: the fence of everything that follows a claim.
    fn claimed(&mut self, operation: &'static str, lease: &ClaimLease) -> Result<&mut InboxRow> {
        match self.inbox.get_mut(&lease.key) {
            Some(row) if row.token == lease.token && !row.is_processed() => Ok(row),
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
        Ok(())
    }

    fn purge(&mut self, older_than: Duration, rows_max: u32, now: Duration) -> u64 {
        let old: Vec<InboxKey> = self
            .inbox
            .iter()
            .filter(|(_, row)| match row.status {
                Status::Processed { at, .. } => now.saturating_sub(at) > older_than,
                Status::Claimed { .. } => false,
            })
            .map(|(key, _)| key.clone())
            .take(rows_max as usize)
            .collect();
        for key in &old {
            self.inbox.remove(key);
        }
        old.len() as u64
    }
}

impl InboxStore for MemoryStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(
            self.statement("claim", Needs::Room, |state| Ok(state.claim(request, self.elapsed()))),
        )
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("heartbeat", Needs::Writing, move |state| {
            let ends = self.elapsed() + duration;
            state.claimed("heartbeat", lease)?.status = Status::Claimed { ends };
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

    fn release<'a>(&'a self, lease: &'a ClaimLease) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("release claim", Needs::Writing, |state| {
            let ends = self.elapsed();
            let row = state.claimed("release", lease)?;
            row.status = Status::Claimed { ends };
            // Whoever let go must not complete later.
            row.token += 1;
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
            Ok(())
        }))
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.statement("purge", Needs::Writing, move |state| {
            Ok(state.purge(older_than, rows_max, self.elapsed()))
        }))
    }
}
