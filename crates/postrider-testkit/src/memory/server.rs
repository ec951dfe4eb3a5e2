//! What may happen to the server: it crashes, fails over to a standby that lags, takes no writes, or
//! has no room.

use std::time::Duration;

use postrider_core::snapshot::Snapshot;
use postrider_core::{Error, ErrorKind, EventId, Result};

use super::kind::Kind;
use super::state::State;
use super::{Access, MemoryStore};

/// The server's own condition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Server {
    /// How often it went away: what was under way then is lost.
    pub(super) epoch: u64,
    /// Which server's history this is: grows when a standby takes over.
    pub(super) history: u64,
    read_only: bool,
    full: bool,
    /// So many events may be behind the slowest destination.
    watermark: Option<u64>,
    /// The one writer that there is at a time, where there is one.
    pub(super) writer: Option<u64>,
    /// A random number in a table that does not survive a crash.
    crash_token: Option<u64>,
}

/// What a statement needs of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// It only looks.
    Nothing,
    /// It changes or deletes what is there.
    Writing,
    /// It adds something.
    Room,
}

impl Needs {
    pub(super) fn access(self) -> Access {
        match self {
            Needs::Nothing => Access::Read,
            Needs::Writing | Needs::Room => Access::Write,
        }
    }
}

/// A standby: the store as it was at a moment.
#[derive(Debug)]
pub struct Standby(Box<State>);

impl MemoryStore {
    /// The server crashes and is there again: open transactions are rolled back, locks and what is
    /// kept in unlogged tables are gone, and transaction numbers that were not durable are given again.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// A standby that has everything up to now, and nothing from now on.
    pub fn checkpoint(&self) -> Standby {
        Standby(Box::new(self.state().clone()))
    }

    /// The server is gone and its standby takes over. Returns the committed events that are lost.
    pub fn fail_over(&self, standby: Standby) -> Vec<EventId> {
        self.state().fail_over(*standby.0)
    }

    /// How often the server went away. What was under way at that moment is lost.
    pub fn epoch(&self) -> u64 {
        self.state().server.epoch
    }

    /// Refuses every write, as a standby does, or takes them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().server.read_only = read_only;
    }

    /// Refuses every write that needs room, as a full disk does, or takes them again.
    pub fn set_full(&self, full: bool) {
        self.state().server.full = full;
    }

    /// Asks relays for so much time between two saves of a cursor.
    pub fn ask_saves_apart(&self, apart: Duration) {
        self.state().saves_apart = apart;
    }

    /// Lets `enqueue` fail while so many events are behind the slowest destination.
    pub fn set_watermark(&self, events: Option<u64>) {
        self.state().server.watermark = events;
    }
}

impl State {
    /// Whether the server can do what a statement needs.
    pub(super) fn admits(&self, statement: &'static str, needs: Needs) -> Result<()> {
        if needs != Needs::Nothing && self.server.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, statement)
                .message("the server takes no writes; nothing was written"));
        }
        if needs == Needs::Room && self.server.full {
            return Err(Error::new(ErrorKind::DiskFull, statement)
                .message("the server has no room; nothing was written"));
        }
        Ok(())
    }

    /// Whether the outbox takes one more.
    pub(super) fn check_watermark(&self) -> Result<()> {
        let Some(watermark) = self.server.watermark else { return Ok(()) };
        let behind: usize = self.partitions().map(|partition| self.behind(partition)).sum();
        if (behind as u64) < watermark {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Backpressure, "enqueue")
            .message("the outbox is full; nothing was written")
            .context("behind", behind))
    }

    fn crash(&mut self) {
        self.server.epoch += 1;
        self.server.crash_token = None;
        if self.server.writer.take().is_some() && self.kind == Kind::Number {
            // The numbers of the one writer go with it.
            self.seq_last = self.open.first().map_or(self.seq_last, |first| first - 1);
        }
        self.open.clear();
        self.accepting.clear();
        self.locks.clear();
        self.xids.crash();
    }

    fn fail_over(&mut self, standby: State) -> Vec<EventId> {
        let lost = self.ids.difference(&standby.ids).copied().collect();
        let before = std::mem::replace(self, standby);
        self.version = before.version + 1;
        self.ledger.remember(before.ledger);
        self.server = Server {
            epoch: before.server.epoch,
            history: before.server.history + 1,
            watermark: before.server.watermark,
            ..Server::default()
        };
        self.crash();
        if self.kind != Kind::Snapshot {
            // Such a store knows by its log that it is another server now: what anybody remembers of
            // the one before is void. The kind with snapshots has to notice it.
            self.leases.iter_mut().for_each(super::lease::LeaseRow::void);
            self.ledger.forget_grants();
        }
        lost
    }

    /// What a statement sees now.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.xids.snapshot()
    }

    /// What the sequence says of itself: its last value, and whether it was given. A fresh one says 1.
    pub(super) fn sequence(&self) -> (u64, bool) {
        (self.seq_last.max(1), self.seq_last > 0)
    }

    /// The token that a crash takes away, if there is one.
    pub(super) fn crash_token(&self) -> Option<u64> {
        self.server.crash_token
    }

    /// Writes a token if there is none, and says which one stands.
    pub(super) fn offer_crash_token(&mut self, token: u64) -> u64 {
        *self.server.crash_token.get_or_insert(token)
    }

    /// Writes a token over whatever stands: only somebody who is wrong does.
    pub(super) fn overwrite_crash_token(&mut self, token: u64) {
        self.server.crash_token = Some(token);
    }
}
