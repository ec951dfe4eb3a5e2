//! What is added to an outbox table that was there: the stream and the index.
//!
//! Invariants: nothing is added before the table's keys are those that the address names, and what the table has
//! by our name is never changed.

use aws_sdk_dynamodb::types::{
    BillingMode, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndexUpdate, KeyType, Projection,
    ProjectionType, ProvisionedThroughput, ScalarAttributeType, TableDescription,
};
use postrider_core::Result;

use crate::connection::{Connection, call};
use crate::design::{Design, INDEX_KEYS, INDEX_PROJECTION};
use crate::examine::{check_index, check_keys};
use crate::tables::{attribute, built, describe, element, images};

/// Switches the stream on, if there is none; whether it did. One without images stays: somebody reads it.
///
/// # Errors
/// `Config` if the table has other keys than the address names.
pub(crate) async fn stream(connection: &Connection, design: &Design<'_>) -> Result<bool> {
    let there = describe(connection, "init", design.table).await?;
    check_keys(connection, &there)?;
    if there.stream_specification.is_some_and(|stream| stream.stream_enabled) {
        return Ok(false);
    }
    let client = connection.tables().await;
    let update = client.update_table().table_name(design.table).stream_specification(images()?);
    call("init", design.table, update.send()).await.map(|_| true)
}

/// Adds the index, if there is none; whether it did.
///
/// # Errors
/// `Config` if there is one of its name with other keys.
pub(crate) async fn index(
    connection: &Connection,
    design: &Design<'_>,
    name: &str,
) -> Result<bool> {
    let there = describe(connection, "init", design.table).await?;
    if there.global_secondary_indexes().iter().any(|index| index.index_name() == Some(name)) {
        return check_index(connection, &there).map(|()| false);
    }
    let client = connection.tables().await;
    let mut update = client.update_table().table_name(design.table);
    for (name, kind) in design.attributes() {
        update = update.attribute_definitions(attribute(name, ScalarAttributeType::from(kind))?);
    }
    let keys = Projection::builder().projection_type(ProjectionType::from(INDEX_PROJECTION));
    let mut create = CreateGlobalSecondaryIndexAction::builder()
        .index_name(name)
        .projection(keys.build())
        .set_provisioned_throughput(units(&there)?);
    for (name, kind) in INDEX_KEYS {
        create = create.key_schema(element(name, KeyType::from(kind))?);
    }
    let create = GlobalSecondaryIndexUpdate::builder().create(built(create.build())?);
    let update = update.global_secondary_index_updates(create.build());
    call("init", design.table, update.send()).await.map(|_| true)
}

/// What an index has to have where capacity is set: as much as its table. One that has less throttles the table.
fn units(there: &TableDescription) -> Result<Option<ProvisionedThroughput>> {
    let mode = there.billing_mode_summary.as_ref().and_then(|mode| mode.billing_mode.as_ref());
    let set =
        there.provisioned_throughput.as_ref().filter(|_| mode != Some(&BillingMode::PayPerRequest));
    let set = set.and_then(|set| set.read_capacity_units.zip(set.write_capacity_units));
    let Some((reads, writes)) = set.filter(|(reads, writes)| *reads > 0 && *writes > 0) else {
        return Ok(None);
    };
    let units =
        ProvisionedThroughput::builder().read_capacity_units(reads).write_capacity_units(writes);
    built(units.build()).map(Some)
}
