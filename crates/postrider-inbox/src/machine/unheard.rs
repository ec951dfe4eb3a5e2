//! Settlements that the broker does not hear, one after the other: what was done comes again and again, and somebody has to be
//! told.
//!
//! Invariant (INV-8): one that is heard ends it, and so does silence: what failed is somebody else's by then.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Tick};

/// So many in a row are no accident,
const FAILURES_MIN: u32 = 3;
/// if they go on for so long, or for a visibility: another leader, or a broker that is started again, takes less.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    row: Option<Row>,
}

#[derive(Debug)]
struct Row {
    failures: u32,
    since: Tick,
    /// When it is forgotten.
    until: Tick,
    /// What is told, as soon as it has gone on for long.
    told: Option<String>,
}

impl Unheard {
    /// The broker has answered a settlement of a delivery that is hidden for so long.
    pub(super) fn answered(&mut self, now: Tick, visibility: Duration, failed: Option<&Error>) {
        let Some(error) = failed else {
            self.row = None;
            return;
        };
        // The broker has heard it; the delivery was another's.
        if error.kind() == ErrorKind::Fenced {
            return;
        }
        let until = now + visibility.saturating_mul(2);
        let row = self.row.get_or_insert(Row { failures: 0, since: now, until, told: None });
        row.failures = row.failures.saturating_add(1);
        row.until = until;
        let is_long = now >= row.since + visibility.min(PATIENCE);
        if row.failures >= FAILURES_MIN && is_long {
            row.told = Some(format!("what is done cannot be settled, and comes again: {error}"));
        }
    }

    pub(super) fn forget_expired(&mut self, now: Tick) {
        self.row.take_if(|row| now >= row.until);
    }

    /// When it is forgotten.
    pub(super) fn due(&self) -> Option<Tick> {
        self.row.as_ref().map(|row| row.until)
    }

    /// What there is to tell.
    pub(super) fn told(&self) -> Option<&str> {
        self.row.as_ref()?.told.as_deref()
    }
}
