//! Ranges: what of a key is not copied into `waiting`, because so much of it stands there already.
//!
//! Keeps INV-6 (a key that waits costs the store at most some thousand rows, whatever comes behind them) and INV-1
//! (what is not copied is not forgotten: the range says from where it is read again).
//!
//! A range is one more cursor of a destination, for one key. It stands for the key's events that lie between it and the
//! destination's own cursor: those that its cursor has not passed, and the destination's has. None of them stands in
//! `waiting`. When few rows of the key are left there, the partition's owner reads on from the range's cursor, copies
//! what is of the key, and moves the range's cursor in the same write. The range ends with the page that reaches the
//! destination's cursor.

use crate::{Cursor, KeyHash};

/// The most ranges that a destination has in a partition. Keys beyond these are copied row by row, up to the bound of what
/// waits: each range is read again by itself, so many of them would cost more than the copies.
pub const RANGES_MAX: usize = 64;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Of which key.
    pub key_hash: KeyHash,
    /// Its name, for people: the first that was met, should two have the same hash.
    pub key: Box<str>,
    /// Behind which events it begins. It keeps everything behind it from being retired, as a destination's cursor does.
    pub cursor: Cursor,
    /// The version of the destination's definition by which events of the key were passed. By the same, one that no
    /// route takes was passed as none of the destination's.
    pub version: u64,
}

/// What becomes of a range, in the write that passes, or copies, what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeChange {
    /// It begins. If the key has one already, that is left as it is.
    Open(Range),
    /// What lies between the two is copied. A range that does not stand at the first is left as it is.
    Move {
        /// Of which key.
        key_hash: KeyHash,
        /// Where it stands.
        from: Cursor,
        /// Where it stands from now on.
        to: Cursor,
    },
    /// All that it stood for is copied. A range that does not stand there is left as it is.
    Close {
        /// Of which key.
        key_hash: KeyHash,
        /// Where it stands.
        from: Cursor,
    },
}
