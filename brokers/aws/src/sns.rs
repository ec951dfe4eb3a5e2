//! Topics of SNS as a destination.
//!
//! Invariant: one message of a key is under way at a time, because a topic that refuses one takes those behind it all
//! the same.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_sns::Client;
use aws_sdk_sns::types::{MessageAttributeValue, PublishBatchRequestEntry};
use postrider_core::operate::Finding;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Fault, Outcome, Outgoing, Result, Route,
};
use tokio::time::Instant;

use crate::answer::{Call, Trouble, judge, judge_words};
use crate::call::{Carrier, Prepared, carry, nameless};
use crate::capabilities;
use crate::connection::Connection;
use crate::fifo;
use crate::message::{Message, TEXT, encode};
use crate::settings::AwsSettings;
use crate::sqs::{closed, unmade};
use crate::topics::arn;

/// What traces call it.
const SYSTEM: &str = "aws_sns";
/// Bytes of a message, and of the messages of a call.
pub(crate) const BYTES_MAX: usize = 256 * 1024;

/// A broker that publishes to topics of SNS. The topic of a route is a topic's name, with
/// [`AwsSettings::account`], or its ARN.
///
/// **Durability.** An acknowledged message is kept on several servers of the region until it was handed to each
/// subscriber, or SNS gave up on one. A topic without subscribers takes what comes, and keeps nothing.
/// **Order.** In a topic of the kind FIFO the key is the message's group, and one event of a key is under way at a
/// time. A standard topic has no order.
/// **Duplicates.** A topic of the kind FIFO absorbs a copy of an event for five minutes, by its id.
/// **Cancellation.** What a dropped call had sent may arrive; nothing is sent later.
pub struct SnsBroker {
    pub(crate) connection: Connection,
    closed: AtomicBool,
}

impl SnsBroker {
    /// Checks the settings and makes a broker. Nobody is called before the first event.
    ///
    /// # Errors
    /// `Config`, naming the setting.
    pub fn new(settings: AwsSettings) -> Result<SnsBroker> {
        let connection = Connection::new(settings)?;
        Ok(SnsBroker { connection, closed: AtomicBool::new(false) })
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed("SNS"));
        }
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let settings = self.connection.settings();
        let until = Instant::now() + settings.deadline;
        let config = self.connection.config(until).await?;
        let region = config.region().map(AsRef::as_ref).unwrap_or_default();
        let arn = match arn(settings, region, &first.topic) {
            Ok(arn) => arn,
            // A batch goes to one topic.
            Err(fault) => return Ok(vec![Outcome::Unroutable(fault); batch.len()]),
        };
        let bytes_max = settings.message_bytes_max.map_or(BYTES_MAX, |max| max as usize);
        let prepared = batch.iter().enumerate();
        let prepared = prepared.map(|(at, outgoing)| prepare(at, outgoing, bytes_max)).collect();
        carry(&Sender { client: Client::new(config), arn }, prepared, bytes_max, until).await
    }
}

fn prepare(
    at: usize,
    outgoing: &Outgoing,
    bytes_max: usize,
) -> Result<Prepared<PublishBatchRequestEntry>, Fault> {
    let message = encode(outgoing, bytes_max)?;
    let bytes = message.bytes();
    let Message { body, attributes } = message;
    let mut entry = PublishBatchRequestEntry::builder().id(at.to_string()).message(body);
    for (name, value) in attributes {
        let value = MessageAttributeValue::builder().data_type(TEXT).string_value(value).build();
        entry = entry.message_attributes(name, value.map_err(|error| unmade(&error))?);
    }
    if fifo::is_fifo(&outgoing.topic) {
        entry = entry
            .message_group_id(fifo::group(&outgoing.event))
            .message_deduplication_id(fifo::identity(outgoing));
    }
    let entry = entry.build().map_err(|error| unmade(&error))?;
    Ok(Prepared { at, bytes, entry })
}

struct Sender {
    client: Client,
    arn: String,
}

impl Carrier for Sender {
    type Entry = PublishBatchRequestEntry;

    async fn call(&self, entries: &[&Self::Entry]) -> Result<Vec<Outcome>, Trouble> {
        let call = Call { action: "sns:Publish", what: "the topic", name: &self.arn };
        let owned = entries.iter().map(|entry| (*entry).clone()).collect();
        let sent = self.client.publish_batch().topic_arn(&self.arn);
        let sent = sent.set_publish_batch_request_entries(Some(owned)).send().await;
        let answer = sent.map_err(|error| judge(call, &error))?;
        let of = |entry: &&Self::Entry| {
            if answer.successful().iter().any(|one| one.id() == Some(entry.id())) {
                return Some(Outcome::Acked);
            }
            let failed = answer.failed().iter().find(|one| one.id() == entry.id())?;
            let said = failed.message().unwrap_or_default();
            Some(judge_words(call, failed.code(), said, failed.sender_fault()))
        };
        Ok(entries.iter().map(|entry| of(entry).unwrap_or_else(nameless)).collect())
    }
}

impl Broker for SnsBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        capabilities::of_fifo(self.connection.settings())
    }

    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_batch(batch))
    }

    fn examine<'a>(&'a self, routes: &'a [Route]) -> BoxFuture<'a, Result<Vec<Finding>>> {
        Box::pin(crate::examine::topics(&self.connection, routes))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.closed.store(true, Ordering::Release);
        Box::pin(async { Ok(()) })
    }
}

impl fmt::Debug for SnsBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnsBroker")
            .field("settings", self.connection.settings())
            .finish_non_exhaustive()
    }
}
