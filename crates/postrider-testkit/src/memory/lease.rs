//! Leases: who owns a partition, by the store's clock, fenced by a token that grows at every
//! acquisition.

use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Census, Granted, Renewed};
use postrider_core::source::RenewRequest;
use postrider_core::{HeldLease, Hindrance, Lease, PartitionId, Presence, RelayId};

use super::MemoryStore;
use super::state::State;

#[derive(Clone, Debug, Default)]
pub(super) struct LeaseRow {
    /// The last owner, unless it let go.
    owner: Option<RelayId>,
    /// The last owner, also if it let go.
    last: Option<RelayId>,
    token: u64,
    /// When the lease ends; for a partition that nobody owns, since when it is free.
    ends: Duration,
    presence: Option<Presence>,
    pub(super) takeovers: u32,
}

/// A relay that announced itself.
#[derive(Clone, Debug)]
pub(super) struct RelayRow {
    ends: Duration,
    current: bool,
    /// What keeps it from delivering, as it says.
    hindrances: Vec<Hindrance>,
}

impl LeaseRow {
    pub(super) fn matches(&self, lease: &Lease) -> bool {
        self.owner.as_ref() == Some(&lease.owner) && self.token == lease.token
    }

    /// Ends for good whatever was granted: the server is another one.
    pub(super) fn void(&mut self) {
        /// More grants than a standby can lag behind.
        const UNHEARD_OF: u64 = 1_000_000;
        self.owner = None;
        self.token += UNHEARD_OF;
        self.ends = Duration::ZERO;
        self.presence = None;
        self.takeovers = 0;
    }

    pub(super) fn is_leased(&self) -> bool {
        self.owner.is_some()
    }

    fn is_free(&self, now: Duration, free_for: Duration) -> bool {
        let ended = self.owner.is_none() || self.ends <= now;
        ended && now.saturating_sub(self.ends) >= free_for
    }

    fn grant(&mut self, partition: u16, request: &AcquireRequest, now: Duration) -> Granted {
        // An owner that let go left no name: only one that did not counts as taken over.
        self.takeovers = match self.owner {
            Some(_) => self.takeovers.saturating_add(1),
            None => 0,
        };
        let same = self.last.as_ref() == Some(&request.owner);
        if !(postrider_core::planted!(TokenStandsForSameOwner) && same) {
            self.token += 1;
        }
        self.owner = Some(request.owner.clone());
        self.last.clone_from(&self.owner);
        self.ends = now + request.lease_duration;
        self.presence.clone_from(&request.presence);
        Granted {
            lease: self.lease(partition).expect("invariant: just taken"),
            takeovers: self.takeovers,
        }
    }

    fn lease(&self, partition: u16) -> Option<Lease> {
        Some(Lease {
            partition: PartitionId(partition),
            owner: self.owner.clone()?,
            token: self.token,
        })
    }
}

impl MemoryStore {
    /// What keeps relays from delivering, as they told the store.
    pub fn hindrances(&self) -> Vec<Hindrance> {
        self.state().relays.values().flat_map(|row| row.hindrances.clone()).collect()
    }

    /// Who holds a partition at this moment, by the store's clock: for checkers.
    pub fn holder(&self, partition: PartitionId) -> Option<RelayId> {
        let (state, now) = (self.state(), self.elapsed());
        let row = state.leases.get(usize::from(partition.0))?;
        row.owner.clone().filter(|_| row.ends > now)
    }
}

impl State {
    pub(super) fn acquire(&mut self, request: &AcquireRequest, now: Duration) -> Acquired {
        if let Some(dead) = &request.dead
            && self.leases.get(usize::from(dead.partition.0)).is_some_and(|row| row.matches(dead))
        {
            self.bury(&dead.owner, now);
        }
        self.announce(&request.owner, now + request.lease_duration, request.current);
        let mut granted = Vec::new();
        let mut held = Vec::new();
        for partition in self.partitions() {
            let locked = self.is_locked(partition, &request.owner, now);
            let row = &mut self.leases[usize::from(partition)];
            let free = row.is_free(now, request.free_for) && !self.paused.contains(&partition);
            if free && !locked && granted.len() < usize::from(request.wanted) {
                let taken = row.grant(partition, request, now);
                self.ledger.granted(&taken.lease, row.ends, now);
                granted.push(taken);
            } else if row.ends > now
                && let Some(lease) = row.lease(partition)
            {
                held.push(HeldLease {
                    lease,
                    expires_in: row.ends - now,
                    presence: row.presence.clone(),
                });
            }
        }
        Acquired { granted, held, census: self.census(now) }
    }

    pub(super) fn renew(&mut self, request: &RenewRequest, now: Duration) -> Renewed {
        let ends = now + request.lease_duration;
        self.announce(&request.owner, ends, request.current);
        let mut kept = Vec::new();
        for lease in &request.leases {
            if lease.owner == request.owner
                && let Some(row) = self.leases.get_mut(usize::from(lease.partition.0))
                && row.matches(lease)
            {
                row.ends = ends;
                self.ledger.renewed(lease, ends);
                kept.push(lease.clone());
            }
        }
        Renewed {
            kept,
            census: self.census(now),
            definitions: self.definitions,
            saves_apart: self.saves_apart,
        }
    }

    pub(super) fn release(&mut self, leases: &[Lease], now: Duration) {
        for lease in leases {
            if let Some(row) = self.leases.get_mut(usize::from(lease.partition.0))
                && row.matches(lease)
            {
                self.ledger.ended(lease);
                row.owner = None;
                row.ends = row.ends.min(now);
                row.presence = None;
                row.takeovers = 0;
            }
        }
    }

    /// Whoever is dead is dead in all his partitions, and is not counted any more.
    fn bury(&mut self, dead: &RelayId, now: Duration) {
        self.relays.remove(dead);
        for partition in self.partitions() {
            let row = &mut self.leases[usize::from(partition)];
            if let Some(lease) = row.lease(partition).filter(|lease| lease.owner == *dead) {
                row.ends = row.ends.min(now);
                self.ledger.ended(&lease);
            }
        }
    }

    fn announce(&mut self, relay: &RelayId, ends: Duration, current: bool) {
        let new = || RelayRow { ends, current, hindrances: Vec::new() };
        let row = self.relays.entry(relay.clone()).or_insert_with(new);
        (row.ends, row.current) = (ends, current);
    }

    pub(super) fn report(&mut self, relay: &RelayId, hindrances: &[Hindrance]) {
        if let Some(row) = self.relays.get_mut(relay) {
            row.hindrances = hindrances.to_vec();
        }
    }

    fn census(&mut self, now: Duration) -> Census {
        self.relays.retain(|_, relay| relay.ends > now);
        let current = self.relays.values().filter(|relay| relay.current).count();
        Census {
            relays: u32::try_from(self.relays.len()).unwrap_or(u32::MAX),
            current: u32::try_from(current).unwrap_or(u32::MAX),
        }
    }
}
