//! Settle: write outcomes, one fenced write at a time per partition.
//!
//! Keeps INV-7: a cursor moves only over what was acknowledged or enters `waiting` in the same
//! write. A settlement that the store did not answer for is sent again as it was, unless requests of
//! operators were carried out meanwhile.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::{Passed, Placement, SettlementPart, WaitingChange};
use postrider_core::{
    Error, ErrorKind, Invariant, KeyHash, PartitionId, Result, RetryClass, planted, reach,
};

use crate::command::Command;
use crate::flow::Flow;
use crate::lane::{Lane, Origin};
use crate::machine::{Asked, Machine};
use crate::notice::{LostBecause, Notice};
use crate::owned::{FlowState, Owned, Settling};
use crate::room::{Budget, Bytes};
use crate::trouble::Work;
use crate::violation::Broken;
use crate::window::Advance;

/// Doubled with each attempt of a settlement: a store that was busy for a moment is soon asked again.
const RETRY_MIN: Duration = Duration::from_millis(5);

/// So many bytes of each partition are worth a save where there is hardly any room: a hundred small rows.
const SAVE_MIN: u64 = 32 * 1024;

/// A part of a settlement, with the key of each change in it and whether the event held it.
type Written = (SettlementPart, Vec<(KeyHash, bool)>);

impl Machine {
    /// Begins a settlement in each partition that has one to write and none under way.
    pub(crate) fn settle(&mut self) {
        let partitions: Vec<_> = self.owned.keys().copied().collect();
        let budget = self.budget();
        let urge = self.urge(&budget);
        for partition in partitions {
            let now = self.now;
            let wants = self.wants_settlement(partition, urge, &budget);
            let Some(owned) = self.owned.get_mut(&partition) else {
                continue;
            };
            match &mut owned.settling {
                // Not while requests are being carried out: the answer says whether it still may.
                Some(settling)
                    if !owned.carrying && settling.retry_at.is_some_and(|at| at <= now) =>
                {
                    reach!(SettleSentAgain);
                    settling.retry_at = None;
                }
                Some(_) => continue,
                None if !wants => continue,
                None => {
                    let (parts, broken) = collect(owned);
                    reach!(SettleSent);
                    reach!(SettleSentOfMany, if parts.len() > 1);
                    owned.settling = Some(Settling::new(owned.lease.clone(), parts));
                    broken.into_iter().for_each(|broken| self.violated(broken));
                }
            }
            self.send_settlement(partition);
        }
    }

    /// What the relay as a whole has to say about saving now.
    fn urge(&self, budget: &Budget) -> Urge {
        let now = self.now;
        let (mut aged, mut freed, mut partitions) = (false, Bytes::default(), 0);
        for owned in self.owned.values().filter(|owned| owned.settling.is_none()) {
            partitions += 1;
            // What destinations have read together is there once.
            let mut together = 0;
            for (_, flow) in owned.ready().filter(|(_, flow)| flow.window.is_dirty()) {
                let after = self.saving(flow, budget).after;
                aged |= flow.unsaved_since.is_some_and(|since| now >= since + after);
                together = flow.window.savable_bytes().max(together);
                freed.memory += flow.window.savable_slot_bytes();
            }
            freed.unsaved += together;
        }
        let limits = &self.settings.window;
        // The less there is left, the less is worth a save, down to some rows of each partition.
        let least = (limits.page_bytes_max / 8).max(partitions * SAVE_MIN);
        let left = budget.left;
        let worth = (limits.total_bytes_max / 8).min(left.unsaved / 2).max(least);
        let short = left.unsaved < limits.total_bytes_max / 4 && freed.unsaved >= worth;
        // Of several destinations one may hold so much that what is not saved takes the room of what is to be read.
        let most = limits.memory_bytes_max;
        let worth = (2 * left.memory).max(most / 16);
        let crowded = budget.is_shared() && left.memory < most / 8 && freed.memory >= worth;
        Urge {
            ends: self.mode.is_draining(),
            reaches: self.mode.has_target(),
            aged,
            heavy: (short || crowded).then(|| freed.unsaved / (4 * partitions.max(1))),
        }
    }

    /// Whether it is time to write: something entered or changed in `waiting`, an eighth of a window is
    /// settled (half of it while saves are dear), the oldest unsaved outcome is old enough, or the relay urges.
    fn wants_settlement(&self, partition: PartitionId, urge: Urge, budget: &Budget) -> bool {
        let Some(owned) = self.owned.get(&partition).filter(|owned| owned.settling.is_none())
        else {
            return false;
        };
        let (now, limits) = (self.now, &self.settings.window);
        owned.ready().any(|(_, flow)| {
            let dirty = flow.window.is_dirty();
            let saving = self.saving(flow, budget);
            let after = if urge.aged { saving.after / 2 } else { saving.after };
            let hurry = urge.ends || owned.leaving || (urge.reaches && flow.reached);
            let many = flow.window.settled() as u64 >= saving.rows;
            let heavy = flow.window.bytes() >= limits.bytes_max / 2;
            let pressed = urge.heavy.is_some_and(|least| flow.window.savable_bytes() >= least);
            let old = flow.unsaved_since.is_some_and(|since| now >= since + after);
            reach!(SettleForcedByRows, if dirty && many);
            reach!(SettleForcedByBytes, if dirty && (heavy || pressed));
            reach!(SettleForcedByAge, if dirty && old);
            reach!(SettleForcedByEnd, if dirty && hurry);
            !flow.part.is_empty() || (dirty && (hurry || many || heavy || pressed || old))
        })
    }

    fn send_settlement(&mut self, partition: PartitionId) {
        let Some(owned) = self.owned.get(&partition) else {
            return;
        };
        let Some(settling) = &owned.settling else {
            return;
        };
        debug_assert_eq!(settling.settlement.lease, owned.lease, "a lease keeps its token");
        let settlement = Arc::clone(&settling.settlement);
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
        let settings = self.settings;
        let Some(owned) = self.owned_under(partition, token) else {
            return;
        };
        let Some(mut settling) = owned.settling.take() else {
            return;
        };
        let error = match result {
            Ok(()) => return self.saved(partition, token, &settling),
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Conflict) {
            return self.refused(partition, token, error);
        }
        if planted!(SettleNotResent) {
            // What it carried is forgotten.
            return;
        }
        settling.attempts = settling.attempts.saturating_add(1);
        settling.in_doubt |= leaves_doubt(error.kind());
        reach!(SettleInDoubt, if leaves_doubt(error.kind()));
        reach!(SettleRefused, if error.retry_class() == RetryClass::Permanent);
        let doublings = settling.attempts.min(6);
        let pause = match error.retry_class() {
            // Given up, the same window would be sent again, and refused again, every lease: it is
            // kept, sends nothing more once it is full, and is named.
            RetryClass::Permanent => settings.heartbeat,
            _ => RETRY_MIN.saturating_mul(1 << doublings).min(settings.heartbeat),
        };
        settling.retry_at = Some(self.again_within(pause));
        if let Some(owned) = self.owned_under(partition, token) {
            owned.settling = Some(settling);
            owned.trouble.add(Work::Settle, None, error);
        }
        self.give_up_crossed(partition);
    }

    /// A settlement that may be written or not, and would undo requests if it was sent again, is
    /// given up: what became of the partition is read anew, under another lease.
    pub(crate) fn give_up_crossed(&mut self, partition: PartitionId) {
        let Some(owned) = self.owned.get(&partition) else { return };
        let crossed = |settling: &Settling| settling.in_doubt && settling.crossed;
        if owned.settling.as_ref().is_some_and(crossed) && !planted!(SettleUndoesRequest) {
            reach!(SettleGivenUp);
            let lease = owned.lease.clone();
            self.lose(partition, LostBecause::InDoubt);
            self.let_go(vec![lease]);
        }
    }

    /// A settlement is written.
    fn saved(&mut self, partition: PartitionId, token: u64, settling: &Settling) {
        let now = self.now;
        let Some(owned) = self.owned_under(partition, token) else { return };
        reach!(SettleAnswered);
        reach!(SettleAnsweredAgain, if settling.attempts > 0);
        owned.trouble.clear(Work::Settle, None);
        let parts = &settling.settlement.parts;
        let cursor_moved = parts.iter().any(|part| part.cursor.is_some());
        for (part, changed) in parts.iter().zip(&settling.changed) {
            if let Some(flow) = owned.flow(&part.destination) {
                flow.settled(part, changed, now);
            }
        }
        let endpoints = |part: &SettlementPart| !part.disabled.is_empty();
        for part in parts.iter().filter(|part| endpoints(part)) {
            self.told(&part.destination, &part.disabled);
        }
        reach!(SettleMovedNoCursor, if !cursor_moved);
        if cursor_moved {
            self.stats.progressed_at = now;
        }
        let (mut rows, mut waiting) = (0, 0);
        for part in parts {
            let dead = dead_letters(part) as u64;
            self.stats.dead += dead;
            self.stats.tally(&part.destination).dead += dead;
            rows += part.passed.len() as u64;
            waiting += (part.waiting.len() + part.changes.len()) as u64;
        }
        self.notices.push(Notice::Settled { partition, rows, waiting });
    }

    /// Somebody else owns the partition, or it is not as we remember it: nothing was written.
    /// Whoever owns it loads it anew, and so do we if it is still ours.
    pub(crate) fn refused(&mut self, partition: PartitionId, token: u64, error: Error) {
        let Some(owned) = self.owned_under(partition, token) else { return };
        let lease = owned.lease.clone();
        let moved = error.kind() == ErrorKind::Conflict;
        reach!(SettleConflict, if moved);
        reach!(SettleFenced, if !moved);
        self.stats.fenced += 1;
        let detail = error.to_string();
        self.notices.push(Notice::Fenced { partition, token, detail });
        self.stats.trouble.add(Work::Settle, None, error);
        self.lose(partition, LostBecause::Refused);
        if moved {
            // It may still be ours, and would be nobody's until the lease ends.
            self.let_go(vec![lease]);
        }
    }

    /// Whether nothing of a partition is under way and everything is saved.
    pub(crate) fn is_partition_idle(&self, partition: PartitionId, owned: &Owned) -> bool {
        let in_flight = owned.ready().any(|(_, flow)| {
            flow.fetching
                || flow.asking
                || flow.ranges.reading.is_some()
                || flow.has_outcomes()
                || flow.lanes.values().any(|lane| lane.in_flight > 0)
        });
        debug_assert_eq!(owned.lease.partition, partition);
        (owned.settling.is_none() && !in_flight) || planted!(DrainLetsGoUnsaved)
    }
}

/// Whether what failed so may be written all the same: who did not answer, or went away, did not say.
fn leaves_doubt(kind: ErrorKind) -> bool {
    use ErrorKind::{Closed, Corrupt, Internal, Timeout, Unavailable};
    matches!(kind, Timeout | Unavailable | Closed | Internal | Corrupt)
}

/// How many dead letters a settlement writes.
fn dead_letters(part: &SettlementPart) -> usize {
    let entered =
        part.waiting.iter().filter(|new| matches!(new.placement, Placement::Dead { .. })).count();
    let gave_up =
        part.changes.iter().filter(|change| matches!(change, WaitingChange::Dead { .. })).count();
    entered + gave_up
}

/// Why partitions save that would not by themselves.
#[derive(Clone, Copy)]
struct Urge {
    /// The relay ends.
    ends: bool,
    /// The relay ends as soon as its target is saved.
    reaches: bool,
    /// Some partition saves because of its age: those that would soon join it, so that a store can write
    /// them together.
    aged: bool,
    /// The relay has little room left to read, and saving gives back much of it: every window with so many
    /// settled bytes saves.
    heavy: Option<u64>,
}

/// Takes what there is to write, of all destinations of the partition: one write serves them all.
///
/// What it is about to claim is compared with what was counted apart.
fn collect(owned: &mut Owned) -> (Vec<Written>, Vec<Broken>) {
    let (mut parts, mut broken) = (Vec::new(), Vec::new());
    for (destination, state) in &mut owned.flows {
        let FlowState::Ready(flow) = state else {
            continue;
        };
        if owned.leaving && planted!(WindowForgetsOnRebalance) {
            for entry in flow.lanes.values().flat_map(Lane::iter) {
                if let Origin::Stream(ordinal) = entry.origin {
                    flow.window.settle(ordinal, Passed::OtherRoute);
                }
            }
        }
        let empty = SettlementPart::new(destination.clone());
        let mut part = std::mem::replace(&mut flow.part, empty);
        if let Some(advance) = flow.window.advance() {
            broken.extend(check(flow, &advance));
            part.cursor = Some((advance.from, advance.to));
            part.passed = advance.passed;
            part.ranges.extend(flow.ranges_to_tell());
        }
        flow.unsaved_since = None;
        let changed = std::mem::take(&mut flow.changed);
        if !part.is_empty() {
            parts.push((part, changed));
        }
    }
    (parts, broken)
}

/// Compares what a window says of its rows with the lanes they stand in, and with what was
/// acknowledged.
fn check(flow: &mut Flow, advance: &Advance) -> Vec<Broken> {
    let mut broken = Vec::new();
    let open = flow.window.len() - flow.window.settled();
    if open < flow.open {
        let what = "a settlement may pass an event that was not acknowledged";
        broken.push((Invariant::NoLoss, what));
    }
    if open > flow.open {
        broken.push((Invariant::Progress, "a row of the window stands in no lane"));
    }
    let acked = advance.passed.iter().filter(|(_, passed)| *passed == Passed::Acked).count() as u64;
    if acked > flow.acked {
        let what = "more is recorded as published than was acknowledged";
        broken.push((Invariant::Truth, what));
    }
    flow.acked = flow.acked.saturating_sub(acked);
    broken
}
