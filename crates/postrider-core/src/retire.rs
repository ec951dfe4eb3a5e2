//! Retiring: the question which old events may go, and its answer.
//!
//! Keeps INV-1: who asks holds the partition, and names what an archive has taken.

use std::time::Duration;

use crate::{EventId, Lease};

/// Which events to retire.
#[derive(Clone, Debug, PartialEq)]
pub struct RetireRequest {
    /// The right to the partition.
    pub lease: Lease,
    /// Created longer ago than this, on the database's clock.
    pub older_than: Duration,
    /// At most so many events at once, so that no lock is held for long.
    pub rows_max: u32,
    /// Of these only, which an archive has taken: what became retirable since then has to be archived
    /// first. `None` where nothing is archived.
    pub only: Option<Vec<EventId>>,
}

/// What was retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Retired {
    /// Events deleted.
    pub rows: u32,
    /// Whether there is more to delete at once.
    pub more: bool,
}
