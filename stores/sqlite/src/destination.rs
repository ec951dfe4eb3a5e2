//! Destinations: rows in the store that all relays share, with their cursors.
//!
//! Invariant: a destination and its cursors come and go in one transaction, so that none is ever
//! read from a place that nobody chose.

use postrider_core::source::{DefinitionChange, Definitions};
use postrider_core::{
    Destination, DestinationRow, DestinationState, Error, ErrorKind, Result, Start,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::During;
use crate::store::{now, signed, unsigned};
use crate::{endpoint, lease, page, schema, sql};

/// Writes the definitions into a store that has none, each from the beginning.
pub(crate) fn register(connection: &Connection, definitions: &[Destination]) -> Result<()> {
    if !is_empty(connection)? {
        return Ok(());
    }
    for definition in definitions.iter().filter(|given| !given.is_unrouted()) {
        add(connection, definition, Start::Beginning)?;
    }
    add(connection, &Destination::unrouted(), Start::Beginning)?;
    bump(connection).map(drop)
}

/// Adds, changes, and removes destinations, and returns the version after that.
pub(crate) fn apply(connection: &Connection, change: &DefinitionChange) -> Result<u64> {
    // Later tables may have something of a destination's of which this program does not know.
    schema::check_served(connection)?;
    let version = schema::read_number(connection, "definitions_version")?;
    if let Some(expected) = change.expected.filter(|expected| *expected != version) {
        return Err(Error::new(ErrorKind::Conflict, "apply")
            .message("the definitions were changed by somebody else; nothing was written")
            .context("expected", expected)
            .context("version", version));
    }
    let mut changed = false;
    if is_empty(connection)? {
        add(connection, &Destination::unrouted(), Start::Beginning)?;
        changed = true;
    }
    for (definition, start) in &change.put {
        changed |= put(connection, definition, *start)?;
    }
    for id in &change.remove {
        if id.as_str() == Destination::UNROUTED {
            return Err(Error::new(ErrorKind::Invalid, "apply")
                .message("the destination `unrouted` is built in and cannot be removed"));
        }
        let now = now(connection)?;
        changed |= remove(connection, id.as_str(), now).during("apply")?;
    }
    if changed { bump(connection) } else { Ok(version) }
}

pub(crate) fn is_empty(connection: &Connection) -> Result<bool> {
    connection
        .query_row(sql::DESTINATION_COUNT, (), |row| row.get::<_, i64>(0))
        .map(|count| count == 0)
        .during("read destinations")
}

/// Adds or changes one, and says whether that changed anything.
fn put(connection: &Connection, definition: &Destination, start: Start) -> Result<bool> {
    let text = definition.to_definition()?;
    let known: Option<String> = connection
        .query_row(sql::DESTINATION_READ, [definition.id.as_str()], |row| row.get(0))
        .optional()
        .during("apply")?;
    match known {
        None => add(connection, definition, start).map(|()| true),
        Some(known) if known == text => Ok(false),
        Some(_) => connection
            .execute(
                sql::DESTINATION_CHANGE,
                params![definition.id.as_str(), definition.kind, text],
            )
            .map(|_| true)
            .during("apply"),
    }
}

fn add(connection: &Connection, definition: &Destination, start: Start) -> Result<()> {
    // What retention has left below the beginning of the history is no whole: nobody starts there.
    let first = schema::read_number(connection, "history_start")?.saturating_sub(1);
    let position = match start {
        Start::Beginning => first,
        Start::Now => page::sequence(connection)?,
        Start::At(time) => before(connection, time)?.max(first),
    };
    let now = now(connection)?;
    let partitions = schema::read_number(connection, "partitions")?;
    connection
        .execute(
            sql::DESTINATION_INSERT,
            params![definition.id.as_str(), definition.kind, definition.to_definition()?],
        )
        .during("add destination")?;
    for partition in 0..signed(partitions) {
        connection
            .execute(
                sql::DESTINATION_START,
                params![definition.id.as_str(), partition, signed(position), now],
            )
            .during("add destination")?;
    }
    Ok(())
}

/// The number before the first event created at or after a moment; if there is none, the newest.
fn before(connection: &Connection, time: postrider_core::Timestamp) -> Result<u64> {
    let millis = time.as_micros().div_euclid(1_000);
    let first: Option<i64> = connection
        .query_row(sql::OUTBOX_FIRST_SINCE, [millis], |row| row.get(0))
        .during("add destination")?;
    match first {
        Some(seq) => Ok(unsigned(seq - 1)),
        None => page::sequence(connection),
    }
}

/// Removes one with everything that is its own. What operators asked for it is left undone.
fn remove(connection: &Connection, id: &str, now: i64) -> rusqlite::Result<bool> {
    let removed = connection.execute(sql::DESTINATION_REMOVE, [id])?;
    connection.execute(sql::DESTINATION_REMOVE_REQUESTS, params![id, now])?;
    connection.execute(sql::DESTINATION_REMOVE_REQUEST_ROWS, [id])?;
    connection.execute(sql::DESTINATION_REMOVE_CURSORS, [id])?;
    connection.execute(sql::DESTINATION_REMOVE_WAITING, [id])?;
    connection.execute(sql::DESTINATION_REMOVE_RANGES, [id])?;
    connection.execute(sql::DESTINATION_REMOVE_SETTLED, [id])?;
    connection.execute(sql::DESTINATION_REMOVE_ENDPOINTS, [id])?;
    Ok(removed > 0)
}

/// Raises the version of the definitions, so that every relay loads them again.
pub(crate) fn bump(connection: &Connection) -> Result<u64> {
    let version = schema::read_number(connection, "definitions_version")? + 1;
    connection
        .execute(sql::META_WRITE, ("definitions_version", version.to_string()))
        .during("apply")?;
    Ok(version)
}

/// The destinations and the version of their definitions.
pub(crate) fn list(connection: &Connection) -> Result<Definitions> {
    let mut statement = connection.prepare_cached(sql::DESTINATION_LIST).during("destinations")?;
    let mut found = statement.query(()).during("destinations")?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().during("destinations")? {
        let (id, definition, version, state): (String, String, i64, String) =
            row.try_into().during("destinations")?;
        rows.push(DestinationRow {
            definition: Destination::from_definition(&definition)
                .map_err(|error| error.context("destination", id))?,
            version: unsigned(version),
            state: match &*state {
                "paused" => DestinationState::Paused,
                _ => DestinationState::Active,
            },
        });
    }
    Ok(Definitions {
        version: schema::read_number(connection, "definitions_version")?,
        rows,
        disabled: endpoint::list(connection)?,
        paused: lease::paused(connection)?,
    })
}
