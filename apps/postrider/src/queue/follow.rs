//! Following a task of SQS until it has moved everything, or is to stop.
//!
//! Invariant: nothing is said to be moved that the service did not count, and whoever interrupts hears what was.

use std::time::{Duration, Instant};

use postrider_aws::{Progress, Redrive};
use postrider_core::RetryClass;

use super::place::Queue;
use super::redrive::moved;
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::terminal::{self, count, note};

/// The first look comes soon: a few messages are moved at once.
const LOOK_FIRST: Duration = Duration::from_millis(100);
/// Later looks are rarer: each is a request that the account pays for.
const LOOK_LATER: Duration = Duration::from_secs(1);
/// How long a task that was told to end is waited for.
const END_MAX: Duration = Duration::from_secs(15);

/// Waits for the end. A signal ends the task.
///
/// # Errors
/// What the service says. The task goes on then.
pub(super) async fn follow(
    queue: &Queue,
    task: &Redrive,
    mut signals: Signals,
    wait: Duration,
) -> Result<(Exit, Progress), Failure> {
    let mut line = terminal::Progress::new();
    let begun = Instant::now();
    let mut pause = LOOK_FIRST;
    let mut progress = task.progress().await?;
    while progress.running {
        line.show(&shown(&progress, begun.elapsed()));
        let left = wait.saturating_sub(begun.elapsed());
        if left.is_zero() {
            line.clear();
            note(&format!(
                "{}, and SQS goes on; `postrider queue status` shows how far it is",
                moved(&progress)
            ));
            let exit = if wait.is_zero() { Exit::Success } else { Exit::Accepted };
            return Ok((exit, progress));
        }
        tokio::select! {
            // waits: the service moves by itself, and has no signal
            () = tokio::time::sleep(pause.min(left)) => {}
            _ = signals.next() => {
                line.clear();
                return Ok((Exit::Aborted, cancel(queue, task, &mut signals).await?));
            }
        }
        pause = (pause * 3 / 2).min(LOOK_LATER);
        look(task, &mut progress).await?;
    }
    line.clear();
    if progress.state == "completed" {
        note(&format!("{} to {}", moved(&progress), queue.name));
        return Ok((Exit::Success, progress));
    }
    note(&format!("{}: {}, the rest stays", progress.state, moved(&progress)));
    Ok((Exit::Failure, progress))
}

/// Ends a task, and waits until it has ended. A signal meanwhile does not wait.
///
/// # Errors
/// What the service says. The task goes on then.
pub(super) async fn cancel(
    queue: &Queue,
    task: &Redrive,
    signals: &mut Signals,
) -> Result<Progress, Failure> {
    let told = task.cancel().await;
    let mut progress = task.progress().await?;
    if let Err(error) = told
        && progress.running
    {
        return Err(Failure::from(error)
            .within("the task goes on")
            .advice(format!("{} so far. End it by `postrider queue cancel`.", moved(&progress))));
    }
    let begun = Instant::now();
    while progress.running && begun.elapsed() < END_MAX {
        tokio::select! {
            // waits: the service ends it by itself, and has no signal
            () = tokio::time::sleep(LOOK_FIRST) => {}
            _ = signals.next() => break,
        }
        look(task, &mut progress).await?;
    }
    let rest = match &*progress.state {
        "completed" => "it was done before it could be ended",
        "cancelled" | "cancelling" => "it was ended",
        state => state,
    };
    note(&format!(
        "{rest}: {} to {}, the rest stays in {}",
        moved(&progress),
        queue.name,
        queue.letters.name()
    ));
    Ok(progress)
}

/// Reads how far it is. A service that is busy for a moment is asked again at the next look.
async fn look(task: &Redrive, progress: &mut Progress) -> Result<(), Failure> {
    match task.progress().await {
        Ok(now) => *progress = now,
        Err(error) if error.retry_class() == RetryClass::Transient => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn shown(progress: &Progress, since: Duration) -> String {
    let of = progress.of.map_or_else(String::new, |of| format!(" of about {}", count(of)));
    format!("{}{of} · {} s", count(progress.moved), since.as_secs())
}
