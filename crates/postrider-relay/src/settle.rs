//! Settle: write outcomes, one fenced write at a time per partition.
//!
//! Keeps INV-7: a cursor moves only over what was acknowledged or enters `waiting` in the same
//! write. A settlement that the store did not answer for is sent again as it was.

use postrider_core::waiting::{Placement, Settlement, SettlementPart, WaitingChange};
use postrider_core::{ErrorKind, PartitionId, Result, RetryClass};

use crate::command::Command;
use crate::machine::{Asked, FlowState, Machine, Owned, Settling};
use crate::trouble::Work;

impl Machine {
    /// Begins a settlement in each partition that has one to write and none under way.
    pub(crate) fn settle(&mut self) {
        let partitions: Vec<_> = self.owned.keys().copied().collect();
        for partition in partitions {
            let hurry = self.mode.is_draining() || self.mode.has_target();
            let (now, settings) = (self.now, self.settings);
            let Some(owned) = self.owned.get_mut(&partition) else {
                continue;
            };
            match &mut owned.settling {
                Some(settling) if settling.retry_at.is_some_and(|at| at <= now) => {
                    settling.retry_at = None;
                }
                Some(_) => continue,
                None => {
                    let hurry = hurry || owned.leaving;
                    if !wants_settlement(owned, hurry, now, &settings) {
                        continue;
                    }
                    let parts = collect(owned);
                    owned.settling = Some(Settling { retry_at: None, attempts: 0, parts });
                }
            }
            self.send_settlement(partition);
        }
    }

    fn send_settlement(&mut self, partition: PartitionId) {
        let Some(owned) = self.owned.get(&partition) else {
            return;
        };
        let Some(settling) = &owned.settling else {
            return;
        };
        let settlement = Settlement {
            lease: owned.lease.clone(),
            parts: settling.parts.iter().map(|(part, _)| part.clone()).collect(),
        };
        let asked = Asked::Settle(partition, owned.lease.token);
        self.stats.settlements += 1;
        self.command(asked, Command::Settle(settlement));
    }

    pub(crate) fn settle_answered(
        &mut self,
        partition: PartitionId,
        token: u64,
        result: Result<()>,
    ) {
        let (now, settings) = (self.now, self.settings);
        let Some(owned) = self.owned_under(partition, token) else {
            return;
        };
        let Some(mut settling) = owned.settling.take() else {
            return;
        };
        let error = match result {
            Ok(()) => {
                owned.trouble.clear(Work::Settle, None);
                for (part, changed) in &settling.parts {
                    if let Some(flow) = owned.flow(&part.destination) {
                        flow.settled(part, changed, now);
                    }
                }
                let endpoints = |part: &SettlementPart| !part.disabled.is_empty();
                for (part, _) in settling.parts.iter().filter(|(part, _)| endpoints(part)) {
                    self.told(&part.destination, &part.disabled);
                }
                let cursor_moved = settling.parts.iter().any(|(part, _)| part.cursor.is_some());
                if cursor_moved {
                    self.stats.progressed_at = now;
                }
                let dead: usize = settling.parts.iter().map(|(part, _)| dead_letters(part)).sum();
                self.stats.dead += dead as u64;
                return;
            }
            Err(error) => error,
        };
        let fenced = matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Conflict);
        if fenced || error.retry_class() == RetryClass::Permanent {
            // Somebody else owns the partition, or it is not as we remember it: nothing was
            // written. Whoever owns it loads it anew, and so do we if it is still ours.
            let lease = owned.lease.clone();
            let moved = error.kind() == ErrorKind::Conflict;
            self.stats.fenced += 1;
            self.stats.trouble.add(Work::Settle, None, error);
            self.lose(partition);
            if moved {
                // It may still be ours, and would be nobody's until the lease ends.
                self.let_go(vec![lease]);
            }
            return;
        }
        settling.attempts = settling.attempts.saturating_add(1);
        let doublings = settling.attempts.min(6);
        let pause = settings.poll_min.saturating_mul(1 << doublings).min(settings.heartbeat);
        settling.retry_at = Some(now + pause);
        owned.settling = Some(settling);
        owned.trouble.add(Work::Settle, None, error);
    }

    /// Whether nothing of a partition is under way and everything is saved.
    pub(crate) fn is_partition_idle(&self, partition: PartitionId, owned: &Owned) -> bool {
        let in_flight = owned.ready().any(|(_, flow)| {
            flow.fetching
                || flow.asking
                || flow.has_outcomes()
                || flow.lanes.values().any(|lane| lane.in_flight > 0)
        });
        debug_assert_eq!(owned.lease.partition, partition);
        owned.settling.is_none() && !in_flight
    }
}

/// How many dead letters a settlement writes.
fn dead_letters(part: &SettlementPart) -> usize {
    let entered =
        part.waiting.iter().filter(|new| matches!(new.placement, Placement::Dead { .. })).count();
    let gave_up =
        part.changes.iter().filter(|change| matches!(change, WaitingChange::Dead { .. })).count();
    entered + gave_up
}

/// Whether it is time to write: something entered or changed in `waiting`, an eighth of a window is
/// settled, or the oldest unsaved outcome is old enough.
fn wants_settlement(
    owned: &Owned,
    hurry: bool,
    now: postrider_core::Tick,
    settings: &crate::Settings,
) -> bool {
    owned.ready().any(|(_, flow)| {
        let dirty = flow.window.is_dirty();
        let eighth = flow.window.settled() as u64 >= u64::from(settings.window.rows_max / 8).max(1);
        let heavy = flow.window.bytes() >= settings.window.bytes_max / 2;
        let old = flow.unsaved_since.is_some_and(|since| now >= since + settings.save_after);
        !flow.part.is_empty() || (dirty && (hurry || eighth || heavy || old))
    })
}

/// Takes what there is to write, of all destinations of the partition: one write serves them all.
fn collect(owned: &mut Owned) -> Vec<(SettlementPart, Vec<(postrider_core::KeyHash, bool)>)> {
    let mut parts = Vec::new();
    for (destination, state) in &mut owned.flows {
        let FlowState::Ready(flow) = state else {
            continue;
        };
        let empty = SettlementPart::new(destination.clone());
        let mut part = std::mem::replace(&mut flow.part, empty);
        if let Some(advance) = flow.window.advance() {
            part.cursor = Some((advance.from, advance.to));
            part.passed = advance.passed;
        }
        flow.unsaved_since = None;
        let changed = std::mem::take(&mut flow.changed);
        if !part.is_empty() {
            parts.push((part, changed));
        }
    }
    parts
}
