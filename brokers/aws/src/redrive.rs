//! Moving dead letters back to a queue, by the service's own task.
//!
//! Invariant: nothing is read or copied here. What is moved is the same message with the same event in it, so an inbox
//! that remembers it lets it have one effect.

use std::sync::Arc;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::ListMessageMoveTasksResultEntry;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Call, judge};
use crate::connection::Connection;
use crate::dead_letters::DeadLetters;
use crate::settings::{AwsSettings, wrong};

/// Messages a second that the service moves at most.
const RATE_MAX: u32 = 500;

/// A task that moves dead letters.
pub struct Redrive {
    pub(crate) tasks: Tasks,
    pub(crate) handle: String,
}

/// How far a task has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Whether it goes on.
    pub running: bool,
    /// The service's word for how it is: `running`, `completed`, `cancelling`, `cancelled`, or `failed`.
    pub state: String,
    /// Messages that were moved, about.
    pub moved: u64,
    /// Messages that there were when it began, about.
    pub of: Option<u64>,
    /// What kept it from moving all, in the service's words.
    pub failure: Option<String>,
}

/// The tasks of a queue.
#[derive(Clone)]
pub(crate) struct Tasks {
    pub(crate) connection: Arc<Connection>,
    pub(crate) client: Client,
    /// The ARN of the queue that is emptied.
    pub(crate) from: String,
}

/// A task as the service lists it.
pub(crate) struct Listed {
    /// None of one that ended.
    pub(crate) handle: Option<String>,
    pub(crate) progress: Progress,
}

impl Redrive {
    /// Begins to move all of a queue of dead letters to another queue, both by their names or addresses. `per_second`,
    /// 1 to 500, spares the consumers; the service chooses if it is not given. One task of a queue runs at a time, and
    /// the redrive policy of some queue has to name the one that is emptied. All of it is moved, whichever queue it came
    /// from: [`DeadLetters::others`] says whether several share it.
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
        rate(per_second)?;
        DeadLetters::of(aws, to, Some(dead_letters)).await?.redrive(per_second).await
    }

    /// How far it has come.
    ///
    /// # Errors
    /// `NotFound` if the service knows nothing of it any more, and what keeps it from answering in time.
    pub async fn progress(&self) -> Result<Progress> {
        // A task that ended has no handle any more; the newest stands first.
        let own = |task: &Listed| task.handle.as_ref().is_none_or(|handle| *handle == self.handle);
        let task = self.tasks.list().await?.into_iter().find(own).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "redrive")
                .message("the service knows nothing of this task any more")
                .context("queue", &self.tasks.from)
        })?;
        Ok(task.progress)
    }

    /// Ends it early. What was moved stays moved; the service may move a few more before it hears of it.
    ///
    /// # Errors
    /// `Rejected` or `NotFound` if it has ended, and what keeps the service from answering in time.
    pub async fn cancel(&self) -> Result<()> {
        let Tasks { client, from, .. } = &self.tasks;
        let call = Call { action: "sqs:CancelMessageMoveTask", what: "the queue", name: from };
        let asked = client.cancel_message_move_task().task_handle(&self.handle);
        let answer = timeout_at(self.tasks.until(), asked.send()).await.map_err(|_| late())?;
        answer.map(drop).map_err(|error| judge(call, &error).error("cancel redrive"))
    }
}

impl Tasks {
    /// When the service should have answered what is asked now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.connection.settings().deadline
    }

    /// Begins one.
    pub(crate) async fn begin(&self, to: &str, per_second: Option<u32>) -> Result<Redrive> {
        let rate = rate(per_second)?;
        let call = Call { action: "sqs:StartMessageMoveTask", what: "the queue", name: &self.from };
        let task = self.client.start_message_move_task().source_arn(&self.from);
        let task = task.destination_arn(to).set_max_number_of_messages_per_second(rate);
        let task = task.send().await.map_err(|error| judge(call, &error).error("redrive"))?;
        let handle = task.task_handle().unwrap_or_default().to_owned();
        Ok(Redrive { tasks: self.clone(), handle })
    }

    pub(crate) async fn newest(&self) -> Result<Option<Listed>> {
        Ok(self.list().await?.into_iter().next())
    }

    /// The newest ten, which is all that the service lists.
    async fn list(&self) -> Result<Vec<Listed>> {
        let call = Call { action: "sqs:ListMessageMoveTasks", what: "the queue", name: &self.from };
        let asked = self.client.list_message_move_tasks().source_arn(&self.from).max_results(10);
        let answer = timeout_at(self.until(), asked.send()).await.map_err(|_| late())?;
        let answer = answer.map_err(|error| judge(call, &error).error("redrive"))?;
        Ok(answer.results().iter().map(Listed::from).collect())
    }
}

impl Progress {
    /// What is known of a task that just began, before the service was asked about it.
    pub fn begun() -> Progress {
        let state = "running".to_owned();
        Progress { running: true, state, moved: 0, of: None, failure: None }
    }
}

impl From<&ListMessageMoveTasksResultEntry> for Listed {
    fn from(task: &ListMessageMoveTasksResultEntry) -> Listed {
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        let progress = Progress {
            running: matches!(task.status(), Some("RUNNING" | "CANCELLING")),
            state: task.status().unwrap_or("unknown").to_ascii_lowercase(),
            moved: count(task.approximate_number_of_messages_moved()),
            of: task.approximate_number_of_messages_to_move().map(count),
            failure: task.failure_reason().map(str::to_owned),
        };
        Listed { handle: task.task_handle().map(str::to_owned), progress }
    }
}

/// The rate as the service takes it.
fn rate(per_second: Option<u32>) -> Result<Option<i32>> {
    if per_second.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
        return Err(wrong(format!("`per_second` is 1 to {RATE_MAX}")));
    }
    Ok(per_second.and_then(|rate| i32::try_from(rate).ok()))
}

pub(crate) fn late() -> Error {
    Error::new(ErrorKind::Timeout, "redrive").message("SQS did not answer in time")
}

pub(crate) fn late_to_begin() -> Error {
    Error::new(ErrorKind::Timeout, "redrive").message(
        "SQS did not answer in time, and whether a task began is not known: nothing is lost; look at the tasks of the \
         queue before another is begun",
    )
}

impl std::fmt::Debug for Redrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redrive").field("from", &self.tasks.from).finish_non_exhaustive()
    }
}
