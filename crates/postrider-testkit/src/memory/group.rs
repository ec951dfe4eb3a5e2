//! A consumer group: which messages are done, which are out, and which may be delivered now.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Fault, KeyHash, Result};

use super::broker::Message;

/// What a group knows of a topic's messages, by their index.
#[derive(Debug, Default)]
pub(super) struct Group {
    slots: Vec<Slot>,
    /// Everything before it is done.
    first_open: usize,
    pub(super) dead: Vec<(usize, Fault)>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    status: Status,
    /// Deliveries that count.
    count: u32,
    /// Grows with every delivery, also with those that do not count.
    token: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready { at: Duration },
    Out { until: Duration },
    Done,
}

/// A message that is delivered now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) index: usize,
    pub(super) count: u32,
    pub(super) token: u64,
}

impl Group {
    /// Takes up to `max` messages whose turn has come. A key's next message is not delivered before
    /// the one before it is settled.
    pub(super) fn take(
        &mut self,
        log: &[Message],
        max: usize,
        now: Duration,
        visibility: Duration,
    ) -> Vec<Taken> {
        let fresh = Slot { status: Status::Ready { at: Duration::ZERO }, count: 0, token: 0 };
        self.slots.resize(log.len(), fresh);
        let mut held: BTreeSet<KeyHash> = BTreeSet::new();
        let mut taken = Vec::new();
        let open = self.slots.iter_mut().enumerate().skip(self.first_open);
        for (index, slot) in open {
            if taken.len() == max {
                break;
            }
            if slot.status == Status::Done || !held.insert(log[index].event.key_hash()) {
                continue;
            }
            let ready = match slot.status {
                Status::Ready { at } => at <= now,
                Status::Out { until } => until <= now,
                Status::Done => false,
            };
            if ready {
                slot.status = Status::Out { until: now + visibility };
                slot.count += 1;
                slot.token += 1;
                taken.push(Taken { index, count: slot.count, token: slot.token });
            }
        }
        taken
    }

    /// When the next message that is out or postponed may be delivered, if that is a matter of time.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let open = self.slots.iter().skip(self.first_open);
        open.filter_map(|slot| match slot.status {
            Status::Ready { at } => Some(at),
            Status::Out { until } => Some(until),
            Status::Done => None,
        })
        .min()
    }

    /// How many messages are done, or dead.
    pub(super) fn settled(&self) -> usize {
        self.slots.iter().filter(|slot| slot.status == Status::Done).count()
    }

    pub(super) fn ack(&mut self, index: usize, token: u64, now: Duration) -> Result<()> {
        self.out(index, token, now)?.status = Status::Done;
        while self.slots.get(self.first_open).is_some_and(|slot| slot.status == Status::Done) {
            self.first_open += 1;
        }
        Ok(())
    }

    pub(super) fn nack(
        &mut self,
        index: usize,
        token: u64,
        now: Duration,
        delay: Duration,
        counted: bool,
    ) -> Result<()> {
        let slot = self.out(index, token, now)?;
        slot.status = Status::Ready { at: now + delay };
        if !counted {
            slot.count -= 1;
        }
        Ok(())
    }

    pub(super) fn reject(
        &mut self,
        index: usize,
        token: u64,
        now: Duration,
        fault: &Fault,
    ) -> Result<()> {
        self.ack(index, token, now)?;
        self.dead.push((index, fault.clone()));
        Ok(())
    }

    pub(super) fn extend(
        &mut self,
        index: usize,
        token: u64,
        now: Duration,
        by: Duration,
    ) -> Result<()> {
        self.out(index, token, now)?.status = Status::Out { until: now + by };
        Ok(())
    }

    /// After a crash every delivery under way comes again.
    pub(super) fn forget_deliveries(&mut self) {
        for slot in &mut self.slots {
            if let Status::Out { .. } = slot.status {
                slot.status = Status::Ready { at: Duration::ZERO };
            }
        }
    }

    /// The delivery, if its visibility runs and no later one was made.
    fn out(&mut self, index: usize, token: u64, now: Duration) -> Result<&mut Slot> {
        match self.slots.get_mut(index) {
            Some(slot)
                if slot.token == token
                    && matches!(slot.status, Status::Out { until } if until > now) =>
            {
                Ok(slot)
            }
            _ => Err(Error::new(ErrorKind::Fenced, "settle delivery")
                .message("its visibility has ended; it is delivered again")
                .context("message", index)),
        }
    }
}
