//! A queue that is made for a trial, with one for its dead letters.
//!
//! Invariant: nothing but the two queues that were made here is deleted.

use std::collections::HashMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Call, judge};
use crate::attributes::Attributes;
use crate::connection::Connection;
use crate::fifo::is_fifo;
use crate::settings::AwsSettings;

/// Two queues of one's own, for a trial: nobody else's messages are in them, and they go when it is over.
pub struct TrialQueue {
    connection: Connection,
    name: String,
    dead_letters: String,
    /// Their addresses, each as far as it was made.
    made: Vec<String>,
}

impl TrialQueue {
    /// Makes a queue of this name, of the kind FIFO if the name ends in `.fifo`, and one for the dead letters: a
    /// message goes there that was given out `receives_max` times and comes again.
    ///
    /// # Errors
    /// `Rejected` if one of this name is there with other attributes, and what keeps the service from answering in
    /// time. If the second cannot be made, the first one is deleted.
    pub async fn make(aws: AwsSettings, name: &str, receives_max: u32) -> Result<TrialQueue> {
        let stem = name.strip_suffix(".fifo").unwrap_or(name);
        let dead_letters = format!("{stem}-dead{}", &name[stem.len()..]);
        let (connection, name) = (Connection::new(aws)?, name.to_owned());
        let mut trial = TrialQueue { connection, name, dead_letters, made: Vec::new() };
        match trial.make_both(receives_max).await {
            Ok(()) => Ok(trial),
            Err(error) => {
                // Why it could not be made is what matters.
                _ = trial.remove().await;
                Err(error)
            }
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the one for its dead letters.
    pub fn dead_letters(&self) -> &str {
        &self.dead_letters
    }

    /// How many messages are in it and how many are dead letters, given out ones included; about, as the service says.
    ///
    /// # Errors
    /// What keeps the service from answering in time.
    pub async fn held(&self) -> Result<(u64, u64)> {
        let mut held = [0, 0];
        let (client, until) = self.client().await?;
        // The one for dead letters was made first.
        for (held, address) in held.iter_mut().zip(self.made.iter().rev()) {
            let asked = timeout_at(until, Attributes::ask(&client, address)).await;
            *held = asked.map_err(|_| late())??.held();
        }
        Ok(held.into())
    }

    /// Deletes both.
    ///
    /// # Errors
    /// What keeps the service from answering in time; the message names the queue that is left.
    pub async fn remove(&self) -> Result<()> {
        let (client, until) = self.client().await?;
        for address in &self.made {
            let call = Call { action: "sqs:DeleteQueue", what: "the queue", name: address };
            let sent = timeout_at(until, client.delete_queue().queue_url(address).send()).await;
            let sent = sent.map_err(|_| late().context("queue", address))?;
            sent.map_err(|error| judge(call, &error).error("end trial"))?;
        }
        Ok(())
    }

    async fn make_both(&mut self, receives_max: u32) -> Result<()> {
        let dead = self.create(&self.dead_letters, HashMap::new()).await?;
        self.made.push(dead.clone());
        let (client, until) = self.client().await?;
        let asked = timeout_at(until, Attributes::ask(&client, &dead)).await;
        let told = asked.map_err(|_| late())??;
        let arn = told.arn().unwrap_or_default();
        let policy =
            serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": receives_max});
        let attributes = HashMap::from([(QueueAttributeName::RedrivePolicy, policy.to_string())]);
        let queue = self.create(&self.name, attributes).await?;
        self.made.push(queue);
        Ok(())
    }

    async fn create(
        &self,
        name: &str,
        mut attributes: HashMap<QueueAttributeName, String>,
    ) -> Result<String> {
        if is_fifo(name) {
            attributes.insert(QueueAttributeName::FifoQueue, "true".to_owned());
        }
        let (client, until) = self.client().await?;
        let call = Call { action: "sqs:CreateQueue", what: "the queue", name };
        let asked = client.create_queue().queue_name(name).set_attributes(Some(attributes));
        let made = timeout_at(until, asked.send()).await.map_err(|_| late())?;
        let made = made.map_err(|error| judge(call, &error).error("begin trial"))?;
        Ok(made.queue_url.unwrap_or_default())
    }

    async fn client(&self) -> Result<(Client, Instant)> {
        let until = Instant::now() + self.connection.settings().deadline;
        Ok((Client::new(self.connection.config(until).await?), until))
    }
}

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "trial").message("SQS did not answer in time")
}

impl std::fmt::Debug for TrialQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrialQueue").field("name", &self.name).finish_non_exhaustive()
    }
}
