//! The dead letters of a queue: how many there are, and moving them back.
//!
//! Invariant: a task is begun for the two queues that were looked at, and nothing is moved by looking.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Call, judge};
use crate::attributes::{Attributes, queue_of_arn};
use crate::connection::Connection;
use crate::queues::{Queues, unusable};
use crate::redrive::{Progress, Redrive, Tasks, late, late_to_begin};
use crate::settings::{AwsSettings, wrong};

/// Queues that a page of sources names, which is the most that the service gives at once.
const SOURCES_PAGE: i32 = 1_000;
/// Pages of sources that are read: who has more queues than that before one of dead letters is told that not all were
/// looked at.
const SOURCE_PAGES_MAX: usize = 10;

/// A queue and the one that its dead letters are in.
pub struct DeadLetters {
    tasks: Tasks,
    /// The address of the queue with the dead letters.
    address: Arc<str>,
    name: String,
    /// The queue that they come from.
    to: Origin,
}

/// A queue that dead letters come from.
struct Origin {
    arn: String,
    retention: Option<Duration>,
}

/// What is in a queue of dead letters, as the service counts it: about, and not at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heap {
    /// Messages that a task would move.
    pub waiting: u64,
    /// Messages that somebody has received and not settled: they are not moved before they are visible again.
    pub out: u64,
    /// How long a message stays.
    pub retention: Option<Duration>,
    /// How old one may be when it is acted on: it was in its queue for as long as that keeps it, stays here for as long
    /// as this does, and when it was moved back the queue keeps it as long again, since its age counts anew.
    pub age_max: Option<Duration>,
}

/// The other queues whose dead letters are in the same queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Others {
    /// Their names.
    pub names: Vec<String>,
    /// Whether there are queues that were not looked at: 10,000 are.
    pub more: bool,
}

impl DeadLetters {
    /// Finds a queue, and the one with its dead letters: the one named, or that of its redrive policy. Both by their
    /// names or addresses.
    ///
    /// # Errors
    /// `Unroutable` if one of them is not there, `Config` if none is named or both are the same, and what keeps the
    /// service from answering in time.
    pub async fn of(
        aws: AwsSettings,
        queue: &str,
        dead_letters: Option<&str>,
    ) -> Result<DeadLetters> {
        for queue in [Some(queue), dead_letters].into_iter().flatten() {
            if let Some(why) = unusable(queue) {
                return Err(wrong(format!("`{}` is no queue: {why}", queue.escape_debug())));
            }
        }
        let connection = Connection::new(aws)?;
        let until = Instant::now() + connection.settings().deadline;
        let client = Client::new(connection.config(until).await?);
        let account = connection.settings().account.clone();
        let found = timeout_at(until, find(&client, account.as_deref(), queue, dead_letters));
        let (to, address, from) = found.await.map_err(|_| late("find dead letters"))??;
        if from == to.arn {
            return Err(wrong("the dead letters are in another queue than the one they come from"));
        }
        let name = queue_of_arn(&from).map_or(&*from, |(_, name)| name).to_owned();
        let tasks = Tasks { connection: Arc::new(connection), client, from };
        Ok(DeadLetters { tasks, address, name, to })
    }

    /// The name of the queue that they are in.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many there are.
    ///
    /// # Errors
    /// `Unroutable` if the queue is not there any more, and what keeps the service from answering in time.
    pub async fn count(&self) -> Result<Heap> {
        let until = self.tasks.until();
        let asked = Attributes::ask(&self.tasks.client, &self.address);
        let attributes = timeout_at(until, asked).await.map_err(|_| late("redrive"))??;
        let retention = attributes.retention();
        Ok(Heap {
            waiting: attributes.waiting(),
            out: attributes.out(),
            retention,
            age_max: retention.zip(self.to.retention).map(|(here, there)| here + 2 * there),
        })
    }

    /// The other queues whose redrive policies name this one: their dead letters are among these, and a task moves them
    /// as well.
    ///
    /// # Errors
    /// `Unauthorized` without `sqs:ListDeadLetterSourceQueues`, and what keeps the service from answering in time.
    pub async fn others(&self) -> Result<Others> {
        let Tasks { client, from, .. } = &self.tasks;
        let call = Call { action: "sqs:ListDeadLetterSourceQueues", what: "the queue", name: from };
        let mut others = Others::default();
        let mut token = None;
        for _ in 0..SOURCE_PAGES_MAX {
            let asked = client.list_dead_letter_source_queues().queue_url(&*self.address);
            let asked = asked.max_results(SOURCES_PAGE).set_next_token(token.take());
            let page =
                timeout_at(self.tasks.until(), asked.send()).await.map_err(|_| late("redrive"))?;
            let page = page.map_err(|error| judge(call, &error).error("redrive"))?;
            let of_others = page.queue_urls().iter().filter(|address| !self.to.is_at(address));
            others.names.extend(of_others.map(|address| named(address).to_owned()));
            token = page.next_token;
            if token.is_none() {
                return Ok(others);
            }
        }
        others.more = true;
        Ok(others)
    }

    /// Begins to move all of them back, those of [other queues](DeadLetters::others) as well. `per_second`, 1 to 500, spares the consumers; the service chooses if it is not
    /// given. One task of a queue runs at a time, and the redrive policy of some queue has to name the one that is
    /// emptied.
    ///
    /// # Errors
    /// `Rejected` if the service does not begin, and what keeps it from answering in time.
    pub async fn redrive(&self, per_second: Option<u32>) -> Result<Redrive> {
        // What is there already is not the one that begins now.
        let before = self.tasks.list().await?;
        let begun = self.tasks.begin(&self.to.arn, per_second, &before);
        timeout_at(self.tasks.until(), begun).await.map_err(|_| late_to_begin())?
    }

    /// The task that is at it, whoever began it.
    ///
    /// # Errors
    /// What keeps the service from answering in time.
    pub async fn running(&self) -> Result<Option<Redrive>> {
        let newest = self.tasks.newest().await?;
        let running = newest.filter(|task| task.progress.running);
        Ok(running.and_then(|task| self.tasks.follow(task)))
    }

    /// How far the newest task is, or came. The service forgets tasks that ended.
    ///
    /// # Errors
    /// What keeps the service from answering in time.
    pub async fn newest(&self) -> Result<Option<Progress>> {
        Ok(self.tasks.newest().await?.map(|task| task.progress))
    }
}

impl Origin {
    /// Whether this is its address. An address ends in account and name, whatever host it is at.
    fn is_at(&self, address: &str) -> bool {
        let Some((account, name)) = queue_of_arn(&self.arn) else { return false };
        let mut ends = address.rsplit('/');
        ends.next() == Some(name) && ends.next() == Some(account)
    }
}

/// The name at the end of an address.
fn named(address: &str) -> &str {
    address.rsplit_once('/').map_or(address, |(_, name)| name)
}

/// The queue, and the address and the ARN of the one with its dead letters.
async fn find(
    client: &Client,
    account: Option<&str>,
    queue: &str,
    dead_letters: Option<&str>,
) -> Result<(Origin, Arc<str>, String)> {
    let queues = Queues::default();
    let find = async |account: Option<&str>, queue: &str| {
        let queue: Arc<str> = Arc::from(queue);
        let found = queues.find(client, account, &queue).await;
        found.map_err(|trouble| trouble.error("find dead letters"))
    };
    let attributes = Attributes::ask(client, &find(account, queue).await?).await?;
    let to = Origin { arn: arn(&attributes)?, retention: attributes.retention() };
    let address = match dead_letters {
        Some(dead) => find(account, dead).await?,
        None => {
            let target = attributes.dead_letters();
            let (account, name) = target.as_deref().and_then(queue_of_arn).ok_or_else(|| {
                wrong(format!("the queue `{queue}` has no redrive policy, and no queue with its dead letters is named"))
            })?;
            find(Some(account), name).await?
        }
    };
    let from = arn(&Attributes::ask(client, &address).await?)?;
    Ok((to, address, from))
}

/// The ARN of a queue.
fn arn(attributes: &Attributes) -> Result<String> {
    let arn = attributes.arn().map(str::to_owned);
    arn.ok_or_else(|| Error::new(ErrorKind::Unavailable, "redrive").message("a queue has no ARN"))
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DeadLetters { name, to, .. } = self;
        f.debug_struct("DeadLetters")
            .field("name", name)
            .field("to", &to.arn)
            .finish_non_exhaustive()
    }
}
