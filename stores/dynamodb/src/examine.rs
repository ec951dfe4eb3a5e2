//! What a person should know of the tables before something goes wrong.
//!
//! Invariant: nothing is written. A permission to write is asked for by a write whose condition never holds.

use aws_sdk_dynamodb::types::{
    BillingMode, GlobalSecondaryIndexDescription, IndexStatus, KeySchemaElement, KeyType,
    StreamViewType, TableDescription, TimeToLiveStatus,
};
use postrider_core::operate::{Finding, findings as say};
use postrider_core::{Code, Error, ErrorKind, Result};

use crate::connection::{Connection, call};
use crate::design::{Design, INDEX_PROJECTION};
use crate::permission;
use crate::record::{AT, SHARD};
use crate::tables::describe;

/// What a person should know of the tables: a stream without images, an index or a time to live that is
/// not there, a capacity that may be too small, a permission that is missing. It begins with what is as it
/// should be. What is wrong with a stream that no relay reads is only told.
///
/// # Errors
/// `SchemaMissing` if the table with the events is absent, and whatever the service says if it describes none of
/// the tables. One that it does not describe is a finding, and the others are still examined.
pub async fn findings(connection: &Connection, reads_stream: bool) -> Result<Vec<Finding>> {
    let names = connection.names();
    let (mut found, mut first, mut described) = (Vec::new(), None, false);
    for design in Design::all(names) {
        let before = found.len();
        let there = match describe(connection, "examine", design.table).await {
            Ok(there) => there,
            Err(error) if error.kind() == ErrorKind::SchemaMissing && design.index.is_none() => {
                let advice = "Make it: `postrider init` makes what is absent.";
                let missing = Code::SchemaMissing;
                found.push(say::critical(&subject(design.table), told(&error), advice, missing));
                continue;
            }
            Err(error) if error.kind() == ErrorKind::SchemaMissing => return Err(error),
            Err(error) => {
                found.push(of_refusal(design.table, &("dynamodb:DescribeTable", &error)));
                first = first.or(Some(error));
                continue;
            }
        };
        described = true;
        of_table(connection, &design, &there, reads_stream, &mut found).await;
        let stream = there.latest_stream_arn.as_deref().filter(|_| reads_stream);
        for (action, error) in permission::missing(connection, &design, stream).await {
            found.push(of_refusal(design.table, &(action, &error)));
        }
        if found.len() == before {
            let what = "keys, time to live, capacity, and permissions are as they should be";
            found.push(say::good(&subject(design.table), what));
        }
    }
    match first {
        Some(error) if !described => Err(error),
        _ => Ok(found),
    }
}

fn subject(table: &str) -> String {
    format!("table {table}")
}

/// An error's message for a finding, which says by itself what it is about.
fn told(error: &Error) -> String {
    error.to_string()
}

async fn of_table(
    connection: &Connection,
    design: &Design<'_>,
    there: &TableDescription,
    reads_stream: bool,
    found: &mut Vec<Finding>,
) {
    let subject = subject(design.table);
    if design.index.is_some() {
        if let Err(error) = check_index(connection, there) {
            let advice = "Add the index: `postrider init --print` and deploy/aws have it.";
            found.push(say::critical(&subject, told(&error), advice, Code::TablesUnfit));
        } else if is_backfilled(connection, there) {
            let message = "the index is being filled: what is pending is not all in it yet";
            let advice = "Wait until the service says ACTIVE of it, then start relays.";
            found.push(say::coded(&subject, message, advice, Code::TablesUnfit));
        }
        found.extend(of_projection(&subject, our_index(connection, there)));
        match check_stream(connection, there) {
            Ok(_) => {}
            Err(error) if reads_stream => {
                let advice = "Switch the stream on with NEW_IMAGE. Until then write `stream = false` in \
                              [dynamodb]: the relay polls the index.";
                found.push(say::critical(&subject, told(&error), advice, Code::TablesUnfit));
            }
            Err(error) => {
                let polled = "no relay reads it (`stream = false`), they poll the index";
                found.push(say::good(&subject, format!("{}; {polled}", told(&error))));
            }
        }
    }
    match expires(connection, design).await {
        Ok(by) if by.as_deref() == Some(design.ttl) => {}
        Ok(by) => found.push(of_time_to_live(&subject, design.ttl, by)),
        Err(error) => {
            found.push(of_refusal(design.table, &("dynamodb:DescribeTimeToLive", &error)))
        }
    }
    found.extend(of_capacity(&subject, there));
}

/// A time to live that is off, or by an attribute that events have not: a table has one.
fn of_time_to_live(subject: &str, ttl: &str, by: Option<String>) -> Finding {
    let message = format!("no time to live on the attribute {ttl}: what is done stays for ever");
    let advice = match by {
        None => format!("Switch the time to live on, on the attribute {ttl}."),
        Some(by) => format!(
            "The table has its one time to live on {by}. Write `ttl={by}` in the address, if events may \
             share it with your items."
        ),
    };
    say::coded(subject, message, advice, Code::StoreGrows)
}

/// The attribute by which the service removes what has expired.
async fn expires(connection: &Connection, design: &Design<'_>) -> Result<Option<String>> {
    let client = connection.tables().await;
    let ask = client.describe_time_to_live().table_name(design.table);
    let told = call("examine", design.table, ask.send()).await?;
    let on = [Some(TimeToLiveStatus::Enabled), Some(TimeToLiveStatus::Enabling)];
    let live = told.time_to_live_description.filter(|live| on.contains(&live.time_to_live_status));
    Ok(live.and_then(|live| live.attribute_name))
}

/// A capacity that somebody set: beyond it the service refuses, whatever it could.
fn of_capacity(subject: &str, there: &TableDescription) -> Option<Finding> {
    let mode =
        there.billing_mode_summary.as_ref().and_then(|billing| billing.billing_mode.as_ref());
    let provisioned = there.provisioned_throughput.as_ref().map(|throughput| {
        (throughput.read_capacity_units.unwrap_or(0), throughput.write_capacity_units.unwrap_or(0))
    });
    let limits = match (mode, provisioned) {
        (Some(BillingMode::PayPerRequest), _) => {
            let limit = there.on_demand_throughput.as_ref()?;
            let set = |units: Option<i64>| units.filter(|units| *units >= 0);
            let (reads, writes) =
                (set(limit.max_read_request_units), set(limit.max_write_request_units));
            (reads.is_some() || writes.is_some())
                .then(|| (reads.unwrap_or(0), writes.unwrap_or(0)))?
        }
        // Emulators say nothing of the mode, and no units either.
        (_, Some((reads, writes))) if reads > 0 || writes > 0 => (reads, writes),
        _ => return None,
    };
    let message = format!(
        "the table takes {} reads and {} writes a second, and throttles what is beyond: events wait then",
        limits.0, limits.1
    );
    let advice = "An event costs some 6 writes here from its commit to its mark; docs/benchmarks.md has the \
                  figures. Switch the table to on-demand, or scale it with its load.";
    Some(say::coded(subject, message, advice, Code::CapacityShort))
}

/// A call that was refused.
fn of_refusal(table: &str, (action, error): &(&'static str, &Error)) -> Finding {
    let subject = subject(table);
    match error.kind() {
        ErrorKind::Unauthorized => {
            let advice = format!(
                "Allow {action} on it. deploy/aws has the policy of each part; an operator's may be \
                 less than a relay's."
            );
            say::critical(&subject, told(error), advice, Code::Unauthorized)
        }
        ErrorKind::Busy => {
            let advice = "Raise its capacity, or switch it to on-demand.";
            say::coded(&subject, told(error), advice, Code::CapacityShort)
        }
        _ => say::unexamined(&format!("{subject}, {action}"), error),
    }
}

/// An index that has more than it is asked for: every write of it is paid by size.
fn of_projection(
    subject: &str,
    index: Option<&GlobalSecondaryIndexDescription>,
) -> Option<Finding> {
    let projection = index?.projection()?.projection_type()?.as_str();
    if projection == INDEX_PROJECTION {
        return None;
    }
    let message = format!(
        "the index carries {projection}, and its keys are enough: each event is written and stored twice for it"
    );
    let advice = format!(
        "Make the index again with the projection {INDEX_PROJECTION}; meanwhile nothing is wrong but the price."
    );
    Some(say::coded(subject, message, advice, Code::TablesUnfit))
}

fn is_backfilled(connection: &Connection, there: &TableDescription) -> bool {
    our_index(connection, there)
        .is_some_and(|index| index.index_status == Some(IndexStatus::Creating))
}

/// The sparse index, if it is there. One that is being deleted answers no more.
fn our_index<'a>(
    connection: &Connection,
    there: &'a TableDescription,
) -> Option<&'a GlobalSecondaryIndexDescription> {
    there.global_secondary_indexes().iter().find(|index| {
        index.index_name() == Some(&connection.names().index)
            && index.index_status != Some(IndexStatus::Deleting)
    })
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

fn keys_are(schema: &[KeySchemaElement], pk: &str, sk: &str) -> bool {
    let of = |kind: KeyType| schema.iter().find(|e| e.key_type == kind).map(|e| &*e.attribute_name);
    of(KeyType::Hash) == Some(pk) && of(KeyType::Range) == Some(sk)
}

/// Checks the keys of the outbox table.
pub(crate) fn check_keys(connection: &Connection, there: &TableDescription) -> Result<()> {
    let names = connection.names();
    if keys_are(there.key_schema(), &names.pk, &names.sk) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Config, "examine index")
        .message(format!(
            "the table's keys are not {} and {}; nothing was changed in it: the address names them by \
             pk= and sk=",
            names.pk, names.sk
        ))
        .context("table", &names.outbox))
}

/// Checks the keys of the table and of the sparse index. What an index carries besides changes only the price.
pub(crate) fn check_index(connection: &Connection, there: &TableDescription) -> Result<()> {
    check_keys(connection, there)?;
    let names = connection.names();
    let refuse = |message: String| {
        Error::new(ErrorKind::Config, "examine index")
            .message(message)
            .context("table", &names.outbox)
    };
    let Some(index) = our_index(connection, there) else {
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
