//! The tables: how they are made, and what a person should know of them.
//!
//! Invariants: what is there is never changed, only what is absent is made; and the number of partitions
//! is written once, for ever.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription,
    TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use postrider_core::operate::{Finding, Level};
use postrider_core::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::connection::{Connection, absent, call};
use crate::control::{Facts, PK, SK, TTL, facts};
use crate::record::{AT, SHARD};

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

/// Makes the tables that are absent, and waits until they can be used. Billing is by request.
///
/// # Errors
/// `Config` if the number of partitions is none, or the store was made with another; `Unauthorized`
/// with the permission that is missing.
pub async fn init(connection: &Connection, setup: &Setup) -> Result<()> {
    let partitions = setup.partitions.unwrap_or(PARTITIONS_DEFAULT);
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Error::new(ErrorKind::Config, "init")
            .message(format!("a store has 1 to {PARTITIONS_MAX} partitions"))
            .context("partitions", partitions));
    }
    let names = connection.names();
    for table in [&names.outbox, &names.store, &names.inbox] {
        make(connection, table).await?;
    }
    let source =
        setup.source.clone().unwrap_or_else(|| format!("urn:uuid:{}", Uuid::now_v7().hyphenated()));
    let made = Facts { partitions, source };
    let client = connection.tables().await;
    let put = client
        .put_item()
        .table_name(&names.store)
        .set_item(Some(made.item()))
        .condition_expression("attribute_not_exists(pk)");
    match call("init", &names.store, put.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        other => return other.map(drop),
    }
    let there = facts(connection).await?;
    if setup.partitions.is_some_and(|wanted| wanted != there.partitions) {
        return Err(Error::new(ErrorKind::Config, "init")
            .message("the store is there with another number of partitions, which never changes")
            .context("partitions", there.partitions));
    }
    Ok(())
}

async fn make(connection: &Connection, table: &str) -> Result<()> {
    let names = connection.names();
    match describe(connection, "init", table).await {
        Err(error) if error.kind() == ErrorKind::SchemaMissing => {}
        Err(error) => return Err(error),
        Ok(_) => return await_active(connection, table).await,
    }
    let outbox = table == names.outbox;
    let (pk, sk, ttl) = match outbox {
        true => (&*names.pk, &*names.sk, &*names.ttl),
        false => (PK, SK, TTL),
    };
    let client = connection.tables().await;
    let mut create = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute(pk, ScalarAttributeType::S)?)
        .attribute_definitions(attribute(sk, ScalarAttributeType::S)?)
        .key_schema(element(pk, KeyType::Hash)?)
        .key_schema(element(sk, KeyType::Range)?);
    if outbox {
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewImage);
        create = create
            .attribute_definitions(attribute(SHARD, ScalarAttributeType::S)?)
            .attribute_definitions(attribute(AT, ScalarAttributeType::N)?)
            .global_secondary_indexes(pending_index(&names.index)?)
            .stream_specification(built(stream.build())?);
    }
    match call("init", table, create.send()).await {
        Ok(_) => {}
        // Somebody else made it at the same moment.
        Err(error) if error.to_string().contains("ResourceInUse") => {}
        Err(error) => return Err(error),
    }
    await_active(connection, table).await?;
    let live = TimeToLiveSpecification::builder().enabled(true).attribute_name(ttl);
    let update = client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(built(live.build())?);
    call("init", table, update.send()).await.map(drop)
}

async fn await_active(connection: &Connection, table: &str) -> Result<()> {
    let wait = async {
        loop {
            let there = describe(connection, "init", table).await?;
            if there.table_status == Some(TableStatus::Active) {
                return Ok(());
            }
            // waits: the service makes the table, and says nothing when it is done
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(MAKING_TIME_MAX, wait).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, "init")
            .message("the table is not ready yet; call again to go on")
            .context("table", table))
    })
}

/// What a person should know of the tables: a stream without images, an index or a time to live that is
/// not there.
///
/// # Errors
/// `SchemaMissing` if a table is absent, and whatever the service says.
pub async fn findings(connection: &Connection) -> Result<Vec<Finding>> {
    let names = connection.names();
    let there = describe(connection, "examine", &names.outbox).await?;
    let mut found = Vec::new();
    let mut note = |level, message: String, advice: String| {
        let subject = format!("table {}", names.outbox);
        found.push(Finding { level, subject, message, advice: Some(advice), code: None });
    };
    if let Err(error) = check_index(connection, &there) {
        note(Level::Critical, error.to_string(), "Add the index as deploy/aws has it.".to_owned());
    }
    if let Err(error) = check_stream(connection, &there) {
        note(
            Level::Critical,
            error.to_string(),
            "Switch the stream on with NEW_IMAGE; without it the relay polls the index.".to_owned(),
        );
    }
    let client = connection.tables().await;
    let ask = client.describe_time_to_live().table_name(&names.outbox);
    let told = call("examine", &names.outbox, ask.send()).await?;
    let live = told.time_to_live_description;
    let enabled = live.as_ref().is_some_and(|live| {
        matches!(
            live.time_to_live_status,
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
        ) && live.attribute_name.as_deref() == Some(&names.ttl)
    });
    if !enabled {
        note(
            Level::Warning,
            format!(
                "no time to live on the attribute {}: published events stay for ever",
                names.ttl
            ),
            format!("Switch the time to live on, on the attribute {}.", names.ttl),
        );
    }
    Ok(found)
}

/// The stream of the outbox table, with whole new images.
///
/// # Errors
/// `Config` if there is none, or one without images.
pub(crate) fn check_stream(connection: &Connection, there: &TableDescription) -> Result<String> {
    let refuse = |message: String| {
        Error::new(ErrorKind::Config, "examine stream")
            .message(message)
            .context("table", &connection.names().outbox)
    };
    let specified = there.stream_specification.as_ref().filter(|stream| stream.stream_enabled);
    let Some(stream) = specified else {
        return Err(refuse("the table has no stream".to_owned()));
    };
    match &stream.stream_view_type {
        Some(StreamViewType::NewImage | StreamViewType::NewAndOldImages) => {}
        view => {
            let view = view.as_ref().map_or("nothing", StreamViewType::as_str);
            return Err(refuse(format!(
                "the stream carries {view}, and events are read from NEW_IMAGE"
            )));
        }
    }
    there.latest_stream_arn.clone().ok_or_else(|| refuse("the stream has no name yet".to_owned()))
}

/// Checks the sparse index: its keys and its projection.
pub(crate) fn check_index(connection: &Connection, there: &TableDescription) -> Result<()> {
    let names = connection.names();
    let refuse = |message: String| {
        Error::new(ErrorKind::Config, "examine index")
            .message(message)
            .context("table", &names.outbox)
    };
    let keys_are = |schema: &[KeySchemaElement], pk: &str, sk: &str| {
        let of =
            |kind: KeyType| schema.iter().find(|e| e.key_type == kind).map(|e| &*e.attribute_name);
        of(KeyType::Hash) == Some(pk) && of(KeyType::Range) == Some(sk)
    };
    if !keys_are(there.key_schema(), &names.pk, &names.sk) {
        return Err(refuse(format!("the table's keys are not {} and {}", names.pk, names.sk)));
    }
    let mut indexes = there.global_secondary_indexes().iter();
    let Some(index) = indexes.find(|index| index.index_name() == Some(&names.index)) else {
        return Err(refuse(format!("there is no index {}", names.index)));
    };
    if !keys_are(index.key_schema(), SHARD, AT) {
        return Err(refuse(format!(
            "the keys of the index {} are not {SHARD} and {AT}",
            names.index
        )));
    }
    Ok(())
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

fn pending_index(name: &str) -> Result<GlobalSecondaryIndex> {
    let keys = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let index = GlobalSecondaryIndex::builder()
        .index_name(name)
        .key_schema(element(SHARD, KeyType::Hash)?)
        .key_schema(element(AT, KeyType::Range)?)
        .projection(keys);
    built(index.build())
}

fn attribute(name: &str, kind: ScalarAttributeType) -> Result<AttributeDefinition> {
    built(AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build())
}

fn element(name: &str, kind: KeyType) -> Result<KeySchemaElement> {
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
