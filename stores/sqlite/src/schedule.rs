//! Scheduled events: they enter the outbox, and their key's order, when they are due.

use postrider_core::source::Admitted;
use postrider_core::{Lease, Result};
use rusqlite::{Connection, params};

use crate::error::During;
use crate::store::{now, span};
use crate::{lease, sql};

/// The answer if nothing is due now.
pub(crate) fn idle(connection: &Connection, lease: &Lease) -> Result<Option<Admitted>> {
    lease::fence(connection, lease, "admit")?;
    let now = now(connection)?;
    let next = next(connection)?;
    Ok(match next {
        Some(next) if next <= now => None,
        next => Some(Admitted { moved: 0, next_in: next.map(|next| span(now, next)) }),
    })
}

/// Moves what is due, in the order (due, seq).
pub(crate) fn admit(connection: &Connection, lease: &Lease, rows_max: u32) -> Result<Admitted> {
    lease::fence(connection, lease, "admit")?;
    let now = now(connection)?;
    let due = params![now, rows_max];
    connection
        .prepare_cached(sql::SCHEDULE_ADMIT)
        .and_then(|mut statement| statement.execute(due))
        .during("admit")?;
    let moved = connection
        .prepare_cached(sql::SCHEDULE_ADMITTED)
        .and_then(|mut statement| statement.execute(due))
        .during("admit")?;
    Ok(Admitted {
        moved: u32::try_from(moved).unwrap_or(u32::MAX),
        next_in: next(connection)?.map(|next| span(now, next)),
    })
}

fn next(connection: &Connection) -> Result<Option<i64>> {
    connection
        .prepare_cached(sql::SCHEDULE_NEXT)
        .and_then(|mut statement| statement.query_row((), |row| row.get(0)))
        .during("admit")
}
