//! Cursors: how far a (partition, destination) is settled, opaque to the engine.

use std::fmt;
use std::sync::Arc;

/// A point in a source's order of events.
///
/// The engine compares cursors for equality, orders positions of one page, and gives cursors back;
/// it never looks inside. What the two parts mean is the source's business:
///
/// | source | base | position |
/// |---|---|---|
/// | number (SQLite) | empty | the sequence number of the last event passed |
/// | snapshot (PostgreSQL) | base and target snapshot, pending transactions, floors | the sequence number within the target |
/// | change log | stream and generation | log position, with the index within a transaction |
/// | row state | a nonce of this reading | the last row handed out |
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cursor {
    base: Arc<[u8]>,
    position: u64,
}

impl Cursor {
    /// A cursor that is a number and nothing else.
    pub fn number(position: u64) -> Cursor {
        Cursor { base: Arc::from([]), position }
    }

    /// A cursor with a base, shared by all rows of a page.
    pub fn new(base: Arc<[u8]>, position: u64) -> Cursor {
        Cursor { base, position }
    }

    /// The source's own part.
    pub fn base(&self) -> &Arc<[u8]> {
        &self.base
    }

    /// The position within the base.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The cursor at another position of the same base.
    #[must_use]
    pub fn at(&self, position: u64) -> Cursor {
        Cursor { base: Arc::clone(&self.base), position }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.base.is_empty() {
            write!(f, "{:016x}:", crate::key::fold_bytes(&self.base))?;
        }
        write!(f, "{}", self.position)
    }
}
