//! The tables: how they are made.
//!
//! Invariants: what is there is never changed, only what is absent is made, a time to live included; in a table of
//! the application's that is by an attribute which the address names, or which no item but an event has; and the
//! number of partitions is written once, for ever.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription,
    TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::Instant;
use uuid::Uuid;

use crate::addition;
use crate::connection::{Connection, absent, call};
use crate::control::{Facts, facts};
use crate::design::{Design, INDEX_KEYS, INDEX_PROJECTION, STREAM_VIEW};

/// How many partitions a store has, if nobody says otherwise: each is an index key, which takes a
/// thousand writes a second, and so about five hundred events.
pub const PARTITIONS_DEFAULT: u16 = 8;

/// The most partitions: every heartbeat reads a lease item of each.
pub const PARTITIONS_MAX: u16 = 256;

/// The longest that a new table is waited for.
const MAKING_TIME_MAX: Duration = Duration::from_secs(120);
/// Between two looks at a table that is being made.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How a store is made.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// P, for ever; [`PARTITIONS_DEFAULT`] if nobody says.
    pub partitions: Option<u16>,
    /// Who says what names no source: a URI reference. A random URN if nobody says.
    pub source: Option<String>,
}

impl Setup {
    pub(crate) fn check(&self) -> Result<()> {
        let partitions = self.partitions.unwrap_or(PARTITIONS_DEFAULT);
        if (1..=PARTITIONS_MAX).contains(&partitions) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, "init")
            .message(format!("a store has 1 to {PARTITIONS_MAX} partitions"))
            .context("partitions", partitions))
    }

    /// What the store is to be.
    pub(crate) fn facts(&self) -> Facts {
        let urn = || format!("urn:uuid:{}", Uuid::now_v7().hyphenated());
        Facts {
            partitions: self.partitions.unwrap_or(PARTITIONS_DEFAULT),
            source: self.source.clone().unwrap_or_else(urn),
        }
    }
}

/// Makes the tables that are absent, and waits until they can be used; returns the names of those that were
/// made, and what was completed of one that was there. Billing is by request.
///
/// # Errors
/// `Config` if the number of partitions is none, or the store was made with another; `Unauthorized`
/// with the permission that is missing.
pub async fn init(connection: &Connection, setup: &Setup) -> Result<Vec<String>> {
    setup.check()?;
    let names = connection.names();
    let mut made = Vec::new();
    for design in Design::all(names) {
        made.extend(make(connection, &design).await?);
    }
    let client = connection.tables().await;
    let put = client
        .put_item()
        .table_name(&names.store)
        .set_item(Some(setup.facts().item()))
        .condition_expression("attribute_not_exists(pk)");
    match call("init", &names.store, put.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        other => drop(other?),
    }
    let there = facts(connection).await?;
    if setup.partitions.is_some_and(|wanted| wanted != there.partitions) {
        return Err(Error::new(ErrorKind::Config, "init")
            .message("the store is there with another number of partitions, which never changes")
            .context("partitions", there.partitions));
    }
    Ok(made)
}

/// Makes a table that is absent; what was made.
async fn make(connection: &Connection, design: &Design<'_>) -> Result<Vec<String>> {
    let table = design.table;
    match describe(connection, "init", table).await {
        Err(error) if error.kind() == ErrorKind::SchemaMissing => {}
        Err(error) => return Err(error),
        Ok(_) => return complete(connection, design).await,
    }
    let client = connection.tables().await;
    let mut create =
        client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    for (name, kind) in design.attributes() {
        create = create.attribute_definitions(attribute(name, ScalarAttributeType::from(kind))?);
    }
    for (name, kind) in design.keys() {
        create = create.key_schema(element(name, KeyType::from(kind))?);
    }
    if let Some(index) = design.index {
        create =
            create.global_secondary_indexes(pending_index(index)?).stream_specification(images()?);
    }
    match call("init", table, create.send()).await {
        Ok(_) => {}
        // Somebody else makes it at the same moment: what is left when he is interrupted is done here.
        Err(error) if is_in_use(&error) => return complete(connection, design).await,
        Err(error) => return Err(error),
    }
    await_active(connection, table).await?;
    switch_on(connection, design).await?;
    Ok(vec![table.to_owned()])
}

/// Does what is left where whoever made a table was interrupted, and what a table of the application's has not;
/// what was done. A time to live on another attribute is somebody's own, and stays, and so does a stream without
/// images: the doctor names them. The index comes last, because the table takes no other change meanwhile; it is
/// not waited for, because a large table is filled for hours.
async fn complete(connection: &Connection, design: &Design<'_>) -> Result<Vec<String>> {
    await_active(connection, design.table).await?;
    let (mut done, mut looks) = (Vec::new(), Looks::begin(design.table));
    if design.index.is_some() {
        let added = loop {
            match free(addition::stream(connection, design).await)? {
                Some(added) => break added,
                None => looks.pause().await?,
            }
        };
        if added {
            await_active(connection, design.table).await?;
            done.push(format!("the stream of {}", design.table));
        }
    }
    let ask = connection.tables().await.describe_time_to_live().table_name(design.table);
    let told = call("init", design.table, ask.send()).await?;
    let status = told.time_to_live_description.and_then(|live| live.time_to_live_status);
    if matches!(status, None | Some(TimeToLiveStatus::Disabled)) {
        switch_on(connection, design).await?;
        done.push(format!("the time to live of {}", design.table));
    }
    if let Some(index) = design.index {
        let added = loop {
            match free(addition::index(connection, design, index).await)? {
                Some(added) => break added,
                None => looks.pause().await?,
            }
        };
        if added {
            done.push(format!(
                "the index {index} of {}, which the service fills now",
                design.table
            ));
        }
    }
    Ok(done)
}

async fn switch_on(connection: &Connection, design: &Design<'_>) -> Result<()> {
    let mut looks = Looks::begin(design.table);
    while free(try_switch_on(connection, design).await)?.is_none() {
        looks.pause().await?;
    }
    Ok(())
}

async fn try_switch_on(connection: &Connection, design: &Design<'_>) -> Result<()> {
    let live = TimeToLiveSpecification::builder().enabled(true).attribute_name(design.ttl);
    let client = connection.tables().await;
    let update = client
        .update_time_to_live()
        .table_name(design.table)
        .time_to_live_specification(built(live.build())?);
    match call("init", design.table, update.send()).await {
        // The answer to the first try was lost, or somebody else was faster.
        Err(error) if error.to_string().contains("already enabled") => Ok(()),
        other => other.map(drop),
    }
}

/// Waits until a table can be used, or changed. One that was just made may not be shown yet.
async fn await_active(connection: &Connection, table: &str) -> Result<()> {
    let mut looks = Looks::begin(table);
    loop {
        let status = match describe(connection, "init", table).await {
            Ok(there) => there.table_status,
            Err(error) if error.kind() == ErrorKind::SchemaMissing => None,
            Err(error) => return Err(error),
        };
        match status {
            Some(TableStatus::Active) => return Ok(()),
            Some(TableStatus::Deleting) => {
                return Err(Error::new(ErrorKind::Conflict, "init")
                    .message("the table is being deleted; nothing was changed: call again when it is gone")
                    .context("table", table));
            }
            _ => looks.pause().await?,
        }
    }
}

/// Whether the service is at another change of the same table.
fn is_in_use(error: &Error) -> bool {
    error.to_string().contains("ResourceInUse")
}

/// What came of a change; nothing, if the service is at another one.
fn free<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error) if is_in_use(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Looks at what the service is at with a table, again and again, within a bound.
struct Looks<'a> {
    table: &'a str,
    until: Instant,
}

impl Looks<'_> {
    fn begin(table: &str) -> Looks<'_> {
        Looks { table, until: Instant::now() + MAKING_TIME_MAX }
    }

    /// Waits for the next look.
    ///
    /// # Errors
    /// `Timeout` when there were enough.
    async fn pause(&mut self) -> Result<()> {
        if Instant::now() >= self.until {
            return Err(Error::new(ErrorKind::Timeout, "init")
                .message("the table is not ready yet; what was made stays: call again to go on")
                .context("table", self.table));
        }
        // waits: the service makes and changes tables, and says nothing when it is done
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }
}

/// What the service says of a table.
pub(crate) async fn describe(
    connection: &Connection,
    operation: &'static str,
    table: &str,
) -> Result<TableDescription> {
    let ask = connection.tables().await.describe_table().table_name(table);
    let told = call(operation, table, ask.send()).await?;
    told.table.ok_or_else(|| absent(operation, "table"))
}

/// A stream with whole new images.
pub(crate) fn images() -> Result<StreamSpecification> {
    let view = StreamViewType::from(STREAM_VIEW);
    built(StreamSpecification::builder().stream_enabled(true).stream_view_type(view).build())
}

fn pending_index(name: &str) -> Result<GlobalSecondaryIndex> {
    let keys = Projection::builder().projection_type(ProjectionType::from(INDEX_PROJECTION));
    let mut index = GlobalSecondaryIndex::builder().index_name(name).projection(keys.build());
    for (name, kind) in INDEX_KEYS {
        index = index.key_schema(element(name, KeyType::from(kind))?);
    }
    built(index.build())
}

pub(crate) fn attribute(name: &str, kind: ScalarAttributeType) -> Result<AttributeDefinition> {
    built(AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build())
}

pub(crate) fn element(name: &str, kind: KeyType) -> Result<KeySchemaElement> {
    built(KeySchemaElement::builder().attribute_name(name).key_type(kind).build())
}

/// A part of a request with everything that it must have.
pub(crate) fn built<T>(
    result: std::result::Result<T, aws_sdk_dynamodb::error::BuildError>,
) -> Result<T> {
    result.map_err(|error| {
        Error::new(ErrorKind::Internal, "build request").message("a part is missing").source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that is never ready is given up, with what to do.
    #[tokio::test]
    async fn a_table_is_not_waited_for_for_ever() {
        let mut looks = Looks::begin("orders");
        looks.pause().await.unwrap();
        looks.until = Instant::now();
        let error = looks.pause().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("call again"), "{error}");
        assert!(error.to_string().contains("orders"), "{error}");
    }
}
