//! The emulator's own ceiling: what a relay asks of it, from a bare client. The index is read, each key's items
//! are read consistently, and each is marked by a condition.

use std::collections::HashMap;
use std::time::Instant;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use postrider_dynamodb::{Names, PARTITIONS_DEFAULT};

use super::text;
use crate::Result;
use crate::measure::rate;

/// How many keys of a partition are read, or its items marked, at once: as many as ours marks.
const AT_ONCE: usize = 32;
/// How many partitions are drained at once. More did not make it faster.
const PARTITIONS_AT_ONCE: usize = 8;

type Item = HashMap<String, AttributeValue>;

/// Reads and marks everything that is pending, and says how many a second.
pub(super) async fn drain(client: &Client, names: &Names, rows: u64) -> Result<f64> {
    let began = Instant::now();
    let partitions = stream::iter(0..PARTITIONS_DEFAULT).map(|it| partition(client, names, it));
    let marked = partitions
        .buffer_unordered(PARTITIONS_AT_ONCE)
        .try_fold(0, |sum, marked| async move { Ok(sum + marked) })
        .await?;
    let per_s = rate(rows, began);
    if marked == rows { Ok(per_s) } else { Err(format!("{marked} of {rows} were marked").into()) }
}

/// Reads and marks what is pending of one partition, and says how many.
async fn partition(client: &Client, names: &Names, partition: u16) -> Result<u64> {
    let (mut marked, mut from) = (0, None);
    loop {
        let page = client
            .query()
            .table_name(&names.outbox)
            .index_name(&names.index)
            .key_condition_expression("pr_shard = :shard")
            .expression_attribute_values(":shard", text(format!("p{partition:05}")))
            .limit(1_000)
            .set_exclusive_start_key(from.take())
            .send()
            .await?;
        from = page.last_evaluated_key;
        let entries = page.items.unwrap_or_default();
        let found = stream::iter(entries.iter().map(|entry| read(client, names, entry)));
        let found: Vec<Item> = found.buffer_unordered(AT_ONCE).try_collect().await?;
        marked += found.len() as u64;
        let marks = stream::iter(found.iter().map(|item| mark(client, names, item)));
        marks.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if from.is_none() {
            return Ok(marked);
        }
    }
}

async fn read(client: &Client, names: &Names, entry: &Item) -> Result<Item> {
    let pk = entry.get(&names.pk).ok_or("an entry without a key")?;
    let page = client
        .query()
        .table_name(&names.outbox)
        .key_condition_expression("#pk = :pk AND begins_with(#sk, :event)")
        .expression_attribute_names("#pk", &names.pk)
        .expression_attribute_names("#sk", &names.sk)
        .expression_attribute_values(":pk", pk.clone())
        .expression_attribute_values(":event", text("OUTBOX#"))
        .scan_index_forward(false)
        .consistent_read(true)
        .send()
        .await?;
    page.items.unwrap_or_default().pop().ok_or_else(|| "an entry without its item".into())
}

async fn mark(client: &Client, names: &Names, item: &Item) -> Result<()> {
    let key = [&names.pk, &names.sk].map(|name| Some((name.clone(), item.get(name)?.clone())));
    let key: Option<Item> = key.into_iter().collect();
    client
        .update_item()
        .table_name(&names.outbox)
        .set_key(key)
        .update_expression("SET #ttl = :ttl, published_at = :ttl REMOVE pr_shard")
        .condition_expression("attribute_exists(pr_shard)")
        .expression_attribute_names("#ttl", &names.ttl)
        .expression_attribute_values(":ttl", AttributeValue::N("4000000000".to_owned()))
        .send()
        .await?;
    Ok(())
}
