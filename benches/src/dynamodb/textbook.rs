//! The design of the articles: a transaction with an outbox item, a reader of the stream, an update for each
//! event that was published, and a scan for what the stream missed, every five seconds.
//!
//! It publishes to nobody. It keeps no order and no lease, so it does less than ours.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use aws_sdk_dynamodbstreams::Client as Streams;
use aws_sdk_dynamodbstreams::types::{
    AttributeValue as StreamedValue, OperationType, ShardIteratorType,
};

use crate::Result;
use crate::dynamodb::{PAYLOAD_BYTES, create_table, put_new, text};

/// How often everything is scanned.
pub(super) const SCAN_EVERY: Duration = Duration::from_secs(5);

/// How often the stream is read, as often as the service allows by default.
const STREAM_EVERY: Duration = Duration::from_millis(250);

/// How many items go in one request when a table is filled.
const FILL: u64 = 25;

/// The tables of one run, and clients of theirs.
pub(super) struct Textbook {
    metered: Client,
    streams: Streams,
    orders: String,
    outbox: String,
}

impl Textbook {
    /// Makes the tables. What the clients do is counted where they go through a meter.
    pub(super) async fn create(metered: Client, streams: Streams, run: &str) -> Result<Textbook> {
        let (orders, outbox) = (format!("{run}-textbook-orders"), format!("{run}-textbook-outbox"));
        create_table(&metered, &orders, false).await?;
        create_table(&metered, &outbox, true).await?;
        Ok(Textbook { metered, streams, orders, outbox })
    }

    /// An order and its event, in one transaction.
    pub(super) async fn order(&self, number: u64) -> Result<()> {
        let order = [("id", text(number)), ("state", text("placed"))];
        let order = order.map(|(name, value)| (name.to_owned(), value)).into();
        self.metered
            .transact_write_items()
            .transact_items(put_new(&self.orders, order)?)
            .transact_items(put_new(&self.outbox, item(number, "PENDING"))?)
            .send()
            .await?;
        Ok(())
    }

    /// Fills the outbox with events that were published, past the meter.
    pub(super) async fn retain(&self, direct: &Client, rows: u64) -> Result<()> {
        for from in (0..rows).step_by(usize::try_from(FILL)?) {
            let write = |number| -> Result<WriteRequest> {
                let put =
                    PutRequest::builder().set_item(Some(item(number, "PUBLISHED"))).build()?;
                Ok(WriteRequest::builder().put_request(put).build())
            };
            let numbers = (from..rows.min(from + FILL)).map(|number| write(1_000_000_000 + number));
            let writes = numbers.collect::<Result<Vec<_>>>()?;
            direct.batch_write_item().request_items(&self.outbox, writes).send().await?;
        }
        Ok(())
    }

    /// Publishes until it is told to stop; how many it marked is counted.
    pub(super) async fn relay(
        &self,
        from: ShardIteratorType,
        marked: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<()> {
        tokio::try_join!(self.follow(from, marked, stop), self.sweep(marked, stop))?;
        Ok(())
    }

    /// The live path.
    async fn follow(
        &self,
        from: ShardIteratorType,
        marked: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<()> {
        let table = self.metered.describe_table().table_name(&self.outbox).send().await?;
        let stream = table.table().and_then(|table| table.latest_stream_arn());
        let stream = stream.ok_or("the outbox has no stream")?;
        let mut next = Some(self.iterator(stream, from).await?);
        let pending = StreamedValue::S("PENDING".to_owned());
        while !stop.load(Ordering::Relaxed) {
            let asked = self.streams.get_records().set_shard_iterator(next.take()).send().await;
            // The emulator trims what is seconds old, and then refuses the iterator. What is missed the scan finds.
            if let Ok(page) = asked {
                for record in page.records() {
                    let keys = record.dynamodb().and_then(|change| change.keys());
                    let id = keys.and_then(|keys| keys.get("id")).and_then(|id| id.as_s().ok());
                    let image = record.dynamodb().and_then(|change| change.new_image());
                    let state = image.and_then(|image| image.get("state"));
                    let waits = state.is_some_and(|state| *state == pending);
                    if let (Some(OperationType::Insert), Some(id), true) =
                        (record.event_name(), id, waits)
                    {
                        self.mark(id, marked).await?;
                    }
                }
                next = page.next_shard_iterator;
            }
            if next.is_none() {
                next = Some(self.iterator(stream, ShardIteratorType::Latest).await?);
            }
            tokio::time::sleep(STREAM_EVERY).await; // waits: this is what such a loop does
        }
        Ok(())
    }

    /// Where the newest shard of the stream is read from.
    async fn iterator(&self, stream: &str, kind: ShardIteratorType) -> Result<String> {
        let described = self.streams.describe_stream().stream_arn(stream).send().await?;
        let shards = described.stream_description().map(|stream| stream.shards());
        let shard = shards.and_then(|shards| shards.last()).and_then(|shard| shard.shard_id());
        let asked = self.streams.get_shard_iterator().stream_arn(stream).shard_iterator_type(kind);
        let asked = asked.shard_id(shard.ok_or("the stream has no shard")?);
        asked.send().await?.shard_iterator.ok_or_else(|| "a shard without an iterator".into())
    }

    /// The backstop.
    async fn sweep(&self, marked: &AtomicU64, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(SCAN_EVERY).await; // waits: this is what such a loop does
            let mut from = None;
            loop {
                let page = self
                    .metered
                    .scan()
                    .table_name(&self.outbox)
                    .filter_expression("#state = :pending")
                    .expression_attribute_names("#state", "state")
                    .expression_attribute_values(":pending", text("PENDING"))
                    .set_exclusive_start_key(from)
                    .send()
                    .await?;
                for item in page.items() {
                    if let Some(Ok(id)) = item.get("id").map(AttributeValue::as_s) {
                        self.mark(id, marked).await?;
                    }
                }
                from = page.last_evaluated_key;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn mark(&self, id: &str, marked: &AtomicU64) -> Result<()> {
        let update = self
            .metered
            .update_item()
            .table_name(&self.outbox)
            .key("id", AttributeValue::S(id.to_owned()))
            .update_expression("set #state = :published")
            .condition_expression("#state = :pending")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":published", text("PUBLISHED"))
            .expression_attribute_values(":pending", text("PENDING"));
        match update.send().await {
            Ok(_) => {
                marked.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            // The other path was faster.
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn item(number: u64, state: &str) -> std::collections::HashMap<String, AttributeValue> {
    let payload = format!("{{\"order\":{number},\"note\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES));
    let fields = [
        ("id", text(number)),
        ("state", text(state)),
        ("aggregate_type", text("order")),
        ("aggregate_id", text(number)),
        ("event_type", text("order.placed")),
        ("payload", text(payload)),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).into()
}
