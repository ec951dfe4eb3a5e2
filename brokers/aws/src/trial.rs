//! A queue that is made for a trial, with one for its dead letters.
//!
//! Invariant: nothing but the two queues that were made here is deleted, also where no answer said that they were made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Error, ErrorKind, Result, RetryClass};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Call, judge};
use crate::attributes::Attributes;
use crate::connection::Connection;
use crate::fifo::is_fifo;
use crate::queues::Queues;
use crate::settings::AwsSettings;

/// Two queues of one's own, for a trial: nobody else's messages are in them, and they go when it is over.
pub struct TrialQueue {
    connection: Connection,
    name: String,
    dead_letters: String,
    queues: Queues,
    /// Those that were asked for, and that the service did not refuse: they may be there without an answer that says so.
    tried: Mutex<Vec<Arc<str>>>,
}

impl TrialQueue {
    /// A queue of this name, of the kind FIFO if the name ends in `.fifo`, that is not made yet.
    ///
    /// # Errors
    /// `Config` if the client cannot be made of these settings.
    pub fn named(aws: AwsSettings, name: &str) -> Result<TrialQueue> {
        let stem = name.strip_suffix(".fifo").unwrap_or(name);
        let dead_letters = format!("{stem}-dead{}", &name[stem.len()..]);
        let (connection, name) = (Connection::new(aws)?, name.to_owned());
        let (queues, tried) = (Queues::default(), Mutex::default());
        Ok(TrialQueue { connection, name, dead_letters, queues, tried })
    }

    /// Makes it, and one for the dead letters: a message goes there that was given out `receives_max` times and comes
    /// again. Whatever comes of it, [`TrialQueue::remove`] deletes what was made.
    ///
    /// # Errors
    /// `Rejected` if one of this name is there with other attributes, and what keeps the service from answering in
    /// time.
    pub async fn make(&self, receives_max: u32) -> Result<()> {
        let dead = self.create(&self.dead_letters, HashMap::new()).await?;
        let (client, until) = self.client().await?;
        let asked = timeout_at(until, Attributes::ask(&client, &dead)).await;
        let told = asked.map_err(|_| late())??;
        let arn = told.arn().unwrap_or_default();
        let policy =
            serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": receives_max});
        let attributes = HashMap::from([(QueueAttributeName::RedrivePolicy, policy.to_string())]);
        self.create(&self.name, attributes).await.map(drop)
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
        for (held, name) in held.iter_mut().zip([&self.name, &self.dead_letters]) {
            let asked =
                async { Attributes::ask(&client, &self.address(&client, name).await?).await };
            *held = timeout_at(until, asked).await.map_err(|_| late())??.held();
        }
        Ok(held.into())
    }

    /// Deletes both, and tries the other one if one cannot be deleted.
    ///
    /// # Errors
    /// What keeps the service from answering in time; the message names the queues that are left.
    pub async fn remove(&self) -> Result<()> {
        let tried = self.tried().clone();
        let mut failed: Option<Error> = None;
        let mut left = Vec::new();
        for name in tried {
            if let Err(error) = self.delete(&name).await {
                left.push(name.to_string());
                failed.get_or_insert(error);
            }
        }
        match failed {
            None => Ok(()),
            Some(error) => Err(Error::new(error.kind(), "end trial")
                .message(format!("{} may be left: delete them by hand", left.join(" and ")))
                .source(error)),
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let (client, until) = self.client().await?;
        let deleted = async {
            let address = match self.address(&client, name).await {
                // What was asked for was not made after all.
                Err(error) if error.kind() == ErrorKind::Unroutable => return Ok(()),
                found => found?,
            };
            let call = Call { action: "sqs:DeleteQueue", what: "the queue", name };
            let sent = client.delete_queue().queue_url(&*address).send().await;
            sent.map(drop).map_err(|error| judge(call, &error).error("end trial"))
        };
        timeout_at(until, deleted).await.map_err(|_| late().context("queue", name))?
    }

    async fn address(&self, client: &Client, name: &str) -> Result<Arc<str>> {
        let account = self.connection.settings().account.clone();
        let found = self.queues.find(client, account.as_deref(), &Arc::from(name)).await;
        found.map_err(|trouble| trouble.error("trial"))
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
        // Before the call: it may be made although nobody hears that it was.
        self.tried().push(Arc::from(name));
        let made = timeout_at(until, asked.send()).await.map_err(|_| late())?;
        let made = made.map_err(|error| judge(call, &error).error("begin trial"));
        if made.as_ref().is_err_and(|error| error.retry_class() != RetryClass::Transient) {
            // It is somebody's, or nobody's: not ours to delete.
            self.tried().pop();
        }
        let made = made?;
        Ok(made.queue_url.unwrap_or_default())
    }

    fn tried(&self) -> MutexGuard<'_, Vec<Arc<str>>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
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
