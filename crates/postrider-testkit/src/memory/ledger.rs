//! The ledger: what the server granted and what it let be written, kept apart from the code that
//! decides both, so that a checker can ask whether the fences held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_core::{ClaimLease, InboxKey, Lease, RelayId};

use super::MemoryStore;

/// So many misdeeds are told; after the first, the others say little.
const TOLD_MAX: usize = 64;

/// What was granted, and what must not have happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    partitions: BTreeMap<u16, Book>,
    claims: BTreeMap<InboxKey, Granted>,
    told: Vec<String>,
}

/// The grants of one partition.
#[derive(Clone, Debug, Default)]
struct Book {
    tokens: BTreeSet<(RelayId, u64)>,
    newest: Option<(RelayId, Granted)>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    token: u64,
    ends: Duration,
    /// Its holder let go, was proved dead, or was done.
    over: bool,
}

impl Granted {
    fn lives(&self, now: Duration) -> bool {
        !self.over && self.ends > now
    }
}

impl MemoryStore {
    /// What the fences should have refused, and did not: writes under a token that is not the newest
    /// of its partition, two grants that live at once, a token that was granted twice, and the same of
    /// the inbox's claims. Empty as long as all is well.
    pub fn misdeeds(&self) -> Vec<String> {
        self.state().ledger.told.clone()
    }
}

impl Ledger {
    /// A partition was granted.
    pub(super) fn granted(&mut self, lease: &Lease, ends: Duration, now: Duration) {
        let book = self.partitions.entry(lease.partition.0).or_default();
        let (owner, token) = (&lease.owner, lease.token);
        let mut told = Vec::new();
        if let Some((other, before)) = &book.newest {
            if before.lives(now) {
                told.push(format!(
                    "{} was granted to {owner} while {other} had it",
                    lease.partition
                ));
            }
            if token < before.token {
                told.push(format!(
                    "{}: token {token} was granted after {}",
                    lease.partition, before.token
                ));
            }
        }
        if book.tokens.iter().any(|(_, known)| *known == token) {
            told.push(format!("{}: token {token} was granted twice", lease.partition));
        }
        book.tokens.insert((owner.clone(), token));
        book.newest = Some((owner.clone(), Granted { token, ends, over: false }));
        told.into_iter().for_each(|what| self.tell(what));
    }

    /// A lease was prolonged.
    pub(super) fn renewed(&mut self, lease: &Lease, ends: Duration) {
        self.wrote("renew", lease);
        if let Some((_, newest)) = self.newest(lease) {
            newest.ends = ends;
        }
    }

    /// A lease ended before its time.
    pub(super) fn ended(&mut self, lease: &Lease) {
        self.wrote("release", lease);
        if let Some((_, newest)) = self.newest(lease) {
            newest.over = true;
        }
    }

    /// Something was written under a lease.
    pub(super) fn wrote(&mut self, what: &'static str, lease: &Lease) {
        let newest = self.partitions.get(&lease.partition.0).and_then(|book| book.newest.as_ref());
        let told = match newest {
            Some((owner, newest)) if *owner == lease.owner && newest.token == lease.token => {
                newest.over.then(|| format!("after token {} had ended", newest.token))
            }
            Some((owner, newest)) => {
                Some(format!("and the newest is token {} of {owner}", newest.token))
            }
            None => Some("and it was never granted".to_owned()),
        };
        if let Some(told) = told {
            let (partition, owner, token) = (lease.partition, &lease.owner, lease.token);
            self.tell(format!("{what} in {partition} by {owner} under token {token}, {told}"));
        }
    }

    /// Another server takes over: what was granted by the one before is void.
    pub(super) fn forget_grants(&mut self) {
        self.partitions.clear();
    }

    /// Another server takes over: what was told stays told.
    pub(super) fn remember(&mut self, before: Ledger) {
        self.told = before.told;
    }

    /// A claim was granted.
    pub(super) fn claimed(&mut self, lease: &ClaimLease, ends: Duration, now: Duration) {
        let granted = Granted { token: lease.token, ends, over: false };
        let before = self.claims.insert(lease.key.clone(), granted);
        let Some(before) = before else { return };
        let (event, handler) = (lease.key.event_id, &lease.key.handler);
        if before.lives(now) {
            self.tell(format!("{event} for {handler} was claimed while somebody had it"));
        }
        if before.token >= lease.token {
            let token = lease.token;
            self.tell(format!("{event} for {handler}: claim {token} after {}", before.token));
        }
    }

    /// Something was written under a claim; it ends then, or is over.
    pub(super) fn wrote_claim(
        &mut self,
        what: &'static str,
        lease: &ClaimLease,
        ends: Option<Duration>,
    ) {
        let newest = self.claims.get_mut(&lease.key);
        let known = newest.as_ref().is_some_and(|newest| newest.token == lease.token);
        if let Some(newest) = newest {
            newest.over |= ends.is_none();
            newest.ends = ends.unwrap_or(newest.ends);
        }
        if !known {
            let (event, handler, token) = (lease.key.event_id, &lease.key.handler, lease.token);
            self.tell(format!("{what} of {event} for {handler} under an old claim, {token}"));
        }
    }

    /// A step was written under a claim.
    pub(super) fn wrote_step(&mut self, lease: &ClaimLease) {
        let ends = self.claims.get(&lease.key).map(|newest| newest.ends);
        self.wrote_claim("complete step", lease, Some(ends.unwrap_or_default()));
    }

    /// The record of an event is gone.
    pub(super) fn forget_claim(&mut self, key: &InboxKey) {
        self.claims.remove(key);
    }

    fn newest(&mut self, lease: &Lease) -> Option<&mut (RelayId, Granted)> {
        self.partitions.get_mut(&lease.partition.0)?.newest.as_mut()
    }

    fn tell(&mut self, what: String) {
        if self.told.len() < TOLD_MAX {
            self.told.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::PartitionId;

    use super::*;

    fn lease(owner: &str, token: u64) -> Lease {
        let owner = RelayId::new(owner).expect("invariant: a valid name");
        Lease { partition: PartitionId(0), owner, token }
    }

    const LONG: Duration = Duration::from_secs(15);

    #[test]
    fn what_is_in_order_is_not_told() {
        let mut ledger = Ledger::default();
        ledger.granted(&lease("a", 1), LONG, Duration::ZERO);
        ledger.wrote("settle", &lease("a", 1));
        ledger.renewed(&lease("a", 1), LONG * 2);
        ledger.granted(&lease("b", 2), LONG * 3, LONG * 2);
        ledger.ended(&lease("b", 2));
        ledger.granted(&lease("a", 3), LONG * 4, LONG * 2);
        ledger.wrote("settle", &lease("a", 3));
        assert_eq!(ledger.told, [] as [String; 0]);
    }

    #[test]
    fn each_misdeed_is_told() {
        let told = |deed: &dyn Fn(&mut Ledger)| {
            let mut ledger = Ledger::default();
            ledger.granted(&lease("a", 1), LONG, Duration::ZERO);
            deed(&mut ledger);
            ledger.told.join("; ")
        };
        let twice = told(&|ledger| ledger.granted(&lease("a", 1), LONG * 2, LONG));
        assert!(twice.contains("granted twice"), "{twice}");
        let both = told(&|ledger| ledger.granted(&lease("b", 2), LONG, Duration::ZERO));
        assert!(both.contains("while a had it"), "{both}");
        let old = told(&|ledger| {
            ledger.granted(&lease("b", 2), LONG * 2, LONG);
            ledger.wrote("settle", &lease("a", 1));
        });
        assert!(old.contains("the newest is token 2 of b"), "{old}");
        let late = told(&|ledger| {
            ledger.ended(&lease("a", 1));
            ledger.wrote("settle", &lease("a", 1));
        });
        assert!(late.contains("had ended"), "{late}");
        let unknown = told(&|ledger| ledger.renewed(&lease("b", 9), LONG));
        assert!(unknown.contains("newest is token 1"), "{unknown}");
    }
}
