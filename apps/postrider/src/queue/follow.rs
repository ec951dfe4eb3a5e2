//! Following a task of SQS until it has moved everything, or is to stop.
//!
//! Invariant: nothing is said to be moved that the service did not count, and whoever interrupts hears what was.

use std::time::{Duration, Instant};

use postrider_aws::{Progress, Redrive};
use postrider_core::{Error, RetryClass};

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

/// What to do about a task that is not heard of.
const AFTER: &str = "`postrider queue status` shows how far it is, `postrider queue cancel` ends it. What was moved stays moved.";

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
    let mut progress = Progress::begun();
    let mut heard = look(task, &mut progress).await?;
    while progress.running {
        line.show(&shown(&progress, begun.elapsed()));
        let left = wait.saturating_sub(begun.elapsed());
        if left.is_zero() {
            line.clear();
            let goes = if heard { "SQS goes on" } else { "SQS did not say since; it may go on" };
            note(&format!(
                "{}, and {goes}; `postrider queue status` shows how far it is",
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
                let seen = heard.then_some(progress);
                return Ok((Exit::Aborted, cancel(queue, task, seen, &mut signals).await?));
            }
        }
        pause = (pause * 3 / 2).min(LOOK_LATER);
        heard = look(task, &mut progress).await?;
    }
    line.clear();
    if progress.state == "completed" {
        note(&format!("{} to {}", moved(&progress), queue.name));
        return Ok((Exit::Success, progress));
    }
    note(&format!("{}: {}, the rest stays", progress.state, moved(&progress)));
    Ok((Exit::Failure, progress))
}

/// Ends a task, and waits until it has ended, but not for ever. A signal meanwhile does not wait. `seen` is how far it was.
///
/// # Errors
/// What the service says. The task may go on then.
pub(super) async fn cancel(
    queue: &Queue,
    task: &Redrive,
    mut seen: Option<Progress>,
    signals: &mut Signals,
) -> Result<Progress, Failure> {
    let mut told = task.cancel().await;
    let begun = Instant::now();
    loop {
        match task.progress().await {
            Ok(now) => seen = Some(now),
            Err(error) if error.retry_class() == RetryClass::Transient => {}
            Err(error) => return Err(goes_on(error, seen.as_ref())),
        }
        if seen.as_ref().is_some_and(|progress| !progress.running) {
            break;
        }
        // What it was not told it goes on with. One that had ended by then was not there to be told.
        std::mem::replace(&mut told, Ok(())).map_err(|error| goes_on(error, seen.as_ref()))?;
        if begun.elapsed() >= END_MAX {
            break;
        }
        tokio::select! {
            // waits: the service ends it by itself, and has no signal
            () = tokio::time::sleep(LOOK_FIRST) => {}
            _ = signals.next() => break,
        }
    }
    let progress = seen.ok_or_else(|| {
        Failure::plain("SQS was told to end the task, and did not say whether it has").advice(AFTER)
    })?;
    let rest = match &*progress.state {
        "completed" => "it was done before it could be ended",
        "cancelled" => "it was ended",
        _ if progress.running => "it is ending, and a few more may be moved",
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

/// What was not heard of a task that began, which may go on.
fn goes_on(error: Error, seen: Option<&Progress>) -> Failure {
    let so_far = seen.map_or_else(String::new, |progress| format!(", {} so far", moved(progress)));
    Failure::from(error).within(&format!("the task may go on{so_far}")).advice(AFTER)
}

/// Reads how far it is; whether it was heard. A service that is busy for a moment is asked again at the next look.
async fn look(task: &Redrive, progress: &mut Progress) -> Result<bool, Failure> {
    match task.progress().await {
        Ok(now) => *progress = now,
        Err(error) if error.retry_class() == RetryClass::Transient => return Ok(false),
        Err(error) => return Err(goes_on(error, Some(progress))),
    }
    Ok(true)
}

fn shown(progress: &Progress, since: Duration) -> String {
    let of = progress.of.map_or_else(String::new, |of| format!(" of about {}", count(of)));
    format!("{}{of} · {} s", count(progress.moved), since.as_secs())
}
