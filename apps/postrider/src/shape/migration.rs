//! Migrations of the tables.

use postrider_core::Timestamp;
use postrider_postgres::MigrationState;
use serde::Serialize;

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
