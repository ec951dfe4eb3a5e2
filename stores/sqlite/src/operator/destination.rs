//! What an operator changes about destinations and partitions.
//!
//! Invariant: every change raises the version of the definitions in its own transaction, so that the
//! owners hear of it with their next heartbeat.

use postrider_core::operate::Note;
use postrider_core::source::DefinitionChange;
use postrider_core::{
    Destination, DestinationId, DestinationState, Error, ErrorKind, PartitionId, Result,
};
use rusqlite::{Connection, params};

use super::value::{self, count, invalid, not_found, shown};
use super::{audit, sql};
use crate::error::During;
use crate::{destination, schema};

/// Adds, changes, and removes destinations.
pub(super) fn apply(
    connection: &Connection,
    change: &DefinitionChange,
    note: &Note,
) -> Result<u64> {
    let before = schema::read_number(connection, "definitions_version")?;
    let version = destination::apply(connection, change)?;
    if version != before {
        let put = change.put.iter().map(|(definition, _)| definition.id.to_string());
        let removed = change.remove.iter().map(|id| format!("{id} removed"));
        let names: Vec<String> = put.chain(removed).collect();
        let subject = format!("version {version}: {}", names.join(", "));
        audit::write(connection, note, "destinations apply", &subject)?;
    }
    Ok(version)
}

/// Gives a destination another id, with everything that is its own.
pub(super) fn rename(
    connection: &Connection,
    from: &DestinationId,
    to: &DestinationId,
    note: &Note,
) -> Result<()> {
    if [from, to].iter().any(|id| id.as_str() == Destination::UNROUTED) {
        return Err(invalid("rename", "the destination `unrouted` is built in and keeps its name"));
    }
    schema::check_served(connection)?;
    let read = |id: &DestinationId| {
        value::first(connection, "rename", crate::sql::DESTINATION_READ, [id.as_str()], |row| {
            shown(row, 0)
        })
    };
    let text = read(from)?.ok_or_else(|| not_found("rename", "destination", from))?;
    if from == to {
        return Ok(());
    }
    if read(to)?.is_some() {
        return Err(Error::new(ErrorKind::Conflict, "rename")
            .message("there is a destination of that name already; nothing was changed")
            .context("destination", to));
    }
    let mut definition = Destination::from_definition(&text)?;
    definition.id = to.clone();
    let names = params![from.as_str(), to.as_str()];
    let renamed = || -> rusqlite::Result<()> {
        for statement in [
            sql::RENAME_CURSORS,
            sql::RENAME_WAITING,
            sql::RENAME_RANGES,
            sql::RENAME_SETTLED,
            sql::RENAME_ENDPOINTS,
            sql::RENAME_REQUESTS,
            sql::RENAME_REQUEST_ROWS,
        ] {
            connection.execute(statement, names)?;
        }
        Ok(())
    };
    let row = params![from.as_str(), to.as_str(), definition.to_definition()?];
    connection.execute(sql::RENAME_DESTINATION, row).during("rename")?;
    renamed().during("rename")?;
    destination::bump(connection)?;
    audit::write(connection, note, "destinations rename", &format!("{from} to {to}"))
}

/// Lets a destination's events flow, or wait.
pub(super) fn set_state(
    connection: &Connection,
    id: &DestinationId,
    state: DestinationState,
    note: &Note,
) -> Result<()> {
    let (text, what) = match state {
        DestinationState::Active => ("active", "destinations resume"),
        DestinationState::Paused => ("paused", "destinations pause"),
    };
    value::first(connection, "set destination", sql::DESTINATION, [id.as_str()], |_| ())?
        .ok_or_else(|| not_found("set destination", "destination", id))?;
    let changed = connection
        .execute(sql::DESTINATION_STATE, params![id.as_str(), text])
        .during("set destination")?;
    if changed > 0 {
        destination::bump(connection)?;
        audit::write(connection, note, what, id.as_str())?;
    }
    Ok(())
}

/// Lets a partition be owned, or not.
pub(super) fn set_partition(
    connection: &Connection,
    partition: PartitionId,
    paused: bool,
    note: &Note,
) -> Result<()> {
    let known = value::first(connection, "set partition", sql::PARTITION, [partition.0], |row| {
        count(row, 0) != 0
    })?;
    let before = known.ok_or_else(|| not_found("set partition", "partition", partition))?;
    if before == paused {
        return Ok(());
    }
    connection
        .execute(sql::PARTITION_PAUSE, params![partition.0, paused])
        .during("set partition")?;
    destination::bump(connection)?;
    let what = if paused { "partitions pause" } else { "partitions resume" };
    audit::write(connection, note, what, &format!("partition {partition}"))
}
