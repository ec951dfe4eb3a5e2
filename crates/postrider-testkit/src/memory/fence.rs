//! The fence of every write: the lease row has the owner and the token, and that is looked at in the
//! statement that writes.
//!
//! Here stand also the ways to get this wrong that a simulation plants to see whether it is found.

use std::time::Duration;

use postrider_core::waiting::{Placement, Settlement};
use postrider_core::{Error, ErrorKind, Lease, RelayId, Result};

use super::MemoryStore;
use super::server::Needs;
use super::state::State;

/// After how long the server notices that who holds a lock is gone.
const LOCK_NOTICED: Duration = Duration::from_secs(900);

/// A lease row that is locked over round trips.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    owner: RelayId,
    until: Duration,
}

impl MemoryStore {
    /// Writes a settlement: fence and write are one statement.
    pub(super) async fn write_settlement(&self, settlement: &Settlement) -> Result<()> {
        let lease = &settlement.lease;
        let life = self.life_of(lease);
        if postrider_core::planted!(TokenReadNotLocked) {
            // The token is as it was when it was read.
            let read = |state: &mut State| state.fence("settle", lease);
            self.statement("read token", Needs::Nothing, read).await?;
            let write = |state: &mut State| {
                state.check_life(life)?;
                state.settle_unfenced(settlement, self.elapsed())
            };
            return self.statement("settle", needs(settlement), write).await;
        }
        if postrider_core::planted!(LockOverRoundTrip) {
            // A lock protects the write, and nobody protects the others from the lock.
            let lock = |state: &mut State| state.lock_lease(lease, self.elapsed());
            self.statement("lock lease", Needs::Writing, lock).await?;
            let write = |state: &mut State| {
                let same = state.check_life(life);
                let written = same.and_then(|()| state.settle(settlement, self.elapsed()));
                state.locks.remove(&lease.partition.0);
                written
            };
            return self.statement("settle", needs(settlement), write).await;
        }
        if postrider_core::planted!(DeadOutsideTransaction) {
            // What is dead is written when the cursor has passed it.
            let (rest, dead) = split(settlement);
            self.settle_at_once(&rest).await?;
            return self.settle_at_once(&dead).await;
        }
        self.settle_at_once(settlement).await
    }

    async fn settle_at_once(&self, settlement: &Settlement) -> Result<()> {
        let life = self.life_of(&settlement.lease);
        let write = |state: &mut State| {
            state.check_life(life)?;
            state.settle(settlement, self.elapsed())
        };
        self.statement("settle", needs(settlement), write).await
    }
}

/// What enters `waiting` needs room; a cursor that moves does not.
fn needs(settlement: &Settlement) -> Needs {
    let grows = settlement.parts.iter().any(|part| !part.waiting.is_empty());
    if grows { Needs::Room } else { Needs::Writing }
}

/// A settlement without its dead letters, and one that has only them.
fn split(settlement: &Settlement) -> (Settlement, Settlement) {
    let (mut rest, mut dead) = (settlement.clone(), settlement.clone());
    for (rest, dead) in rest.parts.iter_mut().zip(&mut dead.parts) {
        rest.waiting.retain(|new| !matches!(new.placement, Placement::Dead { .. }));
        dead.waiting.retain(|new| matches!(new.placement, Placement::Dead { .. }));
        dead.cursor = None;
        dead.passed.clear();
        dead.changes.clear();
        dead.disabled.clear();
    }
    (rest, dead)
}

impl State {
    /// Refuses whoever does not own the partition any more: the fence of every write.
    pub(super) fn fence(&self, operation: &'static str, lease: &Lease) -> Result<()> {
        let row = self.leases.get(usize::from(lease.partition.0));
        if postrider_core::planted!(LeaseWithoutToken) && row.is_some_and(|row| row.is_leased()) {
            // Somebody has it.
            return Ok(());
        }
        if row.is_some_and(|row| row.matches(lease)) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Fenced, operation)
            .message("the lease was lost; nothing was written")
            .context("partition", lease.partition)
            .context("token", lease.token))
    }

    /// Whether somebody else holds a lock on a lease row.
    pub(super) fn is_locked(&self, partition: u16, owner: &RelayId, now: Duration) -> bool {
        let lock = self.locks.get(&partition);
        lock.is_some_and(|lock| lock.owner != *owner && lock.until > now)
    }

    fn lock_lease(&mut self, lease: &Lease, now: Duration) -> Result<()> {
        self.fence("lock lease", lease)?;
        let lock = Lock { owner: lease.owner.clone(), until: now + LOCK_NOTICED };
        self.locks.insert(lease.partition.0, lock);
        Ok(())
    }
}
