//! Queues of SQS as a destination.
//!
//! Invariant: one message of a key is under way at a time, because a queue that refuses one takes those behind it
//! all the same.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use postrider_core::operate::Finding;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Fault, Outcome, Outgoing, Result,
    Route,
};
use tokio::time::Instant;

use crate::answer::{Call, Trouble, judge, judge_words};
use crate::call::{Carrier, Prepared, carry, nameless};
use crate::capabilities;
use crate::connection::Connection;
use crate::fifo;
use crate::message::{Message, TEXT, encode};
use crate::queues::{self, Queues};
use crate::settings::AwsSettings;

/// What traces call it.
pub(crate) const SYSTEM: &str = "aws_sqs";
/// Bytes of a message, and of the messages of a call. A queue may be set to less.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

/// A broker that publishes to queues of SQS. The topic of a route is a queue's name, or its address.
///
/// **Durability.** An acknowledged message is kept on several servers of the region, until it is deleted or as old
/// as the queue keeps messages.
/// **Order.** In a queue of the kind FIFO the key is the message's group, and one event of a key is under way at a
/// time. A standard queue has no order.
/// **Duplicates.** A queue of the kind FIFO absorbs a copy of an event for five minutes, by its id. A standard
/// queue does not.
/// **Cancellation.** What a dropped call had sent may arrive; nothing is sent later.
pub struct SqsBroker {
    connection: Connection,
    queues: Queues,
    closed: AtomicBool,
}

impl SqsBroker {
    /// Checks the settings and makes a broker. Nobody is called before the first event.
    ///
    /// # Errors
    /// `Config`, naming the setting.
    pub fn new(settings: AwsSettings) -> Result<SqsBroker> {
        let connection = Connection::new(settings)?;
        Ok(SqsBroker { connection, queues: Queues::default(), closed: AtomicBool::new(false) })
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed("SQS"));
        }
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let settings = self.connection.settings();
        let until = Instant::now() + settings.deadline;
        let client = Client::new(self.connection.config(until).await?);
        let bytes_max = settings.message_bytes_max.map_or(BYTES_MAX, |max| max as usize);
        let prepared = batch.iter().enumerate();
        let prepared = prepared.map(|(at, outgoing)| prepare(settings, at, outgoing, bytes_max));
        let prepared = prepared.collect();
        let sender = Sender { client, queues: &self.queues, settings, topic: &first.topic };
        carry(&sender, prepared, bytes_max, until).await
    }
}

fn prepare(
    settings: &AwsSettings,
    at: usize,
    outgoing: &Outgoing,
    bytes_max: usize,
) -> Result<Prepared<SendMessageBatchRequestEntry>, Fault> {
    check_queue(settings, &outgoing.topic)?;
    let message = encode(outgoing, bytes_max)?;
    let bytes = message.bytes();
    let Message { body, attributes } = message;
    let mut entry = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body);
    for (name, value) in attributes {
        entry = entry.message_attributes(name, attribute(value)?);
    }
    if fifo::is_fifo(&outgoing.topic) {
        entry = entry
            .message_group_id(fifo::group(&outgoing.event))
            .message_deduplication_id(fifo::identity(outgoing));
    }
    let entry = entry.build().map_err(|error| unmade(&error))?;
    Ok(Prepared { at, bytes, entry })
}

fn check_queue(settings: &AwsSettings, queue: &str) -> Result<(), Fault> {
    let (kind, wrong) = match queues::unusable(queue) {
        None if settings.fifo && !fifo::is_fifo(queue) => {
            // The route's fault, and not the event's.
            (ErrorKind::Unroutable, fifo::NOT_FIFO)
        }
        None => return Ok(()),
        Some(wrong) => (ErrorKind::Invalid, wrong),
    };
    let detail = format!("`{}` is no queue that can be meant: {wrong}", queue.escape_debug());
    Err(Fault::new(kind, detail))
}

pub(crate) fn attribute(value: String) -> Result<MessageAttributeValue, Fault> {
    let value = MessageAttributeValue::builder().data_type(TEXT).string_value(value);
    value.build().map_err(|error| unmade(&error))
}

pub(crate) fn unmade(error: &dyn fmt::Display) -> Fault {
    Fault::new(ErrorKind::Internal, error.to_string())
}

pub(crate) fn closed(service: &str) -> Error {
    Error::new(ErrorKind::Closed, "publish")
        .message(format!("the broker of {service} was closed; nothing was sent"))
}

struct Sender<'a> {
    client: Client,
    queues: &'a Queues,
    settings: &'a AwsSettings,
    topic: &'a Arc<str>,
}

impl Carrier for Sender<'_> {
    type Entry = SendMessageBatchRequestEntry;

    async fn call(&self, entries: &[&Self::Entry]) -> Result<Vec<Outcome>, Trouble> {
        let account = self.settings.account.as_deref();
        let queue = self.queues.find(&self.client, account, self.topic).await?;
        let call = Call { action: "sqs:SendMessage", what: "the queue", name: self.topic };
        let owned = entries.iter().map(|entry| (*entry).clone()).collect();
        let sent = self.client.send_message_batch().queue_url(&*queue).set_entries(Some(owned));
        let answer = sent.send().await.map_err(|error| {
            let trouble = judge(call, &error);
            if matches!(&trouble, Trouble::Said(Outcome::Unroutable(_))) {
                self.queues.forget(self.topic);
            }
            trouble
        })?;
        let of = |entry: &&Self::Entry| {
            if answer.successful().iter().any(|one| one.id() == entry.id()) {
                return Some(Outcome::Acked);
            }
            let failed = answer.failed().iter().find(|one| one.id() == entry.id())?;
            let said = failed.message().unwrap_or_default();
            Some(judge_words(call, failed.code(), said, failed.sender_fault()))
        };
        Ok(entries.iter().map(|entry| of(entry).unwrap_or_else(nameless)).collect())
    }
}

impl Broker for SqsBroker {
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
        Box::pin(crate::examine::queues(&self.connection, routes))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.closed.store(true, Ordering::Release);
        Box::pin(async { Ok(()) })
    }
}

impl fmt::Debug for SqsBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsBroker")
            .field("settings", self.connection.settings())
            .finish_non_exhaustive()
    }
}
