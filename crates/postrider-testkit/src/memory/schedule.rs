//! Scheduled events: they enter the outbox, and their key's order, when they are due.

use std::time::Duration;

use postrider_core::source::Admitted;
use postrider_core::{Error, ErrorKind, Event, Lease, Result, Timestamp};

use super::kind::Kind;
use super::state::{NewRow, State};

#[derive(Clone, Debug)]
pub(super) struct Scheduled {
    pub(super) event: Event,
    pub(super) format: u16,
}

impl State {
    pub(super) fn admit(
        &mut self,
        lease: &Lease,
        rows_max: u32,
        now: Timestamp,
        elapsed: Duration,
    ) -> Result<Admitted> {
        self.fence("admit", lease)?;
        let own = |state: &State, event: &Event| state.home(event.key_hash()) == lease.partition.0;
        let due: Vec<(Timestamp, u64)> = self
            .scheduled
            .range(..=(now, u64::MAX))
            .filter(|(_, scheduled)| own(self, &scheduled.event))
            .map(|(place, _)| *place)
            .take(rows_max as usize)
            .collect();
        if !due.is_empty() {
            self.take_turn("admit")?;
            let xid = self.xids.begin();
            for place in &due {
                let Scheduled { event, format } =
                    self.scheduled.remove(place).expect("invariant: just read");
                // A new number: its place in its key's order is the moment of entry.
                let seq = self.draw_seq();
                self.append(NewRow { seq, xid, format, event }, elapsed);
            }
            self.xids.end(xid, true);
            self.ledger.wrote("admit", lease);
        }
        let next = self.scheduled.iter().find(|(_, scheduled)| own(self, &scheduled.event));
        Ok(Admitted {
            moved: u32::try_from(due.len()).unwrap_or(u32::MAX),
            next_in: next.map(|((due, _), _)| -> Duration { due.since(now) }),
        })
    }

    /// Where there is one writer at a time, a number drawn beside it would be passed before its own.
    pub(super) fn take_turn(&self, statement: &'static str) -> Result<()> {
        if self.kind == Kind::Number && self.server.writer.is_some() {
            return Err(Error::new(ErrorKind::Busy, statement)
                .message("another transaction is writing; nothing was written"));
        }
        Ok(())
    }
}
