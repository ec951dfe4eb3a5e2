//! Ticks: how low a scan may begin; and the life of the server that numbers belong to.
//!
//! The rule and its proof are [`postrider_core::snapshot`]'s. Here are the two statements, one after the
//! answer to the other, and what is kept of them.

use std::sync::{MutexGuard, PoisonError};

use postrider_core::snapshot::{CrashToken, Incarnation, SequenceTick, Verdict};
use postrider_core::{Error, ErrorKind, Lease, Result, Tick};
use uuid::Uuid;

use crate::open;
use crate::remembered::Remembered;
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, unsigned};

const READ: Sql = sql!("tick/read");
const TAKE: Sql = sql!("tick/take");
const FLUSH: Sql = sql!("tick/flush");
const PLANT: Sql = sql!("tick/plant");

/// A token that is read is there soon after it is planted, unless the server crashes again and again.
const PLANTINGS_MAX: usize = 3;

impl PostgresStore {
    pub(crate) fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.inner.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tick, if it is time and the sequence has moved, or if there is none of this life of the server: a
    /// rebased cursor must not be read on from without one. Else the floor stands without its answer.
    pub(crate) async fn tick(&self, session: &Session) -> Result<()> {
        let now = Tick::default() + self.inner.born.elapsed();
        let known = {
            let mut remembered = self.remembered();
            let may_wait = remembered.tick().is_some();
            if may_wait && (!remembered.wants_tick() || !remembered.ticks.is_due(now)) {
                return Ok(());
            }
            remembered.ticks.begin(now);
            remembered.given
        };
        let read = match known {
            Some(read) => Some(read),
            None => self.read_sequence(session).await?,
        };
        let Some((floor, incarnation)) = read else {
            return Ok(());
        };
        let taken = session.row("tick", &TAKE, params![]).await?;
        open::one_by_one("tick", taken.get("cached"))?;
        self.note(floor, incarnation, taken.get(0), taken.get(1));
        Ok(())
    }

    /// Makes durable what was committed before in this life of the server, as far as the log was written when it
    /// was read. A flush of ours is a tick as well.
    ///
    /// # Errors
    /// `Conflict` if the server has crashed since: then what was read was never durable, and may never have
    /// happened.
    pub(crate) async fn flush(
        &self,
        floor: u64,
        written: &str,
        read_in: Option<Incarnation>,
    ) -> Result<()> {
        let session = self.sessions().line(Line::Flush, "flush").await?;
        let taken = session.row("flush", &FLUSH, params![written]).await?;
        let seen = taken.get::<_, Option<Uuid>>(3);
        self.same_life(&session, read_in, seen.map(life)).await?;
        if let (Some(incarnation), Some(xid)) = (read_in, taken.get::<_, Option<i64>>(2)) {
            open::one_by_one("flush", taken.get("cached"))?;
            self.note(floor, incarnation, xid, seen);
        }
        Ok(())
    }

    /// Refuses what was read in one life of the server and made sure of in another.
    pub(crate) async fn same_life(
        &self,
        session: &Session,
        read_in: Option<Incarnation>,
        seen: Option<Incarnation>,
    ) -> Result<()> {
        if seen.is_some() && seen == read_in {
            return Ok(());
        }
        Err(self.other_life(session, "fetch", seen).await)
    }

    fn note(&self, floor: u64, incarnation: Incarnation, xid: i64, token: Option<Uuid>) {
        if token.map(life) == Some(incarnation) {
            let tick = SequenceTick { floor, xid: unsigned(xid), incarnation };
            self.remembered().ticks.note(tick);
        }
    }

    async fn read_sequence(&self, session: &Session) -> Result<Option<(u64, Incarnation)>> {
        let row = session.row("read sequence", &READ, params![]).await?;
        let given = unsigned(row.get(0));
        let (token, unnumbered): (Option<Uuid>, bool) = (row.get(1), row.get(2));
        Ok(token.filter(|_| unnumbered).map(|token| (given, life(token))))
    }

    /// The life of the server that what was loaded under a lease belongs to.
    pub(crate) fn life_of(&self, lease: &Lease) -> Option<Incarnation> {
        self.remembered().life_of(lease)
    }

    /// Leaves a token where there is none, and reads the one that stands then.
    pub(crate) async fn plant(&self, session: &Session) -> Result<Incarnation> {
        for _ in 0..PLANTINGS_MAX {
            session.execute("plant token", &PLANT, params![]).await?;
            let row = session.row("read sequence", &READ, params![]).await?;
            if let Some(token) = row.get::<_, Option<Uuid>>(1) {
                return Ok(life(token));
            }
        }
        Err(Error::new(ErrorKind::Busy, "plant token")
            .message("the server crashes again and again; nothing was read"))
    }

    /// What is said to an engine whose memory belongs to another life of the server: that the partition is
    /// not as it remembers it.
    pub(crate) async fn other_life(
        &self,
        session: &Session,
        operation: &'static str,
        seen: Option<Incarnation>,
    ) -> Error {
        if seen.is_none() {
            // If this fails, the next load finds none either.
            _ = self.plant(session).await;
        }
        crashed(operation)
    }
}

/// The life that a token stands for.
pub(crate) fn life(token: Uuid) -> Incarnation {
    Incarnation(token.as_u128())
}

/// Compares what a statement read with what is remembered. Where nothing is, nothing is wrong.
pub(crate) fn judge(known: Option<Incarnation>, seen: Option<Incarnation>) -> Verdict {
    match known {
        None if seen.is_some() => Verdict::Keep,
        None => Verdict::Plant,
        Some(known) => CrashToken::knowing(known).judge(seen),
    }
}

/// The answer to whoever remembers another life of the server.
pub(crate) fn crashed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, operation).message(
        "the server has crashed since the partition was loaded; nothing was read or written, and what \
         was not saved comes again",
    )
}
