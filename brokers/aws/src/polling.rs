//! Asking a queue for messages.
//!
//! Invariant: an answer that nobody waits for any more is kept for who asks next, and what became stale meanwhile is
//! left to come again, without counting as a try.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use futures_util::future::join_all;
use postrider_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::answer::{Call, judge};
use crate::call::ENTRIES_MAX;

/// How long a queue holds a question open for which it has nothing: as long as one can.
const WAIT: Duration = Duration::from_secs(20);

/// How often it is seen that this process runs. An answer counts as so much older at most.
const AWAKE_EVERY: Duration = Duration::from_millis(250);
/// What is late by more was stopped, or so busy that it is the same.
const ASLEEP_AFTER: Duration = Duration::from_secs(1);

/// What to ask for.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) client: Client,
    pub(crate) queue: Arc<str>,
    /// For how long what comes is ours.
    pub(crate) visibility: Duration,
    /// How long an answer may take beyond what it was asked to wait.
    pub(crate) deadline: Duration,
    /// One message a call: a queue of the kind FIFO gives out several of a group at once otherwise, and the second
    /// would be in work here while the first comes again elsewhere.
    pub(crate) one_by_one: bool,
}

/// A message, and when it came.
pub(crate) type Came = (Instant, Message);

/// The question that is open, and what came and was not taken.
#[derive(Default)]
pub(crate) struct Polling {
    open: Option<JoinHandle<Result<Vec<Came>>>>,
    came: VecDeque<Came>,
}

impl Polling {
    /// Waits for messages, and returns up to so many.
    pub(crate) async fn next(&mut self, question: &Question, max: usize) -> Result<Vec<Came>> {
        loop {
            let taken = self.take(question.visibility, max);
            if !taken.is_empty() {
                return Ok(taken);
            }
            let ask = || tokio::spawn(ask(question.clone(), max.clamp(1, ENTRIES_MAX)));
            // Whoever drops this call leaves the question to the next.
            let answered = self.open.get_or_insert_with(ask).await;
            self.open = None;
            let ended =
                |_| Err(Error::new(ErrorKind::Closed, "consume").message("the program ends"));
            self.came.extend(answered.unwrap_or_else(ended)?);
        }
    }

    /// What came, but for what is not ours for long enough to begin with.
    fn take(&mut self, visibility: Duration, max: usize) -> Vec<Came> {
        let mut taken = Vec::new();
        while taken.len() < max.max(1) {
            let Some((at, message)) = self.came.pop_front() else { break };
            if at.elapsed() <= visibility / 2 {
                taken.push((at, message));
            }
        }
        taken
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.abort();
        }
    }
}

async fn ask(question: Question, max: usize) -> Result<Vec<Came>> {
    let first = if question.one_by_one { 1 } else { max };
    let mut came = receive(&question, first, WAIT).await?;
    if question.one_by_one && !came.is_empty() {
        let more = (1..max).map(|_| receive(&question, 1, Duration::ZERO));
        // What a second question fails at, the next one will be told.
        came.extend(join_all(more).await.into_iter().flatten().flatten());
    }
    Ok(came)
}

async fn receive(question: &Question, max: usize, wait: Duration) -> Result<Vec<Came>> {
    let call = Call { action: "sqs:ReceiveMessage", what: "the queue", name: &question.queue };
    let asked = question
        .client
        .receive_message()
        .queue_url(&*question.queue)
        .max_number_of_messages(i32::try_from(max).unwrap_or(1))
        .visibility_timeout(seconds(question.visibility))
        .wait_time_seconds(seconds(wait))
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId)
        .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
        .message_system_attribute_names(MessageSystemAttributeName::SequenceNumber);
    let watched = while_awake(asked.send());
    let (answer, at) = timeout(wait + question.deadline, watched).await.map_err(|_| {
        Error::new(ErrorKind::Timeout, "consume")
            .message("SQS did not answer in time; what is not settled comes again")
            .context("queue", &question.queue)
    })?;
    let answer = answer.map_err(|error| judge(call, &error).error("consume"))?;
    Ok(answer.messages.unwrap_or_default().into_iter().map(|message| (at, message)).collect())
}

/// Waits for an answer, and tells the last moment before it at which this process was surely running: one that was
/// stopped meanwhile finds an answer that may be as old as the stop was long.
async fn while_awake<T>(answer: impl Future<Output = T>) -> (T, Instant) {
    let mut answer = std::pin::pin!(answer);
    let mut awake = Instant::now();
    let mut slept = false;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return (answer, awake),
            () = tokio::time::sleep(AWAKE_EVERY) => { // waits: what is measured is that it comes in time
                slept |= awake.elapsed() > ASLEEP_AFTER;
                if !slept {
                    awake = Instant::now();
                }
            }
        }
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(time: Duration) -> i32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F10: an answer that lay there while the process was stopped is as old as the stop.
    #[tokio::test]
    async fn an_answer_is_as_old_as_a_stop() {
        let stopped = Duration::from_millis(1_500);
        let late = async {
            tokio::time::sleep(Duration::from_millis(300)).await; // waits: for one look at the clock
            std::thread::sleep(stopped); // waits: this is the stop
            // The clock is looked at before the answer is.
            tokio::time::sleep(Duration::from_millis(600)).await; // waits: for further looks
        };
        let began = Instant::now();
        let ((), at) = while_awake(late).await;
        assert!(at.elapsed() >= stopped, "{:?}", at.elapsed());
        assert!(at > began);
        let ((), at) = while_awake(tokio::time::sleep(Duration::from_millis(600))).await; // waits: as a queue does
        assert!(at.elapsed() < stopped);
    }
}
