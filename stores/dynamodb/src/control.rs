//! The store table's control items: facts, leases, heartbeats, and the version of the definitions.
//!
//! They share one partition key, so that a relay reads all of them in one query. Invariant: nothing large
//! and nothing that grows with the events stands here.

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::{Error, ErrorKind, PartitionId, RelayId, Result};

use crate::connection::{Connection, call};
use crate::item::{Item, number, s, text};

/// The partition key of the store and inbox tables.
pub(crate) const PK: &str = "pk";
/// The sort key of the store and inbox tables.
pub(crate) const SK: &str = "sk";
/// The store and inbox tables' attribute with the time to live.
pub(crate) const TTL: &str = "expires_at";

/// The partition key of the control items.
pub(crate) const CONTROL: &str = "control";
/// What the store is.
pub(crate) const FACTS: &str = "facts";
/// The version of the definitions.
pub(crate) const VERSION: &str = "version";
/// Of the version's item: the partitions that an operator paused.
pub(crate) const PAUSED: &str = "paused";
/// Of the version's item: how many requests were ever written down.
pub(crate) const ASKED: &str = "asked";
/// Before a partition's number: its lease.
pub(crate) const LEASE: &str = "lease#";
/// Before a relay's name: its heartbeat.
pub(crate) const RELAY: &str = "relay#";

/// The version of tables and items that this program writes.
pub(crate) const SCHEMA: u32 = 1;

/// The sort key of a partition's lease.
pub(crate) fn lease_sk(partition: PartitionId) -> String {
    format!("{LEASE}{:05}", partition.0)
}

/// The sort key of a relay's heartbeat.
pub(crate) fn relay_sk(relay: &RelayId) -> String {
    format!("{RELAY}{relay}")
}

/// The key of an item of the store table.
pub(crate) fn key(pk: &str, sk: &str) -> Item {
    Item::from([(PK.to_owned(), s(pk)), (SK.to_owned(), s(sk))])
}

/// What a store is, for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How many partitions there are.
    pub(crate) partitions: u16,
    /// Who says what names no source.
    pub(crate) source: String,
}

impl Facts {
    pub(crate) fn item(&self) -> Item {
        let mut item = key(CONTROL, FACTS);
        item.insert("schema".to_owned(), AttributeValue::N(SCHEMA.to_string()));
        item.insert("partitions".to_owned(), AttributeValue::N(self.partitions.to_string()));
        item.insert("source".to_owned(), s(&self.source));
        item
    }

    fn of(item: &Item) -> Result<Facts> {
        let corrupt = |what: &str| {
            Error::new(ErrorKind::Corrupt, "open")
                .message(format!("the store's facts have no {what}"))
        };
        let schema: u32 = number(item, "schema").ok_or_else(|| corrupt("schema"))?;
        if schema > SCHEMA {
            return Err(Error::new(ErrorKind::SchemaTooNew, "open")
                .message("the tables are of a newer version than this program knows; update it")
                .context("schema", schema)
                .context("known", SCHEMA));
        }
        let partitions = number(item, "partitions").ok_or_else(|| corrupt("partitions"))?;
        let source = text(item, "source").ok_or_else(|| corrupt("source"))?.to_owned();
        Ok(Facts { partitions, source })
    }
}

/// Reads what the store is.
pub(crate) async fn facts(connection: &Connection) -> Result<Facts> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let get = client.get_item().table_name(table).set_key(Some(key(CONTROL, FACTS)));
    let answer = call("open", table, get.consistent_read(true).send()).await?;
    let item = answer.item.ok_or_else(|| {
        Error::new(ErrorKind::SchemaMissing, "open")
            .message(
                "the table is there and is no store of Postrider; make one with `postrider init`",
            )
            .context("table", table)
    })?;
    Facts::of(&item)
}
