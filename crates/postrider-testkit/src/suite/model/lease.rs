//! The naive lease table: per partition an owner, a token, an end, and how often it was taken over.
//!
//! It says what a call must answer; it knows nothing of how a store does it.

use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Granted};
use postrider_core::{Lease, PartitionId, RelayId};

use super::{Broken, Met, Rule, holds};

/// One partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    owner: Option<RelayId>,
    token: u64,
    ends: Duration,
    /// Since when it is free, at the earliest and at the latest: an owner that let go after its lease
    /// had ended leaves it to the store which of the two counts.
    free_since: (Duration, Duration),
    takeovers: u32,
    /// A cursor moved since it was granted.
    moved: bool,
}

/// The table, and the store's clock as the model counts it.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    pub(super) now: Duration,
    /// How far an answer about the rest of a lease may be off.
    pub(super) slack: Duration,
}

impl Row {
    pub(super) fn is_of(&self, lease: &Lease) -> bool {
        self.owner.as_ref() == Some(&lease.owner) && self.token == lease.token
    }

    fn runs(&self, now: Duration) -> bool {
        self.owner.is_some() && self.ends > now
    }

    /// Whether it must be given, and whether it may be.
    fn availability(
        &self,
        dead: Option<&RelayId>,
        request: &AcquireRequest,
        now: Duration,
    ) -> (bool, bool) {
        let dead = dead.is_some() && self.owner.as_ref() == dead;
        if self.runs(now) && !dead {
            return (false, false);
        }
        let (earliest, latest) = match (&self.owner, dead) {
            (None, _) => self.free_since,
            (Some(_), true) => (self.ends.min(now), self.ends.min(now)),
            (Some(_), false) => (self.ends, self.ends),
        };
        let long_enough = |since: Duration| now.saturating_sub(since) >= request.free_for;
        (long_enough(latest), long_enough(earliest))
    }

    /// What it is given with: owners in a row that did not let go, cursors standing still.
    fn next_takeovers(&self) -> u32 {
        match self.owner {
            None => 0,
            Some(_) if self.moved => 1,
            Some(_) => self.takeovers + 1,
        }
    }
}

impl Table {
    pub(super) fn new(partitions: u16, slack: Duration) -> Table {
        let rows = vec![Row::default(); usize::from(partitions)];
        Table { rows, now: Duration::ZERO, slack }
    }

    pub(super) fn row(&self, partition: PartitionId) -> &Row {
        &self.rows[usize::from(partition.0)]
    }

    pub(super) fn cursor_moved(&mut self, partition: PartitionId) {
        self.rows[usize::from(partition.0)].moved = true;
    }

    /// Compares an answer, and takes over what it granted.
    pub(super) fn acquired(
        &mut self,
        request: &AcquireRequest,
        answer: &Acquired,
        met: &Met,
    ) -> Result<(), Broken> {
        let now = self.now;
        // Whoever is dead is dead in all his partitions.
        let stands = |dead: &&Lease| {
            self.rows.get(usize::from(dead.partition.0)).is_some_and(|row| row.is_of(dead))
        };
        let dead = request.dead.as_ref().filter(stands).map(|dead| &dead.owner);
        let rows = self.rows.iter();
        let available: Vec<_> = rows.map(|row| row.availability(dead, request, now)).collect();
        let granted: Vec<u16> = answer.granted.iter().map(|one| one.lease.partition.0).collect();
        holds(Rule::OneHolder, granted.is_sorted_by(|a, b| a < b), || {
            format!("each partition is granted once, in order: {granted:?}")
        })?;
        for one in &answer.granted {
            let (_, may) = available[usize::from(one.lease.partition.0)];
            holds(Rule::OneHolder, may, || {
                format!(
                    "{:?} was granted; {:?} at {now:?}",
                    one.lease,
                    self.row(one.lease.partition)
                )
            })?;
        }
        let must = available.iter().filter(|(must, _)| *must).count();
        let expected = must.min(usize::from(request.wanted));
        let fits = granted.len() >= expected && granted.len() <= usize::from(request.wanted);
        holds(Rule::FreeIsGiven, fits, || {
            format!("{granted:?} of {request:?} at {now:?}: {:?}", self.rows)
        })?;
        for one in &answer.granted {
            self.grant(request, one, met)?;
        }
        self.told(request, answer, &granted)
    }

    fn grant(
        &mut self,
        request: &AcquireRequest,
        granted: &Granted,
        met: &Met,
    ) -> Result<(), Broken> {
        let Granted { lease, takeovers } = granted;
        let now = self.now;
        let row = &mut self.rows[usize::from(lease.partition.0)];
        holds(Rule::TokenGrows, lease.token > row.token, || {
            format!("{lease:?} after token {}", row.token)
        })?;
        holds(Rule::HoldersAreTold, lease.owner == request.owner, || {
            format!("{lease:?} was granted to {}", request.owner)
        })?;
        let expected = row.next_takeovers();
        holds(Rule::TakeoversAreCounted, *takeovers == expected, || {
            format!("{takeovers} takeovers, expected {expected} after {row:?}")
        })?;
        met.note(match expected {
            0 => "granted what was free",
            1 if row.moved => "taken over after a cursor moved",
            1 => "taken over",
            _ => "taken over again",
        });
        if row.runs(now) {
            met.note("taken over from one that was proved dead");
        }
        *row = Row {
            owner: Some(lease.owner.clone()),
            token: lease.token,
            ends: now + request.lease_duration,
            free_since: (now, now),
            takeovers: expected,
            moved: false,
        };
        Ok(())
    }

    /// Whoever holds something is told of, for as long as it holds it.
    fn told(
        &self,
        request: &AcquireRequest,
        answer: &Acquired,
        granted: &[u16],
    ) -> Result<(), Broken> {
        for (partition, row) in (0u16..).zip(&self.rows) {
            if granted.contains(&partition) {
                continue;
            }
            let mut told = answer.held.iter().filter(|held| held.lease.partition.0 == partition);
            let (first, more) = (told.next(), told.next());
            let right = match first {
                None => !row.runs(self.now),
                Some(held) => {
                    let left = row.ends.saturating_sub(self.now);
                    let off = left.abs_diff(held.expires_in);
                    row.runs(self.now) && row.is_of(&held.lease) && off <= self.slack
                }
            };
            holds(Rule::HoldersAreTold, right && more.is_none(), || {
                format!("{first:?} was told of {row:?} at {:?}", self.now)
            })?;
        }
        let census = answer.census;
        holds(Rule::HoldersAreTold, census.relays >= 1 && census.current <= census.relays, || {
            format!("{census:?} without {}", request.owner)
        })
    }

    /// Compares what a renewal kept, and prolongs it.
    pub(super) fn renewed(
        &mut self,
        asked: &[Lease],
        kept: &[Lease],
        duration: Duration,
        met: &Met,
    ) -> Result<(), Broken> {
        for lease in asked {
            let now = self.now;
            let row = &mut self.rows[usize::from(lease.partition.0)];
            let (stands, runs) = (row.is_of(lease), row.runs(now));
            let rule = if stands { Rule::EndedIsKept } else { Rule::StaleIsRefused };
            holds(rule, kept.contains(lease) == stands, || {
                format!("renewing {lease:?} kept {kept:?}; {row:?} at {now:?}")
            })?;
            met.note(match (stands, runs) {
                (true, true) => "renewed",
                (true, false) => "renewed after its end",
                (false, _) => "a stale lease was not renewed",
            });
            if stands {
                row.ends = now + duration;
            }
        }
        let strangers = kept.iter().filter(|lease| !asked.contains(lease)).count();
        holds(Rule::StaleIsRefused, strangers == 0, || format!("{kept:?} was not asked for"))
    }

    /// Lets go what still stands.
    pub(super) fn released(&mut self, leases: &[Lease], met: &Met) {
        for lease in leases {
            let now = self.now;
            let row = &mut self.rows[usize::from(lease.partition.0)];
            if row.is_of(lease) {
                met.note("let go");
                row.free_since = (row.ends.min(now), now);
                row.owner = None;
                row.takeovers = 0;
            } else {
                met.note("a stale lease was let go");
            }
        }
    }
}
