//! Dead letters in queues of SQS: how many there are, and how far a task that moves them is.

use postrider_aws::Progress;
use serde::Serialize;

use crate::terminal::count;

/// Dead letters in a queue of SQS: `queue status`, and what `queue redrive` and `queue cancel` came to.
#[derive(Debug, Serialize)]
pub(crate) struct DeadQueue {
    /// The queue that they come from.
    pub(crate) queue: String,
    /// The queue that they are in.
    pub(crate) dead_letters: String,
    /// How many a task would move, about.
    pub(crate) count: u64,
    /// How many somebody has received and not settled, about.
    pub(crate) out: u64,
    /// How long a dead letter stays.
    pub(crate) retention_seconds: Option<f64>,
    /// The task that was followed; of `queue status` the newest that the service remembers.
    pub(crate) task: Option<MoveTask>,
}

/// A task of SQS that moves dead letters.
#[derive(Debug, Serialize)]
pub(crate) struct MoveTask {
    /// `running`, `completed`, `cancelling`, `cancelled`, or `failed`.
    pub(crate) state: String,
    /// How many were moved, about.
    pub(crate) moved: u64,
    /// How many there were when it began, about.
    pub(crate) of: Option<u64>,
    /// What kept it from moving all.
    pub(crate) failure: Option<String>,
}

impl From<Progress> for MoveTask {
    fn from(progress: Progress) -> MoveTask {
        MoveTask {
            state: progress.state,
            moved: progress.moved,
            of: progress.of,
            failure: progress.failure,
        }
    }
}

impl DeadQueue {
    /// As people are shown it.
    pub(crate) fn lines(&self) -> String {
        let mut text = format!(
            "{}: {} dead letters, {} more with somebody who received them\n",
            self.dead_letters,
            count(self.count),
            count(self.out)
        );
        if let Some(task) = &self.task {
            let of = task.of.map_or_else(String::new, |of| format!(" of about {}", count(of)));
            text.push_str(&format!(
                "task to {}: {}, {}{of} moved\n",
                self.queue,
                task.state,
                count(task.moved)
            ));
        }
        text
    }
}
