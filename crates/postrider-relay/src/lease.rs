//! Leases: which partitions to ask for, to keep, and to give away; and when to stop publishing.
//!
//! Who owns is decided by the database's clock. When to stop is decided here, by our own monotonic
//! clock: no publish starts later than (the time the last successful renewal was *sent*) + lease −
//! publish deadline − margin. The essay is `docs/internals/leases.md`.

use postrider_core::lease::{AcquireRequest, Acquired, Census, HeldLease, Lease, Renewed};
use postrider_core::source::RenewRequest;
use postrider_core::{PartitionId, Result, Tick, planted, reach};

use crate::command::Command;
use crate::machine::{Asked, Defining, Machine};
use crate::notice::{LostBecause, Notice};
use crate::owned::{FlowState, Owned};
use crate::trouble::Work;

/// What the relay knows of leases besides its own.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    acquire_at: Tick,
    renew_at: Tick,
    asking: bool,
    renewing: bool,
    census: Census,
    pub(crate) held: Vec<HeldLease>,
    /// When `held` was said.
    pub(crate) held_at: Tick,
    /// A holder that is proved dead, until somebody asks with it.
    dead: Option<Lease>,
    /// The proof that goes with what is being asked: there is none a second time.
    asked_with: Option<Lease>,
    /// Leases that we had not heard of are being let go, to be taken anew.
    reclaiming: bool,
    /// Leases that the store may still have as ours: when to let them go again, until when, which.
    pub(crate) releasing: Vec<(Tick, Tick, Vec<Lease>)>,
    /// Whether our definitions are the store's.
    pub(crate) current: bool,
}

impl Tenancy {
    /// Something became free that is ours to take.
    pub(crate) fn acquire_now(&mut self, now: Tick) {
        self.acquire_at = self.acquire_at.min(now);
    }

    /// The holder of a lease is proved dead: ask again, with the proof.
    pub(crate) fn proved_dead(&mut self, lease: Lease) {
        reach!(LeaseProvedDead);
        self.dead = Some(lease);
        self.acquire_at = Tick::default();
    }

    /// Whether this relay can serve all that the store has. One that no longer can was counted itself among those
    /// that can: alone, it would give its partitions away to nobody, and take them back a lease's time later.
    pub(crate) fn set_current(&mut self, current: bool) {
        let counted = self.current && !current;
        self.census.current = self.census.current.saturating_sub(u32::from(counted));
        self.current = current;
    }
}

impl Machine {
    fn knows_definitions(&self) -> bool {
        !self.definitions.rows.is_empty()
    }

    /// How many partitions are this relay's fair share.
    fn share(&self) -> u16 {
        let census = self.tenancy.census;
        let rivals = if self.tenancy.current { census.current } else { census.relays };
        // What was counted counts one that is proved dead since, and the store will not.
        let rivals = rivals.saturating_sub(u32::from(self.tenancy.dead.is_some()));
        let rivals = u16::try_from(rivals.max(1)).unwrap_or(u16::MAX);
        self.ownable().div_ceil(rivals)
    }

    /// How many partitions may be owned: those that no operator paused.
    pub(crate) fn ownable(&self) -> u16 {
        let paused = self.definitions.paused.iter().filter(|id| id.0 < self.partitions).count();
        self.partitions.saturating_sub(u16::try_from(paused).unwrap_or(u16::MAX))
    }

    /// How many of the partitions that may be owned are ours.
    pub(crate) fn owned_of_ownable(&self) -> usize {
        let paused = |id: &&PartitionId| self.definitions.paused.contains(id);
        self.owned.len() - self.owned.keys().filter(paused).count()
    }

    /// Asks, renews, gives away, and lets go of what has expired.
    pub(crate) fn keep_leases(&mut self) {
        self.drop_expired();
        self.let_go_again();
        self.give_away();
        self.renew();
        self.acquire();
    }

    /// A lease that could have expired by our own clock is no longer ours, whatever the store says.
    fn drop_expired(&mut self) {
        let (now, lease) = (self.now, self.settings.lease);
        let expired: Vec<_> = self
            .owned
            .iter()
            .filter(|(_, owned)| now >= owned.sent + lease)
            .map(|(id, _)| *id)
            .collect();
        for partition in expired {
            reach!(LeaseExpired);
            self.lose(partition, LostBecause::Expired);
        }
    }

    /// A partition is no longer ours. What was sent and not answered stays unknown, and is sent again
    /// by whoever owns it next.
    pub(crate) fn lose(&mut self, partition: PartitionId, why: LostBecause) {
        if self.drop_partition(partition, why) {
            self.stats.leases_lost += 1;
            self.tenancy.acquire_now(self.now);
        }
    }

    /// Forgets a partition, and says so. Returns whether it was ours.
    pub(crate) fn drop_partition(&mut self, partition: PartitionId, why: LostBecause) -> bool {
        let Some(mut owned) = self.owned.remove(&partition) else { return false };
        self.told.hear(owned.trouble.changes(), &mut self.notices);
        for state in owned.flows.values_mut() {
            if let FlowState::Ready(flow) = state {
                self.notices.extend(flow.notices.drain(..));
            }
        }
        self.notices.push(Notice::LeaseLost { partition, token: owned.lease.token, why });
        true
    }

    /// Gives away what is above the fair share, and everything if others can serve what we cannot.
    fn give_away(&mut self) {
        let stale = !self.tenancy.current && self.tenancy.census.current > 0;
        let keep = match (self.mode.is_draining(), stale) {
            (true, _) | (_, true) => 0,
            _ => usize::from(self.share()),
        };
        let mut surplus = self.owned_of_ownable().saturating_sub(keep);
        for (partition, owned) in self.owned.iter_mut().rev() {
            let paused = self.definitions.paused.contains(partition);
            if paused || surplus > 0 {
                reach!(LeaseSurplus, if !owned.leaving && !paused && !stale);
                reach!(LeaseGivenToCurrent, if !owned.leaving && stale);
                reach!(LeaseOfPausedPartition, if !owned.leaving && paused);
                (owned.leaving, owned.reload) = (true, false);
                surplus -= usize::from(!paused);
            }
        }
        let idle: Vec<_> = self
            .owned
            .iter()
            .filter(|(id, owned)| owned.leaving && self.is_partition_idle(**id, owned))
            .map(|(id, _)| *id)
            .collect();
        let mut released = Vec::new();
        for partition in idle {
            if let Some(owned) = self.owned.get_mut(&partition).filter(|owned| owned.reload) {
                // It stays ours: only what we counted is read again.
                reach!(PartitionReloaded);
                (owned.leaving, owned.reload) = (false, false);
                owned.flows.clear();
                continue;
            }
            released.extend(self.owned.remove(&partition).map(|owned| owned.lease));
        }
        if !released.is_empty() {
            reach!(LeaseReleased);
            self.let_go(released);
        }
    }

    /// Lets leases go. Another relay gets the first chance.
    pub(crate) fn let_go(&mut self, leases: Vec<Lease>) {
        self.tenancy.acquire_at = self.now + self.settings.heartbeat;
        for Lease { partition, token, .. } in leases.iter().cloned() {
            self.notices.push(Notice::LeaseReleased { partition, token });
        }
        let until = self.now + self.settings.lease;
        self.command(Asked::Release(leases.clone(), until), Command::Release(leases));
    }

    /// Leases that the store says are ours, and that we know nothing of: the answer that granted them
    /// was lost. They are let go, and asked for again.
    fn let_go_unheard(&mut self, own: Vec<HeldLease>) {
        let known = |lease: &Lease| {
            let owned = self.owned.get(&lease.partition);
            owned.is_some_and(|owned| owned.lease.token == lease.token)
        };
        let unheard: Vec<Lease> =
            own.into_iter().map(|held| held.lease).filter(|lease| !known(lease)).collect();
        if !unheard.is_empty() {
            let until = self.now + self.settings.lease;
            self.tenancy.reclaiming = true;
            reach!(LeaseUnheard);
            self.command(Asked::Release(unheard.clone(), until), Command::Release(unheard));
        }
    }

    /// Leases that the store may not have let go are let go once more, until they have ended by
    /// themselves: till then they would be nobody's.
    fn let_go_again(&mut self) {
        let now = self.now;
        let again: Vec<_> = self.tenancy.releasing.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, until, leases) in again {
            reach!(LeaseReleasedAgain);
            self.command(Asked::Release(leases.clone(), until), Command::Release(leases));
        }
    }

    pub(crate) fn released(&mut self, leases: Vec<Lease>, until: Tick, result: Result<()>) {
        if result.is_ok() && std::mem::take(&mut self.tenancy.reclaiming) {
            self.tenancy.acquire_now(self.now);
        }
        if self.stats.trouble.note(Work::Release, None, result).is_none() {
            let again = self.again_within(self.settings.poll_max);
            match again < until {
                true => self.tenancy.releasing.push((again, until, leases)),
                false => self.stats.trouble.drop_work(&[Work::Release]), // They have ended by themselves.
            }
        }
    }

    /// When leases are to be let go once more.
    pub(crate) fn release_wake_at(&self) -> Option<Tick> {
        self.tenancy.releasing.iter().map(|(at, ..)| *at).min()
    }

    fn renew(&mut self) {
        if self.owned.is_empty() || self.tenancy.renewing || self.now < self.tenancy.renew_at {
            return;
        }
        self.tenancy.renewing = true;
        self.tenancy.renew_at = self.now + self.settings.heartbeat;
        let request = RenewRequest {
            owner: self.owner.clone(),
            leases: self.owned.values().map(|owned| owned.lease.clone()).collect(),
            lease_duration: self.settings.lease,
            current: self.tenancy.current,
        };
        let asked = Asked::Renew { sent: self.now, leases: request.leases.clone() };
        self.command(asked, Command::Renew(request));
    }

    /// Whether there is something to ask for. Who owns nothing asks all the same, also if there is
    /// nothing to own: to be counted, and to hear of changed definitions.
    fn wants_more(&self) -> bool {
        self.owned.is_empty() || self.owned_of_ownable() < usize::from(self.share())
    }

    fn acquire(&mut self) {
        let share = usize::from(self.share());
        let owned = self.owned_of_ownable();
        let wants = self.knows_definitions() && !self.mode.is_draining() && self.wants_more();
        if !wants || self.tenancy.asking || self.now < self.tenancy.acquire_at {
            return;
        }
        self.tenancy.asking = true;
        self.tenancy.acquire_at = self.now + self.settings.heartbeat;
        self.tenancy.asked_with = self.tenancy.dead.take();
        let stale = !self.tenancy.current;
        let request = AcquireRequest {
            owner: self.owner.clone(),
            lease_duration: self.settings.lease,
            wanted: u16::try_from(share.saturating_sub(owned)).unwrap_or(u16::MAX),
            // A relay that cannot serve everything lets one that can come first.
            free_for: if stale { self.settings.lease } else { std::time::Duration::ZERO },
            presence: self.presence.clone(),
            current: self.tenancy.current,
            dead: self.tenancy.asked_with.clone(),
        };
        reach!(LeaseAsked);
        self.command(Asked::Acquire { sent: self.now }, Command::Acquire(request));
    }

    pub(crate) fn acquired(&mut self, sent: Tick, result: Result<Acquired>) {
        // What is counted from here may end later than the store thinks.
        let sent = if planted!(LeaseCountedFromAnswer) { self.now } else { sent };
        self.tenancy.asking = false;
        let asked_with = self.tenancy.asked_with.take();
        let acquired = self.stats.trouble.note(Work::Acquire, None, result);
        if self.owned.is_empty() {
            // Asked of what is owned alone: what stands is what this answer says, or nothing.
            self.stats.trouble.drop_work(&[Work::CarryOut, Work::Renew]);
        }
        let Some(acquired) = acquired else {
            reach!(LeaseNotAnswered);
            self.tenancy.dead = self.tenancy.dead.take().or(asked_with);
            // Of what is left of the pause: an answer that took longer than that is not a reason to ask at once.
            let left = self.tenancy.acquire_at.since(self.now).max(self.settings.poll_min);
            self.tenancy.acquire_at = self.again_within(left);
            return;
        };
        // A partition that was lost is asked for again, and what is renewed is another lease.
        self.stats.trouble.clear(Work::Settle, None);
        self.stats.trouble.clear(Work::Renew, None);
        self.tenancy.census = acquired.census;
        let (own, held) =
            acquired.held.into_iter().partition(|held| held.lease.owner == self.owner);
        self.tenancy.held = held;
        self.tenancy.held_at = self.now;
        reach!(LeaseHeldByAnother, if !self.tenancy.held.is_empty());
        self.let_go_unheard(own);
        if !acquired.granted.is_empty() {
            self.tenancy.renew_at = self.tenancy.renew_at.min(sent + self.settings.heartbeat);
        }
        for granted in acquired.granted {
            if self.definitions.paused.contains(&granted.lease.partition) {
                // It is let go on, and we have not heard.
                self.define_again();
            }
            self.stats.leases_taken += 1;
            self.carrying.begin(self.now);
            let Lease { partition, token, .. } = granted.lease;
            let takeovers = granted.takeovers;
            reach!(LeaseGranted);
            reach!(LeaseTakenFromDead, if takeovers > 0);
            self.notices.push(Notice::LeaseTaken { partition, token, takeovers });
            self.owned.insert(
                granted.lease.partition,
                Owned::new(granted.lease, granted.takeovers, sent),
            );
        }
        if (self.owned.is_empty() || !self.tenancy.current) && self.defining == Defining::Known {
            // Without a lease to renew, nothing else tells of changed definitions.
            self.defining = Defining::Wanted(self.now + self.settings.heartbeat);
        }
        // Ask again as soon as the next lease can have expired, and not before.
        let soonest = self.tenancy.held.iter().map(|held| held.expires_in).min();
        if let Some(soonest) = soonest {
            let at = self.now + soonest + std::time::Duration::from_millis(1);
            self.tenancy.acquire_at = self.tenancy.acquire_at.min(at);
        }
    }

    pub(crate) fn renewed(&mut self, sent: Tick, leases: &[Lease], result: Result<Renewed>) {
        let sent = if planted!(LeaseCountedFromAnswer) { self.now } else { sent };
        self.tenancy.renewing = false;
        let Some(renewed) = self.stats.trouble.note(Work::Renew, None, result) else {
            reach!(LeaseRenewalFailed);
            // Try again soon: publishing stops by our own clock if nothing helps.
            self.tenancy.renew_at = self.again_within(self.settings.heartbeat / 3);
            return;
        };
        self.tenancy.census = renewed.census;
        if self.owned_of_ownable() >= usize::from(self.share()) {
            // Nothing more is asked for: how the last question ended is of no interest.
            self.stats.trouble.clear(Work::Acquire, None);
            self.stats.trouble.clear(Work::Settle, None);
        }
        let lost: Vec<_> = self
            .owned
            .iter()
            .filter(|(_, owned)| {
                leases.contains(&owned.lease) && !renewed.kept.contains(&owned.lease)
            })
            .map(|(id, _)| *id)
            .collect();
        for lease in &renewed.kept {
            if let Some(owned) = self.owned_under(lease.partition, lease.token) {
                owned.sent = owned.sent.max(sent);
                reach!(LeaseRenewed);
            }
        }
        for partition in lost {
            reach!(LeaseLost);
            self.lose(partition, LostBecause::NotRenewed);
        }
        self.asked_apart(renewed.saves_apart);
        self.hear_of(renewed.definitions);
    }

    /// The leases that others hold, for the shell to look for proof that a holder is dead.
    pub fn held_by_others(&self) -> &[HeldLease] {
        &self.tenancy.held
    }

    /// Until when a publish to the partition may start.
    pub(crate) fn publish_until(&self, owned: &Owned) -> Tick {
        let settings = &self.settings;
        owned.sent + (settings.lease - settings.publish_deadline - settings.margin)
    }

    pub(crate) fn lease_wake_at(&self) -> Tick {
        let tenancy = &self.tenancy;
        let expiry = self.owned.values().map(|owned| owned.sent + self.settings.lease).min();
        let renewal = match () {
            () if self.owned.is_empty() || tenancy.renewing => None,
            () => Some(tenancy.renew_at),
        };
        let wants = self.wants_more() && !self.mode.is_draining();
        let asking =
            (wants && !tenancy.asking && self.knows_definitions()).then_some(tenancy.acquire_at);
        let far = self.now + self.settings.lease;
        [expiry, renewal, asking].into_iter().flatten().min().unwrap_or(far)
    }
}
