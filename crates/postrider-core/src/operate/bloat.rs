//! Bloat: rows that nobody needs any more and that the database has not cleaned away, and who keeps them.

use std::time::Duration;

/// What a database keeps of rows that nobody needs, by its own statistics: nothing is counted for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bloat {
    /// How long the oldest transaction is open, a prepared one included; zero if none is.
    pub transaction_open: Duration,
    /// How many transactions began since the oldest one that rows are still kept for: the age of the oldest xmin,
    /// of a transaction, a prepared one, or a replication slot.
    pub xmin_age: u64,
    /// Dead rows of the tables that change most, by their usual names: a few.
    pub dead_rows: Vec<(&'static str, u64)>,
}
