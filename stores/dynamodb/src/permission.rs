//! Permissions: what the program would be refused, found by asking for things that are not there.
//!
//! Invariant: nothing is written: each write has a condition that never holds, on a key that is nobody's.

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, KeysAndAttributes, TransactWriteItem,
};
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use postrider_core::{Error, ErrorKind, Result};

use crate::connection::{Connection, call};
use crate::design::Design;
use crate::item::{Item, s};
use crate::record::SHARD;

/// The key that nothing has.
const NOBODY: &str = "postrider-doctor";

/// What is refused of what the parts of the program do with a table, with the action's name.
pub(crate) async fn missing(
    connection: &Connection,
    design: &Design<'_>,
    stream: Option<&str>,
) -> Vec<(&'static str, Error)> {
    let names = connection.names();
    let probe = Probe { connection, design };
    let mut asked = vec![
        ("dynamodb:GetItem", probe.get().await),
        ("dynamodb:UpdateItem", probe.update().await),
    ];
    if design.table == names.store {
        asked.push(("dynamodb:PutItem", probe.put().await));
        asked.push(("dynamodb:DeleteItem", probe.delete().await));
        asked.push(("dynamodb:ConditionCheckItem", probe.check().await));
    }
    if design.table == names.outbox {
        asked.push(("dynamodb:BatchGetItem", probe.batch().await));
    }
    if design.table != names.inbox {
        asked.push(("dynamodb:Query", probe.query(None).await));
    }
    if design.index.is_some() {
        asked.push(("dynamodb:Query", probe.query(design.index).await));
        if let Some(stream) = stream {
            asked.push(("dynamodb:GetRecords", probe.stream(stream).await));
        }
    }
    asked.into_iter().filter_map(|(action, answer)| Some((action, answer.err()?))).collect()
}

struct Probe<'a> {
    connection: &'a Connection,
    design: &'a Design<'a>,
}

impl Probe<'_> {
    fn key(&self) -> Item {
        let [(pk, _), (sk, _)] = self.design.keys();
        Item::from([(pk.to_owned(), s(NOBODY)), (sk.to_owned(), s(NOBODY))])
    }

    async fn get(&self) -> Result<()> {
        let table = self.design.table;
        let get = self.connection.tables().await.get_item().table_name(table);
        call("examine", table, get.set_key(Some(self.key())).send()).await.map(drop)
    }

    /// Items by their keys: what waits is fetched so, and so is what has no order.
    async fn batch(&self) -> Result<()> {
        let table = self.design.table;
        let keys = KeysAndAttributes::builder().keys(self.key()).build();
        let keys = keys.map_err(|error| {
            Error::new(ErrorKind::Internal, "examine").message(error.to_string())
        })?;
        let get = self.connection.tables().await.batch_get_item().request_items(table, keys);
        call("examine", table, get.send()).await.map(drop)
    }

    /// A check within a transaction: the fence of every write of a relay is one.
    async fn check(&self) -> Result<()> {
        let table = self.design.table;
        let check = ConditionCheck::builder()
            .table_name(table)
            .set_key(Some(self.key()))
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", self.design.keys()[0].0)
            .build();
        let check = check.map_err(|error| {
            Error::new(ErrorKind::Internal, "examine").message(error.to_string())
        })?;
        let action = TransactWriteItem::builder().condition_check(check).build();
        let write = self.connection.tables().await.transact_write_items().transact_items(action);
        match call("examine", table, write.send()).await {
            Err(error) if error.kind() == ErrorKind::Unauthorized => Err(error),
            // It was allowed, and did not hold.
            _ => Ok(()),
        }
    }

    async fn update(&self) -> Result<()> {
        let table = self.design.table;
        let update = self.connection.tables().await.update_item().table_name(table);
        let update = update
            .set_key(Some(self.key()))
            .update_expression("SET #done = :done")
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#done", NOBODY)
            .expression_attribute_names("#pk", self.design.keys()[0].0)
            .expression_attribute_values(":done", AttributeValue::Bool(true));
        never(call("examine", table, update.send()).await.map(drop))
    }

    async fn put(&self) -> Result<()> {
        let table = self.design.table;
        let put = self.connection.tables().await.put_item().table_name(table);
        let put = put
            .set_item(Some(self.key()))
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", self.design.keys()[0].0);
        never(call("examine", table, put.send()).await.map(drop))
    }

    async fn delete(&self) -> Result<()> {
        let table = self.design.table;
        let delete = self.connection.tables().await.delete_item().table_name(table);
        let delete = delete
            .set_key(Some(self.key()))
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", self.design.keys()[0].0);
        never(call("examine", table, delete.send()).await.map(drop))
    }

    async fn query(&self, index: Option<&str>) -> Result<()> {
        let table = self.design.table;
        let key = if index.is_some() { SHARD } else { self.design.keys()[0].0 };
        let query = self.connection.tables().await.query().table_name(table);
        let query = query
            .set_index_name(index.map(str::to_owned))
            .key_condition_expression("#key = :nobody")
            .expression_attribute_names("#key", key)
            .expression_attribute_values(":nobody", s(NOBODY))
            .limit(1);
        match call("examine", table, query.send()).await {
            // An index that is not there is told of by the table's description.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
            other => other.map(drop),
        }
    }

    async fn stream(&self, arn: &str) -> Result<()> {
        let table = self.design.table;
        let client = self.connection.streams().await;
        let shards =
            call("examine", table, client.describe_stream().stream_arn(arn).send()).await?;
        let shards = shards.stream_description.and_then(|stream| stream.shards);
        let Some(shard) = shards.and_then(|shards| shards.into_iter().next()?.shard_id) else {
            return Ok(());
        };
        let ask = client
            .get_shard_iterator()
            .stream_arn(arn)
            .shard_id(shard)
            .shard_iterator_type(ShardIteratorType::Latest);
        let there = call("examine", table, ask.send()).await?;
        let read = client.get_records().set_shard_iterator(there.shard_iterator).limit(1);
        call("examine", table, read.send()).await.map(drop)
    }
}

/// A write whose condition does not hold was allowed.
fn never(answer: Result<()>) -> Result<()> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => other,
    }
}
