//! The kinds of store: how each finds what is new, and what its writers may do side by side.

use serde::{Deserialize, Serialize};

/// How a store finds what is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The log is in commit order; a cursor is a place in it.
    #[default]
    ChangeLog,
    /// Numbers are drawn before the commit; a cursor is a snapshot, with floors.
    Snapshot,
    /// One writer at a time; a cursor is a number.
    Number,
    /// Rows say themselves whether they are pending; there is no cursor to trust.
    RowState,
    /// Each key has its own numbers; what is pending is named by an index and a stream that lag.
    Keyed,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::ChangeLog, Kind::Snapshot, Kind::Number, Kind::RowState, Kind::Keyed];

    /// Whether it can serve more than one destination.
    pub const fn many_destinations(self) -> bool {
        true
    }

    /// Whether it can have more than one partition.
    pub const fn many_partitions(self) -> bool {
        true
    }
}
