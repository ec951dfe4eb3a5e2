//! Messages that the service pushes to a function: JSON, in the shape that is documented for Lambda.
//!
//! Invariants: each is a delivery like one that was asked for, settled through the same subscription; and a batch
//! that cannot be told for messages is refused as a whole, so that it comes again.

use std::sync::Arc;

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use postrider_core::{Delivery, Error, ErrorKind, Result};
use serde_json::Value;
use tokio::time::Instant;

use crate::fifo::is_fifo;
use crate::message::TEXT;
use crate::subscription::SqsSubscription;

/// The most bytes of one invocation: what the service sends at most.
pub const PUSHED_BYTES_MAX: usize = 6 * 1024 * 1024;
/// The most messages of one invocation: the largest batch that an event source can be given.
pub const PUSHED_MAX: usize = 10_000;

/// A message of an invocation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pushed {
    /// The queue's id of it: what a partial failure is reported by.
    pub id: Arc<str>,
    /// Its group, in a queue of the kind FIFO.
    pub group: Option<Arc<str>>,
    /// How often the queue gave it out, this time included, whoever took it.
    pub receives: u32,
    /// The delivery, to be settled by the subscription that it was adopted by.
    pub delivery: Delivery,
}

impl SqsSubscription {
    /// Takes over the messages of an invocation, in the queue's order.
    ///
    /// # Errors
    /// `TooLarge` for more than the service ever sends, `Invalid` for what is no batch of a queue. Nothing was done
    /// then; the batch comes again.
    pub fn adopt(&self, json: &[u8]) -> Result<Vec<Pushed>> {
        if json.len() > PUSHED_BYTES_MAX {
            let bytes = json.len();
            let what = format!("{bytes} bytes, and an invocation has {PUSHED_BYTES_MAX}");
            return Err(refused(ErrorKind::TooLarge, &what));
        }
        let batch: Value = serde_json::from_slice(json)
            .map_err(|error| refused(ErrorKind::Invalid, &format!("no JSON: {error}")))?;
        let records = batch["Records"].as_array();
        let records = records.ok_or_else(|| {
            refused(ErrorKind::Invalid, "no batch of a queue: it has no `Records`")
        })?;
        if records.len() > PUSHED_MAX {
            let what = format!("{} messages, and an invocation has {PUSHED_MAX}", records.len());
            return Err(refused(ErrorKind::TooLarge, &what));
        }
        records.iter().map(|record| self.adopt_one(record)).collect()
    }

    /// A delivery was done with, and the service deletes its message once the function answers: nothing of it is kept
    /// here, and a copy that comes all the same is counted anew.
    pub fn dismiss(&self, delivery: &Delivery) {
        self.receipts().close(delivery.receipt);
        self.receipts().forget(delivery.receipt.message);
    }

    /// A delivery comes again when its visibility ends, because the queue did not hear of it, or will not be asked: it
    /// is settled here no more. `counted` says whether it was a try.
    pub fn abandon(&self, delivery: &Delivery, counted: bool) {
        self.receipts().close(delivery.receipt);
        if !counted {
            self.receipts().discount(delivery.receipt.message);
        }
    }

    fn adopt_one(&self, record: &Value) -> Result<Pushed> {
        let (Some(id), Some(handle)) =
            (record["messageId"].as_str(), record["receiptHandle"].as_str())
        else {
            // It could not be reported as failed, so it must not be taken for settled.
            let what = "a record that is no message: it has no `messageId`, or no `receiptHandle`";
            return Err(refused(ErrorKind::Invalid, what));
        };
        let queue = record["eventSourceARN"].as_str().unwrap_or_default();
        let group = record["attributes"]["MessageGroupId"].as_str();
        let mut message = Message::builder()
            .message_id(id)
            .receipt_handle(handle)
            .body(record["body"].as_str().unwrap_or_default());
        if let Some(group) = group {
            message = message.attributes(MessageSystemAttributeName::MessageGroupId, group);
        }
        for (name, value) in record["messageAttributes"].as_object().into_iter().flatten() {
            let Some(text) = value["stringValue"].as_str() else { continue };
            let kind = value["dataType"].as_str().unwrap_or(TEXT);
            let attribute = MessageAttributeValue::builder().data_type(kind).string_value(text);
            if let Ok(attribute) = attribute.build() {
                message = message.message_attributes(name, attribute);
            }
        }
        let receives = record["attributes"]["ApproximateReceiveCount"].as_str();
        Ok(Pushed {
            id: id.into(),
            // A standard queue may have groups too, for fairness, and no order.
            group: group.filter(|_| is_fifo(queue)).map(Arc::from),
            receives: receives.and_then(|count| count.parse().ok()).unwrap_or(1),
            delivery: self.deliver((Instant::now(), message.build())),
        })
    }
}

fn refused(kind: ErrorKind, what: &str) -> Error {
    Error::new(kind, "read invocation")
        .message(format!("{what}; nothing was done, and the batch comes again"))
}
