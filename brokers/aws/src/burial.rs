//! Dead letters: a copy in another queue, with the reason, before the message is let go.
//!
//! Invariant: the copy says the same as the message, so that it is the same event when it is moved back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use postrider_core::{Error, ErrorKind, Fault, Result};
use tokio::time::timeout;

use crate::answer::{Call, judge};
use crate::envelope::one_line;
use crate::fifo::{is_fifo, taken};
use crate::message::ATTRIBUTES_MAX;
use crate::sqs::attribute;

/// The attribute with the reason.
const REASON: &str = "postrider-dead-reason";
/// The attribute with the queue that it came from.
const FROM: &str = "postrider-dead-queue";
/// An attribute that a reader can do without.
const SPARE: &str = "postrider-recorded";

/// Attributes of a message.
type Attributes = HashMap<String, MessageAttributeValue>;

/// Where dead letters go.
pub(crate) struct Burial {
    pub(crate) client: Client,
    /// The address of their queue.
    pub(crate) dead: Arc<str>,
    /// The queue that is consumed.
    pub(crate) from: Arc<str>,
    pub(crate) deadline: Duration,
}

impl Burial {
    /// Keeps a copy, and returns when it is kept.
    pub(crate) async fn bury(&self, message: &Message, fault: &Fault) -> Result<()> {
        let own = message.message_attributes().cloned().unwrap_or_default();
        let marked = self.marked(&own, fault)?;
        match self.send(message, marked).await {
            // A message near the limit has no room for the reason. Kept without it is better than not kept.
            Err(fault) if fault.kind == ErrorKind::TooLarge => self.send(message, own).await,
            sent => sent,
        }
        .map_err(|fault| unkept(&fault.detail))
    }

    /// The attributes of a message with the reason, as far as there is room.
    fn marked(&self, own: &Attributes, fault: &Fault) -> Result<Attributes> {
        let mut attributes = own.clone();
        if attributes.len() >= ATTRIBUTES_MAX {
            attributes.remove(SPARE);
        }
        let said = [(REASON, one_line(&fault.to_string())), (FROM, self.from.to_string())];
        for (name, value) in said {
            // A message that has all ten of its own goes without.
            if attributes.len() < ATTRIBUTES_MAX {
                let value = attribute(value).map_err(|fault| unkept(&fault.detail))?;
                attributes.insert(name.to_owned(), value);
            }
        }
        Ok(attributes)
    }

    async fn send(&self, message: &Message, attributes: Attributes) -> Result<(), Fault> {
        let call =
            Call { action: "sqs:SendMessage", what: "the queue of dead letters", name: &self.dead };
        let mut request = self
            .client
            .send_message()
            .queue_url(&*self.dead)
            .message_body(message.body().unwrap_or_default())
            .set_message_attributes(Some(attributes));
        if is_fifo(&self.dead) {
            let group = message
                .attributes()
                .and_then(|all| all.get(&MessageSystemAttributeName::MessageGroupId).cloned());
            let id = message.message_id().unwrap_or_default();
            request = request
                .message_group_id(group.unwrap_or_else(|| taken(self.from.to_string())))
                .message_deduplication_id(taken(format!("{}/{id}", self.from)));
        }
        let sent = timeout(self.deadline, request.send()).await;
        let sent =
            sent.map_err(|_| Fault::new(ErrorKind::Timeout, "SQS did not answer in time"))?;
        sent.map(drop).map_err(|error| judge(call, &error).fault())
    }
}

fn unkept(said: &str) -> Error {
    Error::new(ErrorKind::Unroutable, "reject")
        .message(format!("the dead letter was not kept: {said}; the message comes again"))
}
