//! The service that takes orders: the order and its event are written in one transaction, or neither is.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType, TransactWriteItem,
};
use postrider::NewEvent;
use postrider::dynamodb::{Connection, Outbox};
use serde_json::json;

use crate::Failure;

/// See the module.
pub struct Orders {
    connection: Connection,
    outbox: Outbox,
    pub(crate) table: String,
}

impl Orders {
    pub(crate) async fn open(connection: &Connection, table: &str) -> Result<Orders, Failure> {
        let client = connection.tables().await;
        let id = AttributeDefinition::builder()
            .attribute_name("id")
            .attribute_type(ScalarAttributeType::S);
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
        client
            .create_table()
            .table_name(table)
            .attribute_definitions(id.build()?)
            .key_schema(key.build()?)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await?;
        let outbox = Outbox::open(connection).await?;
        Ok(Orders { connection: connection.clone(), outbox, table: table.to_owned() })
    }

    /// Places an order. One that is there already is refused, and nothing is said of it.
    ///
    /// # Errors
    /// If the order is there already, or the service cannot be reached.
    pub async fn place(&self, order: &str, cents: i64) -> Result<(), Failure> {
        let item = HashMap::from([
            ("id".to_owned(), AttributeValue::S(order.to_owned())),
            ("cents".to_owned(), AttributeValue::N(cents.to_string())),
        ]);
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(id)");
        let order_item = TransactWriteItem::builder().put(put.build()?).build();
        let event = placed(order, cents)?;
        Ok(self.outbox.write(&[order_item], &[event]).await?)
    }

    /// The orders that are there.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub async fn all(&self) -> Result<HashMap<String, i64>, Failure> {
        let client: &Client = self.connection.tables().await;
        let page = client.scan().table_name(&self.table).consistent_read(true).send().await?;
        let read = |item: &HashMap<String, AttributeValue>| {
            let id = item.get("id")?.as_s().ok()?.clone();
            Some((id, item.get("cents")?.as_n().ok()?.parse().ok()?))
        };
        Ok(page.items().iter().filter_map(read).collect())
    }
}

fn placed(order: &str, cents: i64) -> Result<NewEvent, Failure> {
    let event = NewEvent::new("order", order, "order.placed").source("/shop");
    Ok(event.json(&json!({ "order": order, "cents": cents }))?)
}
