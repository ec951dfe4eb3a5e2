//! What a queue says of itself.
//!
//! Invariant: it is read leniently: what a queue does not say is as good as not set.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::Result;
use serde_json::Value;

use crate::answer::{Call, judge};

/// See the module.
pub(crate) struct Attributes(HashMap<QueueAttributeName, String>);

impl Attributes {
    /// Asks a queue, by its address.
    pub(crate) async fn ask(client: &Client, queue: &str) -> Result<Attributes> {
        let call = Call { action: "sqs:GetQueueAttributes", what: "the queue", name: queue };
        let asked = client.get_queue_attributes().queue_url(queue);
        let asked = asked.attribute_names(QueueAttributeName::All).send().await;
        let answer = asked.map_err(|error| judge(call, &error).error("look at queue"))?;
        Ok(Attributes(answer.attributes.unwrap_or_default()))
    }

    fn text(&self, name: &QueueAttributeName) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn policy(&self) -> Value {
        let text = self.text(&QueueAttributeName::RedrivePolicy).unwrap_or_default();
        serde_json::from_str(text).unwrap_or(Value::Null)
    }

    /// The ARN of the queue itself.
    pub(crate) fn arn(&self) -> Option<&str> {
        self.text(&QueueAttributeName::QueueArn)
    }

    /// The ARN of the queue that takes what was given out too often.
    pub(crate) fn dead_letters(&self) -> Option<String> {
        self.policy()["deadLetterTargetArn"].as_str().map(str::to_owned)
    }

    /// How often a message is given out before it goes there.
    pub(crate) fn receives_max(&self) -> Option<u64> {
        let count = &self.policy()["maxReceiveCount"];
        count.as_u64().or_else(|| count.as_str()?.parse().ok())
    }

    /// How long a message is kept.
    pub(crate) fn retention(&self) -> Option<Duration> {
        self.number(&QueueAttributeName::MessageRetentionPeriod).map(Duration::from_secs)
    }

    /// Bytes of a message.
    pub(crate) fn message_bytes_max(&self) -> Option<u64> {
        self.number(&QueueAttributeName::MaximumMessageSize)
    }

    /// Messages that may be given out, about.
    pub(crate) fn waiting(&self) -> u64 {
        self.number(&QueueAttributeName::ApproximateNumberOfMessages).unwrap_or_default()
    }

    /// Messages that are given out and not settled, about.
    pub(crate) fn out(&self) -> u64 {
        self.number(&QueueAttributeName::ApproximateNumberOfMessagesNotVisible).unwrap_or_default()
    }

    /// Messages that are there, given out or not, about.
    pub(crate) fn held(&self) -> u64 {
        let there = self.number(&QueueAttributeName::ApproximateNumberOfMessages);
        there.unwrap_or_default() + self.out()
    }

    fn number(&self, name: &QueueAttributeName) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// The account and the name in the ARN of a queue.
pub(crate) fn queue_of_arn(arn: &str) -> Option<(&str, &str)> {
    let mut parts = arn.splitn(6, ':');
    match (parts.next(), parts.nth(1), parts.nth(1), parts.next()) {
        (Some("arn"), Some("sqs"), Some(account), Some(name)) => Some((account, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_names_account_and_queue() {
        assert_eq!(queue_of_arn("arn:aws:sqs:eu-west-1:123:a.fifo"), Some(("123", "a.fifo")));
        for wrong in ["", "arn:aws:sns:eu-west-1:123:a", "arn:aws:sqs:eu-west-1", "orders"] {
            assert_eq!(queue_of_arn(wrong), None, "{wrong}");
        }
    }
}
