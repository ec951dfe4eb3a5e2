//! The benchmarks on DynamoDB: an emulator for each contender, with a meter before it.
//!
//! Rates are the emulator's and say nothing of the service; what is asked of it, and what that costs in units,
//! is the same there.

mod bare;
mod drain;
mod emulator;
mod meter;
mod ours;
mod textbook;
mod units;

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType, StreamSpecification, StreamViewType, TransactWriteItem,
};
use postrider_dynamodb::{Connection, Names, Settings};

use crate::Result;
use crate::options::Options;
use crate::outcome::Outcome;

/// The filling of a payload: with it an event's item has less than 1 KB, a unit of writing.
const PAYLOAD_BYTES: usize = 400;

/// Runs a benchmark by its name.
pub(crate) fn run(name: &str, options: &Options) -> Result<Outcome> {
    match name {
        "drain" => drain::run(options),
        "units" => units::run(options),
        other => Err(format!("`{other}` is not measured on DynamoDB").into()),
    }
}

/// What names of tables begin with.
const RUN: &str = "bench";

/// How long a call may take here: an emulator that scans a hundred thousand items is slow.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);

/// A connection past every meter, for what is not measured.
fn direct(server: &str) -> Result<Connection> {
    connect(server, Names::default())
}

/// A connection with the patience that an emulator needs.
fn connect(url: &str, names: Names) -> Result<Connection> {
    let mut settings = Settings::at(url, names);
    settings.call_time_max = CALL_TIME_MAX;
    Ok(Connection::new(settings)?)
}

/// A table of one key, with a stream or without.
async fn create_table(client: &Client, table: &str, streamed: bool) -> Result<()> {
    let id = AttributeDefinition::builder()
        .attribute_name("id")
        .attribute_type(ScalarAttributeType::S)
        .build()?;
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build()?;
    let stream = StreamSpecification::builder()
        .stream_enabled(streamed)
        .set_stream_view_type(streamed.then_some(StreamViewType::NewImage))
        .build()?;
    client
        .create_table()
        .table_name(table)
        .attribute_definitions(id)
        .key_schema(key)
        .billing_mode(BillingMode::PayPerRequest)
        .stream_specification(stream)
        .send()
        .await?;
    Ok(())
}

/// The put of an item that is not there yet.
fn put_new(table: &str, item: HashMap<String, AttributeValue>) -> Result<TransactWriteItem> {
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(id)")
        .build()?;
    Ok(TransactWriteItem::builder().put(put).build())
}

fn text(value: impl ToString) -> AttributeValue {
    AttributeValue::S(value.to_string())
}
