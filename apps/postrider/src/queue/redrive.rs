//! What is shown before dead letters are moved, and what is written afterwards.
//!
//! Invariant: the number that is asked about was counted before the question, and one task of a queue runs at a time.

use postrider_aws::{Heap, Progress, Redrive};
use postrider_core::{Error, RetryClass};

use super::place::{self, Queue};
use super::{CancelArgs, PlaceArgs, RedriveArgs, follow, guard};
use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::output::Out;
use crate::shape::{DeadQueue, MoveTask};
use crate::signals::Signals;
use crate::terminal::{count, note};

/// Other queues that are named; there may be thousands.
const NAMED_MAX: usize = 5;

/// Counts, asks, moves, and follows.
///
/// # Errors
/// There is no guard, somebody is at it already, there is nobody to ask, and what the service says.
pub(super) async fn run(args: &RedriveArgs) -> Result<Exit, Failure> {
    let queue = place::open(&args.place, args.inbox.as_deref()).await?;
    let heap = queue.letters.count().await?;
    if !args.shared {
        refuse_shared(&queue).await?;
    }
    guard::check(&queue, &heap, args.unguarded).await?;
    let counted = letters(heap.waiting);
    let verb = if args.dry_run { "would be moved" } else { "are to be moved" };
    note(&format!("{counted} of {} {verb} to {}", queue.letters.name(), queue.name));
    if heap.out > 0 {
        note(&format!("{} more are with somebody who received them, and stay", count(heap.out)));
    }
    if args.dry_run || heap.waiting == 0 {
        if !args.dry_run {
            note("there is nothing to move: nothing was changed");
        }
        write(&args.place, &queue, &heap, None)?;
        return Ok(Exit::Success);
    }
    if let Some(running) = queue.letters.running().await? {
        let progress = running.progress().await?;
        return Err(Failure::plain(format!(
            "somebody is moving them already: {}",
            moved(&progress)
        ))
        .advice("Nothing was begun. `postrider queue status` shows how far it is, `postrider queue cancel` ends it."));
    }
    let question = format!("move {counted} of {} to {}?", queue.letters.name(), queue.name);
    if let Answer::Stop(exit) = confirm::yes(args.yes, &question).await? {
        return Ok(exit);
    }
    // Before it begins: whoever asks it to stop a moment later is heard.
    let signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let task = queue.letters.redrive(args.rate).await.map_err(begun_perhaps)?;
    let (exit, progress) = follow::follow(&queue, &task, signals, args.wait).await?;
    write(&args.place, &queue, &left(&queue, &progress).await?, Some(progress.clone()))?;
    match &progress.failure {
        Some(why) if !progress.running => Err(Failure::plain(format!(
            "SQS gave up: {why}; {}, and the rest stays in {}",
            moved(&progress),
            queue.letters.name()
        ))),
        _ => Ok(exit),
    }
}

/// Ends the task that runs.
///
/// # Errors
/// There is none, and what the service says.
pub(super) async fn cancel(args: &CancelArgs) -> Result<Exit, Failure> {
    let queue = place::open(&args.place, None).await?;
    let Some(task) = queue.letters.running().await? else {
        return Err(Failure::plain(format!(
            "no task moves dead letters of {}",
            queue.letters.name()
        ))
        .advice("Nothing was changed."));
    };
    let mut signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let progress = follow::cancel(&queue, &task, None, &mut signals).await?;
    let exit = if progress.running { Exit::Accepted } else { Exit::Success };
    write(&args.place, &queue, &left(&queue, &progress).await?, Some(progress))?;
    Ok(exit)
}

/// Dead letters of other queues would go to this one as well.
///
/// # Errors
/// There are other queues, or who we are may not ask for them. Nothing was moved then.
async fn refuse_shared(queue: &Queue) -> Result<(), Failure> {
    let dead = queue.letters.name();
    let advice = "Nothing was moved. If its consumers take the events of them all: --shared. Else let each queue have \
                  dead letters of its own; what is there now can be read and sent by hand.";
    let others = queue.letters.others().await.map_err(|error| {
        Failure::from(error)
            .within(&format!("whether other queues share {dead} is not known"))
            .advice("Nothing was moved. Grant sqs:ListDeadLetterSourceQueues; or, if no other queue has dead letters there: --shared.")
    })?;
    if !others.names.is_empty() {
        let names = others.names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if others.names.len() > NAMED_MAX || others.more { ", and more" } else { "" };
        return Err(Failure::config(format!(
            "{dead} has dead letters of {names}{more} as well: all of them would go to {}",
            queue.name
        ))
        .advice(advice));
    }
    if others.more {
        return Err(Failure::config(format!(
            "{dead} is shared by more queues than were looked at"
        ))
        .advice(advice));
    }
    Ok(())
}

/// A task that could not be begun, as far as is known.
fn begun_perhaps(error: Error) -> Failure {
    let unsure = error.retry_class() == RetryClass::Transient;
    let unsure = unsure && error.operation() != Redrive::LIST;
    let failure = Failure::from(error);
    if !unsure {
        return failure;
    }
    failure.advice(
        "A task may have begun: `postrider queue status` shows it, `postrider queue cancel` ends it. No dead letter is \
         lost by either.",
    )
}

/// What is left after a task.
///
/// # Errors
/// What the service says, with what the task did.
async fn left(queue: &Queue, progress: &Progress) -> Result<Heap, Failure> {
    queue.letters.count().await.map_err(|error| {
        Failure::from(error).within(&format!("{}; what is left was not counted", moved(progress)))
    })
}

/// Writes how many there are, and how far the newest task is.
///
/// # Errors
/// What the service says.
pub(super) async fn show(args: &PlaceArgs, queue: &Queue) -> Result<(), Failure> {
    let heap = queue.letters.count().await?;
    write(args, queue, &heap, queue.letters.newest().await?)
}

fn write(
    args: &PlaceArgs,
    queue: &Queue,
    heap: &Heap,
    progress: Option<Progress>,
) -> Result<(), Failure> {
    let document = DeadQueue {
        queue: queue.name.clone(),
        dead_letters: queue.letters.name().to_owned(),
        count: heap.waiting,
        out: heap.out,
        retention_seconds: heap.retention.map(|stay| stay.as_secs_f64()),
        task: progress.map(MoveTask::from),
    };
    Out::new(args.output).one(&document, || document.lines())
}

/// So many dead letters. The service does not count exactly.
fn letters(number: u64) -> String {
    match number {
        1 => "about 1 dead letter".to_owned(),
        number => format!("about {} dead letters", count(number)),
    }
}

/// How far a task is.
pub(super) fn moved(progress: &Progress) -> String {
    match progress.of {
        Some(of) => format!("{} of about {} were moved", count(progress.moved), count(of)),
        None => format!("{} were moved", count(progress.moved)),
    }
}
