//! Moving dead letters back to a queue, by the service's own task.
//!
//! Invariant: nothing is read or copied here. What is moved twice is the same message with the same event in it, so an
//! inbox lets it have one effect.

use std::sync::Arc;

use aws_sdk_sqs::Client;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Call, judge};
use crate::attributes::Attributes;
use crate::connection::Connection;
use crate::queues::Queues;
use crate::settings::{AwsSettings, wrong};

/// Messages a second that the service moves at most.
const RATE_MAX: u32 = 500;

/// A task that moves dead letters.
pub struct Redrive {
    connection: Connection,
    client: Client,
    /// The ARN of the queue that is emptied.
    from: String,
    handle: String,
}

/// How far a task has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Whether it goes on.
    pub running: bool,
    /// Messages that were moved, about.
    pub moved: u64,
    /// Messages that there were when it began, about.
    pub of: Option<u64>,
    /// What kept it from moving all, in the service's words.
    pub failure: Option<String>,
}

impl Redrive {
    /// Begins to move all of a queue of dead letters to another queue, both by their names or addresses. `per_second`,
    /// 1 to 500, spares the consumers; the service chooses if it is not given. One task of a queue runs at a time, and
    /// the redrive policy of some queue has to name the one that is emptied.
    ///
    /// # Errors
    /// `Unroutable` if one of the queues is not there, `Rejected` if the service does not begin, and what keeps it
    /// from answering in time.
    pub async fn start(
        aws: AwsSettings,
        dead_letters: &str,
        to: &str,
        per_second: Option<u32>,
    ) -> Result<Redrive> {
        if per_second.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
            return Err(wrong(format!("`per_second` is 1 to {RATE_MAX}")));
        }
        let connection = Connection::new(aws)?;
        let until = Instant::now() + connection.settings().deadline;
        let client = Client::new(connection.config(until).await?);
        let account = connection.settings().account.clone();
        let began = async {
            let from = arn(&client, account.as_deref(), dead_letters).await?;
            let to = arn(&client, account.as_deref(), to).await?;
            let call =
                Call { action: "sqs:StartMessageMoveTask", what: "the queue", name: dead_letters };
            let rate = per_second.and_then(|rate| i32::try_from(rate).ok());
            let task = client.start_message_move_task().source_arn(&from).destination_arn(to);
            let task = task.set_max_number_of_messages_per_second(rate).send().await;
            let task = task.map_err(|error| judge(call, &error).error("redrive"))?;
            Ok::<_, Error>((from, task.task_handle().unwrap_or_default().to_owned()))
        };
        let (from, handle) = timeout_at(until, began).await.map_err(|_| late())??;
        Ok(Redrive { connection, client, from, handle })
    }

    /// How far it has come.
    ///
    /// # Errors
    /// `NotFound` if the service knows nothing of it any more, and what keeps it from answering in time.
    pub async fn progress(&self) -> Result<Progress> {
        let until = Instant::now() + self.connection.settings().deadline;
        let call = Call { action: "sqs:ListMessageMoveTasks", what: "the queue", name: &self.from };
        // The service lists the newest ten.
        let asked = self.client.list_message_move_tasks().source_arn(&self.from).max_results(10);
        let answer = timeout_at(until, asked.send()).await.map_err(|_| late())?;
        let answer = answer.map_err(|error| judge(call, &error).error("redrive"))?;
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        // A task that ended has no handle any more; the newest stands first.
        let own = |task: &&aws_sdk_sqs::types::ListMessageMoveTasksResultEntry| {
            task.task_handle().is_none_or(|handle| handle == self.handle)
        };
        let task = answer.results().iter().find(own).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "redrive")
                .message("the service knows nothing of this task any more")
                .context("queue", &self.from)
        })?;
        Ok(Progress {
            running: matches!(task.status(), Some("RUNNING" | "CANCELLING")),
            moved: count(task.approximate_number_of_messages_moved()),
            of: task.approximate_number_of_messages_to_move().map(count),
            failure: task.failure_reason().map(str::to_owned),
        })
    }
}

async fn arn(client: &Client, account: Option<&str>, queue: &str) -> Result<String> {
    let queue: Arc<str> = Arc::from(queue);
    let found = Queues::default().find(client, account, &queue).await;
    let address = found.map_err(|trouble| trouble.error("redrive"))?;
    let attributes = Attributes::ask(client, &address).await?;
    let arn = attributes.arn().map(str::to_owned);
    arn.ok_or_else(|| Error::new(ErrorKind::Unavailable, "redrive").message("a queue has no ARN"))
}

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "redrive")
        .message("SQS did not answer in time; whether a task began is not known, and moving twice is harmless")
}

impl std::fmt::Debug for Redrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redrive").field("from", &self.from).finish_non_exhaustive()
    }
}
