//! What a destination has not passed yet, in groups that an operator can read.
//!
//! Invariant: its cost goes by the rows that are asked for, and not by how much there is.

use postrider_core::operate::BacklogGroup;
use postrider_core::{DestinationId, Result};

use super::value::{count, not_found, shown, text, time};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed};

const BACKLOG: Sql = sql!("operator/backlog");
const DESTINATION_EXISTS: Sql = sql!("operator/destination_exists");
const SEQUENCE: Sql = sql!("operator/sequence");

/// Numbers of the first stretch that a backlog is looked for in.
const BACKLOG_WIDTH_MIN: u64 = 1_000;

/// What a destination has not passed yet, by what routes match.
pub(super) async fn read(
    store: &PostgresStore,
    destination: &DestinationId,
    rows_max: u64,
) -> Result<Vec<BacklogGroup>> {
    let tx = store.sessions().begin_reading("backlog").await?;
    let groups = groups(&tx, destination, rows_max).await;
    tx.end("backlog").await;
    groups
}

async fn groups(
    session: &Session,
    destination: &DestinationId,
    rows_max: u64,
) -> Result<Vec<BacklogGroup>> {
    let name = destination.as_str();
    let found = session.optional("backlog", &DESTINATION_EXISTS, params![name]).await?;
    found.ok_or_else(|| not_found("backlog", "destination", destination))?;
    let sequence = count(&session.row("backlog", &SEQUENCE, params![]).await?, 1);
    let mut width = rows_max.max(BACKLOG_WIDTH_MIN);
    loop {
        let groups = groups_within(session, name, rows_max, width).await?;
        let counted: u64 = groups.iter().map(|group| group.count).sum();
        if counted >= rows_max || width > sequence {
            return Ok(groups);
        }
        width = width.saturating_mul(8);
    }
}

/// The oldest events in a stretch of numbers that begins where the slowest cursor is: to look for
/// as many in each partition would read many times what is shown.
async fn groups_within(
    session: &Session,
    destination: &str,
    rows_max: u64,
    width: u64,
) -> Result<Vec<BacklogGroup>> {
    let which = params![destination, signed(rows_max), signed(width)];
    let rows = session.rows("backlog", &BACKLOG, which).await?;
    let group = |row| BacklogGroup {
        event_type: shown(row, 0),
        aggregate_type: shown(row, 1),
        tenant: text(row, 2),
        count: count(row, 3),
        oldest: time(row, 4).unwrap_or_default(),
    };
    Ok(rows.iter().map(group).collect())
}
