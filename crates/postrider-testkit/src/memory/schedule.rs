//! Scheduled events: they enter the outbox, and their key's order, when they are due.

use std::time::Duration;

use postrider_core::source::Admitted;
use postrider_core::{Event, Lease, Result, Timestamp};

use super::store::{State, partition_of};

#[derive(Clone, Debug)]
pub(super) struct Scheduled {
    pub(super) event: Event,
}

impl State {
    pub(super) fn admit(
        &mut self,
        lease: &Lease,
        rows_max: u32,
        now: Timestamp,
        partitions: u16,
    ) -> Result<Admitted> {
        self.fence("admit", lease)?;
        let own = |event: &Event| partition_of(event.key_hash(), partitions) == lease.partition.0;
        let due: Vec<(Timestamp, u64)> = self
            .scheduled
            .range(..=(now, u64::MAX))
            .filter(|(_, scheduled)| own(&scheduled.event))
            .map(|(place, _)| *place)
            .take(rows_max as usize)
            .collect();
        for place in &due {
            let scheduled = self.scheduled.remove(place).expect("invariant: just read");
            // A new number: its place in its key's order is the moment of entry.
            let seq = self.draw_seq();
            self.append(seq, scheduled.event, partitions);
        }
        let next = self.scheduled.iter().find(|(_, scheduled)| own(&scheduled.event));
        Ok(Admitted {
            moved: u32::try_from(due.len()).unwrap_or(u32::MAX),
            next_in: next.map(|((due, _), _)| -> Duration { due.since(now) }),
        })
    }
}
