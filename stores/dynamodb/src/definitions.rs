//! Destinations: one item with all of them, and their version where every heartbeat reads it.
//!
//! Invariant: item and version change in one transaction, under the version that was read.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use postrider_core::operate::Note;
use postrider_core::source::{DefinitionChange, Definitions};
use postrider_core::{
    Destination, DestinationId, DestinationRow, DestinationState, Error, ErrorKind, Lease,
    PartitionId, Result,
};
use serde::{Deserialize, Serialize};

use crate::audit::Change;
use crate::connection::{Connection, call};
use crate::control::{CONTROL, PAUSED, VERSION, key};
use crate::item::{n, number, s, text};
use crate::lease::{fenced, standing};
use crate::removal::Removing;
use crate::tables::built;
use crate::transaction::{Cancelled, Patience, put, send};

const DEFINITIONS: &str = "definitions";
const BODY: &str = "body";

/// The most endpoints that can be disabled at once: they stand in one item.
const DISABLED_MAX: usize = 1_000;

/// What the item holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Body {
    rows: Vec<Row>,
    disabled: Vec<Disabled>,
    /// Partitions that an operator paused.
    #[serde(default)]
    paused: Vec<u16>,
    /// Destinations that were removed, and whose waiting events are not all dropped.
    #[serde(default)]
    removing: Vec<Removing>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    definition: Destination,
    version: u64,
    state: DestinationState,
    /// The version of all of them that it came with: of several that had its name, which one it is.
    #[serde(default)]
    since: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Disabled {
    destination: DestinationId,
    topic: String,
    detail: String,
}

/// Who changes the definitions, and what the change depends on or leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By<'a> {
    /// A program that starts.
    Program,
    /// A partition's owner, whose lease has to stand.
    Owner(&'a Lease),
    /// A person: what was done stands in the audit log.
    Operator {
        note: &'a Note,
        what: &'static str,
        /// What was changed; the version is put before it.
        subject: &'a str,
    },
}

/// The destinations, each with the version that it came with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) all: Definitions,
    since: HashMap<DestinationId, u64>,
}

impl Known {
    /// Which destination of the name it is; nothing if there is none.
    pub(crate) fn since(&self, id: &DestinationId) -> Option<u64> {
        self.since.get(id).copied()
    }
}

/// Reads the destinations.
pub(crate) async fn read(connection: &Connection) -> Result<Definitions> {
    Ok(known(connection).await?.all)
}

/// The same, for whoever writes for one of them.
pub(crate) async fn known(connection: &Connection) -> Result<Known> {
    let (version, body) = read_body(connection, "destinations").await?;
    let since = body.rows.iter().map(|row| (row.definition.id.clone(), row.since)).collect();
    let row = |row: Row| DestinationRow {
        definition: row.definition,
        version: row.version,
        state: row.state,
    };
    let disabled = |disabled: Disabled| (disabled.destination, disabled.topic.into());
    let all = Definitions {
        version,
        rows: body.rows.into_iter().map(row).collect(),
        disabled: body.disabled.into_iter().map(disabled).collect(),
        paused: body.paused.into_iter().map(PartitionId).collect(),
    };
    Ok(Known { all, since })
}

/// Writes the definitions into a store that has none.
pub(crate) async fn register(connection: &Connection, definitions: &[Destination]) -> Result<()> {
    change(connection, "register", By::Program, |version, body| {
        if !body.rows.is_empty() {
            return Ok(version);
        }
        for definition in definitions {
            put_row(&mut body.rows, definition, version + 1);
        }
        Ok(version + 1)
    })
    .await
    .map(drop)
}

/// Adds, changes, and removes destinations.
pub(crate) async fn apply(
    connection: &Connection,
    asked: &DefinitionChange,
    by: By<'_>,
) -> Result<u64> {
    change(connection, "apply", by, |version, body| {
        if asked.expected.is_some_and(|expected| expected != version) {
            return Err(Error::new(ErrorKind::Conflict, "apply")
                .message("the definitions have changed since they were read; nothing was changed")
                .context("version", version));
        }
        let going =
            |id: &DestinationId| body.removing.iter().any(|removing| removing.destination == *id);
        if let Some((definition, _)) = asked.put.iter().find(|(it, _)| going(&it.id)) {
            return Err(Error::new(ErrorKind::Busy, "apply")
                .message(
                    "a destination of this name is being removed; nothing was changed: try again",
                )
                .context("destination", &definition.id));
        }
        let before = body.rows.clone();
        let removed = body.rows.iter().map(|row| &row.definition.id);
        let removed = removed.filter(|id| asked.remove.contains(id)).cloned();
        let removing = |destination| Removing { destination, since: version + 1 };
        body.removing.extend(removed.map(removing));
        body.rows.retain(|row| !asked.remove.contains(&row.definition.id));
        body.disabled.retain(|disabled| !asked.remove.contains(&disabled.destination));
        for (definition, _) in &asked.put {
            put_row(&mut body.rows, definition, version + 1);
        }
        Ok(version + u64::from(body.rows != before))
    })
    .await
}

/// The destinations that were removed, and whose waiting events are not all dropped.
pub(crate) async fn removing(connection: &Connection) -> Result<Vec<Removing>> {
    Ok(read_body(connection, "apply").await?.1.removing)
}

/// Notes that nothing waits any more for a destination that was removed. Returns the version.
pub(crate) async fn removed(connection: &Connection, removal: &Removing) -> Result<u64> {
    change(connection, "apply", By::Program, |version, body| {
        let before = body.removing.len();
        body.removing.retain(|known| known != removal);
        Ok(version + u64::from(body.removing.len() != before))
    })
    .await
}

/// Notes endpoints as disabled, under a lease.
pub(crate) async fn disable(
    connection: &Connection,
    lease: &Lease,
    destination: &DestinationId,
    endpoints: &[postrider_core::waiting::DisabledEndpoint],
) -> Result<()> {
    change(connection, "settle", By::Owner(lease), |version, body| {
        let before = body.disabled.len();
        if !body.rows.iter().any(|row| row.definition.id == *destination) {
            return Ok(version);
        }
        for endpoint in endpoints {
            let known = |other: &Disabled| {
                other.destination == *destination && *other.topic == *endpoint.topic
            };
            if !body.disabled.iter().any(known) && body.disabled.len() < DISABLED_MAX {
                body.disabled.push(Disabled {
                    destination: destination.clone(),
                    topic: endpoint.topic.to_string(),
                    detail: endpoint.detail.clone(),
                });
            }
        }
        Ok(version + u64::from(body.disabled.len() != before))
    })
    .await
    .map(drop)
}

/// Takes an endpoint into service again, under a lease.
pub(crate) async fn enable(
    connection: &Connection,
    lease: &Lease,
    destination: &DestinationId,
    topic: &str,
) -> Result<()> {
    change(connection, "carry out", By::Owner(lease), |version, body| {
        let before = body.disabled.len();
        body.disabled.retain(|known| known.destination != *destination || known.topic != topic);
        Ok(version + u64::from(body.disabled.len() != before))
    })
    .await
    .map(drop)
}

/// Lets a destination's events flow, or wait.
pub(crate) async fn set_state(
    connection: &Connection,
    id: &DestinationId,
    state: DestinationState,
    note: &Note,
) -> Result<()> {
    let what = match state {
        DestinationState::Active => "destinations resume",
        DestinationState::Paused => "destinations pause",
    };
    let by = By::Operator { note, what, subject: id.as_str() };
    let changed = change(connection, "set destination", by, |version, body| {
        let row = body.rows.iter_mut().find(|row| row.definition.id == *id);
        let row = row.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "set destination")
                .message("there is no such destination; nothing was changed")
                .context("destination", id)
        })?;
        let before = std::mem::replace(&mut row.state, state);
        Ok(version + u64::from(before != state))
    });
    changed.await.map(drop)
}

/// Lets a partition be owned, or not.
pub(crate) async fn set_partition(
    connection: &Connection,
    partition: PartitionId,
    paused: bool,
    note: &Note,
) -> Result<()> {
    let what = if paused { "partitions pause" } else { "partitions resume" };
    let subject = format!("partition {partition}");
    let by = By::Operator { note, what, subject: &subject };
    let changed = change(connection, "set partition", by, |version, body| {
        let before = body.paused.len();
        body.paused.retain(|known| *known != partition.0);
        if paused {
            body.paused.push(partition.0);
            body.paused.sort_unstable();
        }
        Ok(version + u64::from(body.paused.len() != before))
    });
    changed.await.map(drop)
}

fn put_row(rows: &mut Vec<Row>, definition: &Destination, since: u64) {
    match rows.iter_mut().find(|row| row.definition.id == definition.id) {
        Some(row) if row.definition == *definition => {}
        Some(row) => {
            row.definition = definition.clone();
            row.version += 1;
        }
        None => rows.push(Row {
            definition: definition.clone(),
            version: 1,
            state: DestinationState::Active,
            since,
        }),
    }
    if !rows.iter().any(|row| row.definition.is_unrouted()) {
        let (definition, state) = (Destination::unrouted(), DestinationState::Active);
        rows.push(Row { definition, version: 1, state, since });
    }
    rows.sort_by(|a, b| a.definition.id.cmp(&b.definition.id));
}

/// One destination is served: an event's item has one mark.
fn one_destination(operation: &'static str, rows: &[Row]) -> Result<()> {
    if rows.iter().filter(|row| !row.definition.is_unrouted()).count() <= 1 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Config, operation).message(
        "an event's item has one mark, so it goes to one destination; nothing was changed: publish \
         to a topic or bus that others subscribe to",
    ))
}

/// Changes the item under its version, again if somebody else was faster. What keeps the version writes
/// nothing.
async fn change(
    connection: &Connection,
    operation: &'static str,
    by: By<'_>,
    edit: impl Fn(u64, &mut Body) -> Result<u64>,
) -> Result<u64> {
    let table = &connection.names().store;
    let mut patience = Patience::new();
    loop {
        let (version, mut body) = read_body(connection, operation).await?;
        let next = edit(version, &mut body)?;
        if next == version {
            return Ok(version);
        }
        one_destination(operation, &body.rows)?;
        let mut actions = body_actions(table, version, next, &body)?;
        match by {
            By::Program => {}
            By::Owner(lease) => actions.push(standing(table, lease)?),
            By::Operator { note, what, subject } => {
                let subject = format!("version {next}: {subject}");
                let change = Change { note, what, subject: &subject };
                actions.extend(change.actions(connection, operation).await?);
            }
        }
        let Err(error) = send(connection, operation, table, actions).await else { return Ok(next) };
        match (Cancelled::of(&error), by) {
            (Some(told), By::Owner(lease)) if told.conditions().any(|action| action == 2) => {
                return Err(fenced(operation, lease));
            }
            (Some(_), _) => patience.pause(error).await?,
            (None, _) => return Err(error),
        }
    }
}

fn body_actions(table: &str, from: u64, to: u64, body: &Body) -> Result<Vec<TransactWriteItem>> {
    let text = serde_json::to_string(body)
        .map_err(|error| Error::new(ErrorKind::Internal, "write definitions").source(error))?;
    let mut item = key(DEFINITIONS, BODY);
    item.insert("version".to_owned(), n(to));
    item.insert("definitions".to_owned(), s(text));
    let mut write = put(table, item);
    write = match from {
        0 => write.condition_expression("attribute_not_exists(pk)"),
        _ => write
            .condition_expression("#version = :from")
            .expression_attribute_names("#version", "version")
            .expression_attribute_values(":from", n(from)),
    };
    // An update, and no put: requests are counted in the same item.
    let version = Update::builder()
        .table_name(table)
        .set_key(Some(key(CONTROL, VERSION)))
        .update_expression("SET #version = :to, #paused = :paused")
        .expression_attribute_names("#version", "version")
        .expression_attribute_names("#paused", PAUSED)
        .expression_attribute_values(":to", n(to))
        .expression_attribute_values(
            ":paused",
            AttributeValue::L(body.paused.iter().map(n).collect()),
        );
    Ok(vec![
        TransactWriteItem::builder().put(built(write.build())?).build(),
        TransactWriteItem::builder().update(built(version.build())?).build(),
    ])
}

async fn read_body(connection: &Connection, operation: &'static str) -> Result<(u64, Body)> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let get = client
        .get_item()
        .table_name(table)
        .set_key(Some(key(DEFINITIONS, BODY)))
        .consistent_read(true);
    let Some(item) = call(operation, table, get.send()).await?.item else {
        return Ok((0, Body::default()));
    };
    let corrupt = || {
        Error::new(ErrorKind::Corrupt, operation)
            .message("the stored destinations cannot be read; nothing was changed")
            .context("table", table)
    };
    let version = number(&item, "version").ok_or_else(corrupt)?;
    let text = text(&item, "definitions").ok_or_else(corrupt)?;
    Ok((version, serde_json::from_str(text).map_err(|error| corrupt().source(error))?))
}
