//! Migrations of the tables.

use postrider_core::Timestamp;
use postrider_postgres::{Holdings, MigrationState};
use serde::Serialize;

use crate::shape::inbox::sheet;
use crate::table::{Cell, Column, Fit, Tabular};

/// A row of `migrate status`.
#[derive(Debug, Serialize)]
pub(crate) struct Migration {
    /// Its number: the version of the tables after it.
    pub(crate) version: u32,
    /// What it makes.
    pub(crate) name: &'static str,
    /// `applied` or `pending`.
    pub(crate) state: &'static str,
    /// When it was applied, as the database writes it.
    pub(crate) applied_at: Option<String>,
}

impl Migration {
    pub(crate) fn of(state: &MigrationState) -> Migration {
        Migration {
            version: state.version,
            name: state.name,
            state: if state.applied { "applied" } else { "pending" },
            applied_at: state.applied_at.clone(),
        }
    }
}

impl Tabular for Migration {
    fn columns() -> &'static [Column] {
        &[
            ("VERSION", Fit::Whole),
            ("STATE", Fit::Whole),
            ("APPLIED AT", Fit::Whole),
            ("NAME", Fit::Text),
        ]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        vec![
            self.version.to_string().into(),
            self.state.into(),
            self.applied_at.clone().unwrap_or_default().into(),
            self.name.into(),
        ]
    }
}

/// What goes with the tables, or stands in them: the answer of `migrate revert`.
#[derive(Debug, Serialize)]
pub(crate) struct Reversal {
    /// The version before.
    pub(crate) from: u32,
    /// The version after.
    pub(crate) to: u32,
    /// Whether it was done.
    pub(crate) reverted: bool,
    /// Events in the outbox.
    pub(crate) events: u64,
    /// Those of them that some destination has not passed.
    pub(crate) undelivered: u64,
    /// Events that wait, dead letters included.
    pub(crate) waiting: u64,
    /// Scheduled events.
    pub(crate) scheduled: u64,
    /// Rows of the inbox.
    pub(crate) inbox: u64,
}

impl Reversal {
    pub(crate) fn of(from: u32, to: u32, held: Holdings, reverted: bool) -> Reversal {
        let Holdings { events, undelivered, waiting, scheduled, inbox, .. } = held;
        Reversal { from, to, reverted, events, undelivered, waiting, scheduled, inbox }
    }

    /// For people.
    pub(crate) fn sheet(&self) -> String {
        sheet(&[
            ("events", self.events),
            ("not passed", self.undelivered),
            ("waiting", self.waiting),
            ("scheduled", self.scheduled),
            ("inbox", self.inbox),
        ])
    }
}
