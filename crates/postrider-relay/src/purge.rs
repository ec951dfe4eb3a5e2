//! Purge: let the store delete what is old, was passed by every cursor, and waits nowhere.
//!
//! Keeps INV-1: the store decides what may go, under our lease; with an archive, nothing goes that the
//! archive has not taken. Everything else comes first: one question at a time, never while draining.

use std::time::Duration;

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::{PartitionId, Result, Tick, reach};

use crate::command::Command;
use crate::machine::{Asked, Machine};
use crate::notice::Notice;
use crate::observe::Point;
use crate::perform::Performer;
use crate::trouble::Work;

/// What is deleted, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Events go that were created longer ago, on the store's clock.
    pub older_than: Duration,
    /// How often a partition is looked at. Default 60 s: what is kept for days need not go to the
    /// second.
    pub every: Duration,
    /// Events deleted in one write. Default 1,000: no lock is held for long.
    pub rows_max: u32,
}

impl Retention {
    /// Deletes what is older, with the default pace.
    pub const fn of(older_than: Duration) -> Retention {
        Retention { older_than, every: Duration::from_secs(60), rows_max: 1_000 }
    }
}

impl Machine {
    /// Asks for one piece of one partition, if some is due and nothing of the kind is under way.
    pub(crate) fn purge(&mut self) {
        let Some(retention) = self.settings.retention else { return };
        if self.purging || self.mode.is_draining() {
            return;
        }
        let due =
            self.owned.iter().filter(|(_, owned)| !owned.leaving && owned.retire_at <= self.now);
        let Some((partition, lease)) = due
            .min_by_key(|(_, owned)| owned.retire_at)
            .map(|(id, owned)| (*id, owned.lease.clone()))
        else {
            return;
        };
        reach!(PurgeAsked);
        self.purging = true;
        let Retention { older_than, rows_max, .. } = retention;
        let asked = Asked::Retire(partition, lease.token);
        let request = RetireRequest { lease, older_than, rows_max, only: None };
        self.command(asked, Command::Retire(request));
    }

    pub(crate) fn retired(&mut self, partition: PartitionId, token: u64, result: Result<Retired>) {
        let now = self.now;
        self.purging = false;
        let Some(retention) = self.settings.retention else { return };
        let Some(owned) = self.owned_under(partition, token) else { return };
        match owned.trouble.note(Work::Retire, None, result) {
            Some(Retired { rows, more }) => {
                // One that deletes nothing is not asked again at once, whatever it says.
                owned.retire_at = if more && rows > 0 { now } else { now + retention.every };
                if rows > 0 {
                    reach!(PurgeDeleted);
                    self.stats.retired += u64::from(rows);
                    self.notices.push(Notice::Retired { partition, rows });
                }
            }
            None => {
                reach!(PurgeFailed);
                owned.retire_at = now + retention.every;
            }
        }
    }

    /// When the next partition is to be looked at.
    pub(crate) fn purge_wake_at(&self) -> Option<Tick> {
        if self.settings.retention.is_none() || self.purging || self.mode.is_draining() {
            return None;
        }
        let owned = self.owned.values().filter(|owned| !owned.leaving);
        owned.map(|owned| owned.retire_at).min()
    }
}

impl Performer {
    /// Deletes one piece: with an archive, what that has taken, and nothing else.
    pub(crate) async fn retire(&self, mut request: RetireRequest) -> Result<Retired> {
        let (source, deadline) = (&self.source, self.store_deadline);
        let Some(archive) = &self.archive else {
            return self.ask("retire", deadline, source.retire(&request)).await;
        };
        let events = self.ask("retire", deadline, source.retirable(&request)).await?;
        if events.is_empty() {
            return Ok(Retired::default());
        }
        self.ask("archive", deadline, archive.append(&events)).await?;
        reach!(PurgeArchived);
        self.reached(Point::AfterArchive).await;
        request.only = Some(events.iter().map(|event| event.id).collect());
        let retired = self.ask("retire", deadline, source.retire(&request)).await?;
        // The store can say only whether more of these are left.
        let full = events.len() >= request.rows_max as usize;
        Ok(Retired { rows: retired.rows, more: retired.more || full })
    }
}
