//! Ours, through a meter: producers whose business item has the key's number, and a relay that publishes to
//! nobody.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeValue, PutRequest, Select, TransactWriteItem, WriteRequest,
};
use postrider_core::{NewEvent, Payload};
use postrider_dynamodb::{Connection, DynamoStore, Names, Outbox, PARTITIONS_DEFAULT, Setup, init};
use postrider_relay::RelayHandle;
use tokio::runtime::Runtime;

use crate::broker::Witness;
use crate::dynamodb::{PAYLOAD_BYTES, connect, put_new, text};
use crate::{Result, relay};

/// What a mark takes from an item: with it, an item is in the index.
const PENDING: &str = "pr_shard";

/// How many items go in one request when a table is filled.
const FILL: u64 = 25;

/// How many transactions fill a backlog at once.
const WRITERS: usize = 16;

/// The tables of one run.
pub(super) struct Ours {
    pub(super) connection: Connection,
    outbox: Outbox,
    orders: String,
}

impl Ours {
    /// Makes the tables. What the connection does is counted where its address is a meter's.
    pub(super) async fn create(url: &str, run: &str) -> Result<Ours> {
        let names = Names::with_prefix(&format!("{run}-ours-"));
        let connection = connect(url, names)?;
        init(&connection, &Setup::default()).await?;
        let orders = format!("{run}-ours-orders");
        super::create_table(connection.tables().await, &orders, false).await?;
        let outbox = Outbox::open(&connection).await?;
        Ok(Ours { connection, outbox, orders })
    }

    /// A handle on the same tables past the meter.
    pub(super) fn at(&self, url: &str) -> Result<Connection> {
        connect(url, self.connection.names().clone())
    }

    /// An order and its event, in one transaction. The order is its key's first change, and says so itself.
    pub(super) async fn order(&self, number: u64) -> Result<()> {
        let order = [("id", text(number)), ("state", text("placed")), ("version", text(1))];
        let order = order.map(|(name, value)| (name.to_owned(), value)).into();
        let event = event(number)?;
        let actions: [TransactWriteItem; 2] =
            [put_new(&self.orders, order)?, self.outbox.stage_numbered(&event.key(), 1, &event)?];
        let client = self.connection.tables().await;
        client.transact_write_items().set_transact_items(Some(actions.into())).send().await?;
        Ok(())
    }

    /// Fills the outbox with so many pending events, of a key each.
    pub(super) async fn fill(&self, rows: u64) -> Result<()> {
        use futures_util::{StreamExt as _, TryStreamExt as _, stream};
        let orders = stream::iter((0..rows).map(|number| self.order(number)));
        orders.buffer_unordered(WRITERS).try_collect::<()>().await
    }

    /// Fills it with events that were published.
    pub(super) async fn retain(&self, direct: &Client, rows: u64) -> Result<()> {
        let names = self.connection.names();
        for from in (0..rows).step_by(usize::try_from(FILL)?) {
            let write = |number| -> Result<WriteRequest> {
                let event = event(1_000_000_000 + number)?;
                let mut item: HashMap<String, AttributeValue> =
                    self.outbox.item(&event.key(), 1, &event)?;
                item.remove(PENDING).ok_or("an event that was written is in the index")?;
                item.insert(names.ttl.clone(), AttributeValue::N("4000000000".to_owned()));
                let put = PutRequest::builder().set_item(Some(item)).build()?;
                Ok(WriteRequest::builder().put_request(put).build())
            };
            let writes = (from..rows.min(from + FILL)).map(write).collect::<Result<Vec<_>>>()?;
            direct.batch_write_item().request_items(&names.outbox, writes).send().await?;
        }
        Ok(())
    }

    /// How many events are not marked.
    pub(super) async fn pending(&self, direct: &Client) -> Result<u64> {
        let names = self.connection.names();
        let mut pending = 0;
        for partition in 0..PARTITIONS_DEFAULT {
            let page = direct
                .query()
                .table_name(&names.outbox)
                .index_name(&names.index)
                .key_condition_expression("pr_shard = :shard")
                .expression_attribute_values(":shard", text(format!("p{partition:05}")))
                .select(Select::Count)
                .send()
                .await?;
            pending += u64::try_from(page.count)?;
        }
        Ok(pending)
    }

    /// A relay on them.
    pub(super) fn relay(&self, runtime: &Runtime, broker: Arc<Witness>) -> Result<RelayHandle> {
        relay::start_store(runtime, Arc::new(self.store()), broker)
    }

    pub(super) fn store(&self) -> DynamoStore {
        DynamoStore::new(self.connection.clone())
    }
}

fn event(number: u64) -> Result<NewEvent> {
    let payload = format!("{{\"order\":{number},\"note\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES));
    let event = NewEvent::new("order", number.to_string(), "order.placed");
    Ok(event.payload(Payload::json(payload)?, "application/json"))
}
