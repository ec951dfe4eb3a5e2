//! What a process remembers of the database: its ticks, and to which life of the server what it holds of
//! each partition belongs.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::snapshot::{CrashToken, Incarnation, SequenceTick, SequenceTicks};
use postrider_core::source::FetchRequest;
use postrider_core::{DestinationId, Lease, Timestamp};

use crate::answer::Fixed;
use crate::room::Room;

/// The memory of a store's handle.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) ticks: SequenceTicks,
    /// How large payloads are.
    pub(crate) room: Room,
    /// What was fixed when the tables were made.
    pub(crate) fixed: Option<Fixed>,
    /// What the sequence had given, as the last fetch read it.
    pub(crate) given: Option<(u64, Incarnation)>,
    /// By partition: under which token of the lease it was loaded, and in which life.
    lives: BTreeMap<u16, (u64, CrashToken)>,
    /// By partition: under which token of the lease, and for which destinations, it was made sure that
    /// the sequence was not set back before.
    looked_at: BTreeMap<u16, (u64, BTreeSet<DestinationId>)>,
    /// The number of the last settlement that was sent.
    settlement: u64,
}

impl Remembered {
    /// Something is loaded under a lease. Returns the life that everything loaded under it belongs to:
    /// with the first load under a lease, what was loaded before is forgotten.
    pub(crate) fn begin(&mut self, lease: &Lease, seen: Incarnation) -> Option<Incarnation> {
        let entry = self.lives.entry(lease.partition.0).or_default();
        if entry.0 != lease.token || entry.1.known().is_none() {
            entry.0 = lease.token;
            entry.1.adopt(seen);
        }
        entry.1.known()
    }

    /// The life that what was loaded under a lease belongs to.
    pub(crate) fn life_of(&self, lease: &Lease) -> Option<Incarnation> {
        let entry = self.lives.get(&lease.partition.0);
        entry.filter(|(token, _)| *token == lease.token).and_then(|(_, token)| token.known())
    }

    /// The number of the next settlement: higher than all before, also than those of another handle that had
    /// the lease before this one, unless a clock was set back meanwhile. Never compared between leases.
    pub(crate) fn next_settlement(&mut self, now: Timestamp) -> u64 {
        let now = u64::try_from(now.as_micros()).unwrap_or_default();
        self.settlement = now.max(self.settlement + 1);
        self.settlement
    }

    /// Whether it is still to be made sure that no event went back below the cursor of a question.
    pub(crate) fn is_to_be_looked_at(&self, request: &FetchRequest) -> bool {
        let known = self.looked_at.get(&request.lease.partition.0);
        known.filter(|(token, _)| *token == request.lease.token).is_none_or(|(_, known)| {
            request.destinations.iter().any(|destination| !known.contains(destination))
        })
    }

    /// It was, and so for these destinations in its partition.
    pub(crate) fn was_looked_at<'a>(
        &mut self,
        request: &'a FetchRequest,
        others: impl Iterator<Item = &'a DestinationId>,
    ) {
        let known = self.looked_at.entry(request.lease.partition.0).or_default();
        if known.0 != request.lease.token {
            *known = (request.lease.token, BTreeSet::new());
        }
        known.1.extend(request.destinations.iter().chain(others).cloned());
    }

    /// The last tick, unless it is known to be of another life of the server.
    pub(crate) fn tick(&self) -> Option<SequenceTick> {
        let is_of_this_life =
            |tick: &SequenceTick| self.given.is_none_or(|(_, life)| life == tick.incarnation);
        self.ticks.last().filter(is_of_this_life)
    }

    /// What the next page is asked with.
    pub(crate) fn room_and_tick(&self) -> (Room, Option<SequenceTick>) {
        (self.room, self.tick())
    }

    /// Whether a tick may say something new.
    pub(crate) fn wants_tick(&self) -> bool {
        self.given.is_none_or(|(given, life)| self.ticks.highest(life) != Some(given))
    }
}
