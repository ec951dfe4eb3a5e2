//! Which life of the server an answer comes from.
//!
//! A server that crashed may give a transaction number, and a number of the sequence, a second time:
//! what was not on disk is forgotten, the counters included. A cursor in memory that passed the first
//! bearer of a number would pass the second one unread. A cursor that was *saved* is safe: the record
//! of the save stands in the log behind the ends of all the transactions it names as finished, so
//! recovery that finds the save has seen those numbers, and gives higher ones.
//!
//! Poolers hide the reconnect, so the connection does not tell. A random token in an *unlogged* table
//! of one row does: recovery and promotion empty that table, a clean restart does not.

use std::fmt;

/// One life of the server, between two crashes: the random token of that life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The life of the server that what is in memory belongs to.
///
/// Every fetch, save, load, and tick reads the token in the statement itself, and asks here what to do
/// with its answer.
///
/// ```
/// use postrider_core::snapshot::{CrashToken, Incarnation, Verdict};
/// let token = CrashToken::knowing(Incarnation(7));
/// assert_eq!(token.judge(Some(Incarnation(7))), Verdict::Keep);
/// assert_eq!(token.judge(Some(Incarnation(8))), Verdict::Forget);
/// assert_eq!(token.judge(None), Verdict::Plant);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashToken {
    known: Option<Incarnation>,
}

/// What to do with memory, and with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same life: memory and answer belong together.
    Keep,
    /// Another life: forget memory and answer, adopt the token that was seen, and load anew.
    Forget,
    /// The table is empty, so nobody has met this life yet: forget as well; insert a fresh random token
    /// unless one stands meanwhile, and read again. The token that is *read* is adopted, never the one
    /// that was inserted: of two relays that insert at once one succeeds. A token that stands is never
    /// overwritten, and one that was planted before a crash is never planted again; either would hide
    /// the crash from the other relays, or drive them in a circle.
    Plant,
}

impl CrashToken {
    /// Memory that was read under this token.
    pub fn knowing(known: Incarnation) -> CrashToken {
        CrashToken { known: Some(known) }
    }

    /// The token of what is in memory; `None` while there is nothing.
    pub fn known(&self) -> Option<Incarnation> {
        self.known
    }

    /// Compares what a statement read with what memory belongs to. Changes nothing: as long as anything
    /// of the old life is remembered, every answer of the new one must be refused.
    ///
    /// Nothing known counts as another life: what was read before the first token may be of any.
    pub fn judge(&self, seen: Option<Incarnation>) -> Verdict {
        match seen {
            None => Verdict::Plant,
            Some(_) if seen == self.known => Verdict::Keep,
            Some(_) => Verdict::Forget,
        }
    }

    /// Everything of the old life is forgotten: what is remembered from now on belongs to this one.
    pub fn adopt(&mut self, seen: Incarnation) {
        self.known = Some(seen);
    }
}
