//! Moving dead letters back to a queue, by the service's own task.
//!
//! Invariants: nothing is read or copied here: what is moved is the same message with the same event in it, so an inbox
//! that remembers it lets it have one effect; and no other task is taken for the one that was begun, however old the
//! service's list is.

use std::sync::{Arc, OnceLock};

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
/// Tasks that the service lists at most.
const LISTED_MAX: i32 = 10;

/// A task that moves dead letters.
pub struct Redrive {
    tasks: Tasks,
    handle: String,
    /// When the newest task began that was listed before this one, by the service's clock.
    after: i64,
    /// The ARN of the queue that was asked to be filled, if it is known.
    to: Option<String>,
    /// When this one began, by the same clock, as soon as it was listed.
    begun: OnceLock<i64>,
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
    handle: Option<String>,
    /// When it began, in milliseconds.
    started: i64,
    /// Where to, which is listed if it was asked for.
    to: Option<String>,
    pub(crate) progress: Progress,
}

impl Redrive {
    /// The operation of an error by which nothing was begun, and nothing was ended: the tasks were not listed.
    pub const LIST: &'static str = "list redrives";

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
    /// `Unavailable` if the service does not list it, which may be for a moment, `NotFound` if it has listed ten that
    /// are newer since, and what keeps it from answering in time. It goes on then, if it has not ended.
    pub async fn progress(&self) -> Result<Progress> {
        let listed = self.tasks.list().await?;
        if let Some(task) = self.own(&listed) {
            _ = self.begun.set(task.started);
            return Ok(task.progress.clone());
        }
        let since = self.begun.get().copied().unwrap_or(self.after);
        let is_full = listed.len() >= LISTED_MAX.unsigned_abs() as usize;
        let (kind, why) = match is_full && listed.iter().all(|task| task.started > since) {
            true => (ErrorKind::NotFound, "the service knows nothing of this task any more"),
            false => (ErrorKind::Unavailable, "the service does not list this task at the moment"),
        };
        Err(Error::new(kind, Redrive::LIST).message(why).context("queue", &self.tasks.from))
    }

    /// This task. One that ended has no handle any more, so it is known by its beginning: after whatever was listed
    /// before, and where to, until that was seen once.
    fn own<'a>(&self, listed: &'a [Listed]) -> Option<&'a Listed> {
        let by_handle = |task: &&Listed| task.handle.as_ref() == Some(&self.handle);
        let ended = || listed.iter().filter(|task| task.handle.is_none());
        listed.iter().find(by_handle).or_else(|| match self.begun.get() {
            Some(begun) => ended().find(|task| task.started == *begun),
            None => ended()
                .filter(|task| task.started > self.after && task.to == self.to)
                // Whoever began another one since did so after this one had ended.
                .min_by_key(|task| task.started),
        })
    }

    /// Ends it early. What was moved stays moved; the service may move a few more before it hears of it.
    ///
    /// # Errors
    /// `Rejected` or `NotFound` if it has ended, and what keeps the service from answering in time.
    pub async fn cancel(&self) -> Result<()> {
        let Tasks { client, from, .. } = &self.tasks;
        let call = Call { action: "sqs:CancelMessageMoveTask", what: "the queue", name: from };
        let asked = client.cancel_message_move_task().task_handle(&self.handle);
        let answer = timeout_at(self.tasks.until(), asked.send())
            .await
            .map_err(|_| late("cancel redrive"))?;
        answer.map(drop).map_err(|error| judge(call, &error).error("cancel redrive"))
    }
}

impl Tasks {
    /// When the service should have answered what is asked now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.connection.settings().deadline
    }

    /// Begins one; `before` is what was listed before.
    pub(crate) async fn begin(
        &self,
        to: &str,
        per_second: Option<u32>,
        before: &[Listed],
    ) -> Result<Redrive> {
        let rate = rate(per_second)?;
        let call = Call { action: "sqs:StartMessageMoveTask", what: "the queue", name: &self.from };
        let task = self.client.start_message_move_task().source_arn(&self.from);
        let task = task.destination_arn(to).set_max_number_of_messages_per_second(rate);
        let task = task.send().await.map_err(|error| judge(call, &error).error("redrive"))?;
        let handle = task.task_handle().unwrap_or_default().to_owned();
        let after = before.iter().map(|task| task.started).max().unwrap_or(i64::MIN);
        let to = Some(to.to_owned());
        Ok(Redrive { tasks: self.clone(), handle, after, to, begun: OnceLock::new() })
    }

    /// One that is listed as running.
    pub(crate) fn follow(&self, task: Listed) -> Option<Redrive> {
        let Listed { handle, started, to, .. } = task;
        let begun = OnceLock::from(started);
        handle.map(|handle| Redrive { tasks: self.clone(), handle, after: started, to, begun })
    }

    pub(crate) async fn newest(&self) -> Result<Option<Listed>> {
        Ok(self.list().await?.into_iter().max_by_key(|task| task.started))
    }

    /// The newest ten, which is all that the service lists.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>> {
        let call = Call { action: "sqs:ListMessageMoveTasks", what: "the queue", name: &self.from };
        let asked = self.client.list_message_move_tasks().source_arn(&self.from);
        let asked = asked.max_results(LISTED_MAX).send();
        let answer = timeout_at(self.until(), asked).await.map_err(|_| late(Redrive::LIST))?;
        let answer = answer.map_err(|error| judge(call, &error).error(Redrive::LIST))?;
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
        Listed {
            handle: task.task_handle().map(str::to_owned),
            started: task.started_timestamp(),
            to: task.destination_arn().map(str::to_owned),
            progress,
        }
    }
}

/// The rate as the service takes it.
fn rate(per_second: Option<u32>) -> Result<Option<i32>> {
    if per_second.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
        return Err(wrong(format!("`per_second` is 1 to {RATE_MAX}")));
    }
    Ok(per_second.and_then(|rate| i32::try_from(rate).ok()))
}

pub(crate) fn late(operation: &'static str) -> Error {
    Error::new(ErrorKind::Timeout, operation).message("SQS did not answer in time")
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
