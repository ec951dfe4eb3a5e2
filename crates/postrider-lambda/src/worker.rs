//! A queue's messages in a function: each through the inbox, and what failed comes again.
//!
//! Invariants: a message that the answer does not name was done, before or now, or is kept among the dead letters;
//! after a failure the rest of its group, or key, is not begun; nothing is begun that the function has no time for;
//! and the answer is there before the function's time is up, whoever does not answer.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use postrider_aws::{Pushed, SqsSubscription};
use postrider_core::inbox::Receiver;
use postrider_core::{Event, Fault, Jitter, Result, Subscription as _};
use tokio::time::{Instant, timeout_at};

use crate::answer::Received;
use crate::lanes::part;
use crate::options::{WorkerOptions, refuse};
use crate::settle::{Answer, Came, Next, settle, too_often};

/// What part of the reserve is the answer's own: nothing is asked of the queue in it.
const ANSWER_PART: u32 = 4;
/// How many messages of a group are given back at once. A batch has ten, as it is usually set.
const BACK_AT_ONCE: usize = 10;

/// Acts on the messages that a queue invokes a function with.
pub struct Worker {
    queue: Arc<SqsSubscription>,
    receiver: Arc<dyn Receiver>,
    options: WorkerOptions,
}

/// What became of a message.
enum Fate {
    Done,
    Duplicate,
    Dead,
    /// It comes again after a delay; nothing behind it is begun.
    Again(Duration, bool),
}

/// An invocation's time.
#[derive(Clone, Copy)]
struct Time {
    /// Nothing is worked on after it.
    work: Instant,
    /// Nothing is asked of the queue after it.
    hard: Instant,
}

impl Worker {
    /// A worker behind a queue. The subscription's visibility is the queue's.
    ///
    /// # Errors
    /// `Config` if the times contradict each other, or the subscription has another visibility than the options:
    /// what it hides is settled by it no longer than that.
    pub fn new(
        queue: Arc<SqsSubscription>,
        receiver: Arc<dyn Receiver>,
        options: WorkerOptions,
    ) -> Result<Worker> {
        options.check()?;
        let visibility = queue.capabilities().visibility;
        if visibility != options.visibility {
            refuse(format!(
                "the subscription has a visibility of {visibility:?}, and the options say {:?}: set both to the queue's",
                options.visibility
            ))?;
        }
        Ok(Worker { queue, receiver, options })
    }

    /// Acts on the messages of an invocation. `remaining` is the time that the function has left.
    ///
    /// The answer names the messages that come again. What was done is deleted by the service, not here.
    ///
    /// # Errors
    /// What is no batch of a queue. Nothing was done then, and everything comes again.
    pub async fn receive(&self, json: &[u8], remaining: Duration) -> Result<Received> {
        let (now, reserve) = (Instant::now(), self.options.reserve);
        let time = Time {
            work: now + remaining.saturating_sub(reserve),
            hard: now + remaining.saturating_sub(reserve / ANSWER_PART),
        };
        let lanes = part(self.queue.adopt(json)?);
        let work: Vec<_> = lanes.into_iter().map(|lane| self.lane(lane, time)).collect();
        let mut lanes = stream::iter(work).buffer_unordered(self.options.at_once);
        let mut all = Received::default();
        while let Some(one) = lanes.next().await {
            all.failures.0.extend(one.failures.0);
            all.done += one.done;
            all.duplicates += one.duplicates;
            all.dead += one.dead;
        }
        Ok(all)
    }

    async fn lane(&self, lane: Vec<Pushed>, time: Time) -> Received {
        let mut received = Received::default();
        let mut lane = lane.into_iter();
        while let Some(message) = lane.next() {
            match self.act(&message, time).await {
                Fate::Done => received.done += 1,
                Fate::Duplicate => received.duplicates += 1,
                Fate::Dead => received.dead += 1,
                Fate::Again(delay, counted) => {
                    received.failures.0.push(self.give_back(message, delay, counted, time).await);
                    // Behind one that failed: begun after it, at the earliest.
                    let rest =
                        lane.by_ref().map(|behind| self.give_back(behind, delay, false, time));
                    let rest: Vec<_> = rest.collect();
                    let rest = stream::iter(rest).buffered(BACK_AT_ONCE);
                    received.failures.0.extend(rest.collect::<Vec<_>>().await);
                    continue;
                }
            }
            // The service deletes it; a copy of it begins anew.
            self.queue.dismiss(&message.delivery);
        }
        received
    }

    /// Says when a message comes again, and returns its id. Where the queue does not hear it, or there is no time to
    /// tell it, it comes when its visibility ends.
    async fn give_back(
        &self,
        message: Pushed,
        delay: Duration,
        counted: bool,
        time: Time,
    ) -> String {
        let delivery = &message.delivery;
        let heard = match time.hard > Instant::now() {
            true => timeout_at(time.hard, self.queue.nack(delivery, delay, counted)).await.ok(),
            false => None,
        };
        if !matches!(heard, Some(Ok(()))) {
            tracing::debug!(answer = ?heard, message = %message.id, "it comes again when its visibility ends");
            self.queue.abandon(delivery, counted);
        }
        message.id.to_string()
    }

    async fn act(&self, message: &Pushed, time: Time) -> Fate {
        let delivery = &message.delivery;
        if time.work <= Instant::now() {
            // There is no time for it: soon, in another invocation. At once, it would come to this one's successor in
            // a loop that uses receives up.
            return Fate::Again(self.options.retry.delay_min, false);
        }
        let event = match &delivery.event {
            Ok(event) => event,
            Err(fault) => return self.bury(message, fault, time).await,
        };
        if let Some(fault) = too_often(message.receives, &self.options) {
            return self.bury(message, &fault, time).await;
        }
        let answer = self.ask(event, message, time).await;
        let shown = format!("{answer:?}");
        let came = Came { tries: delivery.count, receives: message.receives };
        let mut jitter = Jitter::seeded(delivery.receipt.message ^ u64::from(message.receives));
        match settle(answer, came, &self.options, &mut jitter) {
            Next::Done => Fate::Done,
            Next::Duplicate => Fate::Duplicate,
            Next::Bury(fault) => self.bury(message, &fault, time).await,
            Next::Again { delay, counted } => {
                tracing::warn!(event = %event.id, answer = shown, ?delay, counted, "it comes again");
                Fate::Again(delay, counted)
            }
        }
    }

    /// Asks the handler. Dropped at the end of the time, or by a panic, its claim is let go.
    async fn ask(&self, event: &Arc<Event>, message: &Pushed, time: Time) -> Answer {
        // What was begun too often is told by the queue's receives, which a function that runs out of time uses up as well.
        let mut delivery = message.delivery.clone();
        delivery.count = delivery.count.min(2);
        // Nothing of what panicked is used again: a claim's row is judged by its lease.
        let asked = AssertUnwindSafe(async { self.receiver.receive(event, &delivery).await });
        match timeout_at(time.work, asked.catch_unwind()).await {
            Ok(Ok(Ok(verdict))) => Answer::Verdict(verdict),
            Ok(Ok(Err(error))) => Answer::Failed(error),
            Ok(Err(panic)) => Answer::Panicked(said(&*panic)),
            Err(_) => Answer::Late,
        }
    }

    /// Keeps what will never succeed, with the reason. What is not kept comes again.
    async fn bury(&self, message: &Pushed, fault: &Fault, time: Time) -> Fate {
        let kept = timeout_at(time.hard, self.queue.reject(&message.delivery, fault)).await;
        if matches!(kept, Ok(Ok(()))) {
            if !matches!(
                timeout_at(time.hard, self.receiver.buried(&message.delivery)).await,
                Ok(Ok(()))
            ) {
                tracing::debug!(message = %message.id, "sent again, it still has its tries");
            }
            return Fate::Dead;
        }
        tracing::warn!(answer = ?kept, message = %message.id, "the dead letter was not kept");
        Fate::Again(self.options.retry.delay_max, true)
    }
}

/// What a panicking handler said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a text".to_owned())
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}
