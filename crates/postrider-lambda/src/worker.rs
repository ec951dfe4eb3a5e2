//! A queue's messages in a function: each through the inbox, and what failed comes again.
//!
//! Invariants: a message that the answer does not name was done, before or now, or is kept among the dead letters;
//! after a failure the rest of its group, or key, is not begun; and nothing is begun that the function has no time for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use postrider_aws::{Pushed, SqsSubscription};
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{Error, ErrorKind, Fault, Jitter, Result, RetryPolicy, Subscription as _};
use tokio::time::timeout;

use crate::answer::{Failures, Received};
use crate::lanes::part;

/// How a worker works, and its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// Keys, or groups, that are worked on at once. Default 8: a function has little memory and one processor.
    pub at_once: usize,
    /// How long the queue hides a message: as it is set there. Default 6 min, six times the function's time, which is
    /// what the service asks for.
    pub visibility: Duration,
    /// The function's time. Default 1 min.
    pub function_time: Duration,
    /// How long a claim lasts without a heartbeat. Default 30 s, as the inbox has it.
    pub lease: Duration,
    /// After how many receives the queue itself moves a message away. Default 100.
    pub receives_max: u32,
    /// When what failed comes again, and after how many receives it is a dead letter.
    pub retry: RetryPolicy,
    /// What is kept of an invocation's time for settling and the answer. Default 2 s.
    pub reserve: Duration,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
            at_once: 8,
            visibility: Duration::from_secs(360),
            function_time: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            receives_max: 100,
            retry: RetryPolicy::default(),
            reserve: Duration::from_secs(2),
        }
    }
}

impl WorkerOptions {
    /// Checks that the times fit each other: whichever ends first, lease or visibility, a message is done in the end.
    ///
    /// # Errors
    /// `Config`, with the two values that contradict each other.
    pub fn check(&self) -> Result<()> {
        let refuse =
            |what: String| Err(Error::new(ErrorKind::Config, "configure worker").message(what));
        if self.at_once == 0 || self.retry.attempts_max == 0 || self.lease.is_zero() {
            return refuse("at_once, attempts_max, and the lease are above zero".to_owned());
        }
        if self.reserve >= self.function_time {
            return refuse(format!(
                "of {:?} nothing is left beside the reserve of {:?}",
                self.function_time, self.reserve
            ));
        }
        if self.visibility < self.function_time {
            return refuse(format!(
                "a message is hidden for {:?} and the function may take {:?}: it would come again while it is worked on",
                self.visibility, self.function_time
            ));
        }
        // A worker that was killed holds its claim for a lease; each time that the message comes meanwhile is counted
        // by the queue, and is nobody's fault.
        let busy = self.lease.as_secs_f64() / self.visibility.as_secs_f64();
        let needed = f64::from(self.retry.attempts_max) + busy.ceil();
        if f64::from(self.receives_max) < needed {
            return refuse(format!(
                "the queue gives a message up after {} receives, and {needed} may be needed: {} tries, and those that \
                 find the lease of {:?} taken",
                self.receives_max, self.retry.attempts_max, self.lease
            ));
        }
        Ok(())
    }
}

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

impl Worker {
    /// A worker behind a queue. The subscription's visibility is the queue's.
    ///
    /// # Errors
    /// `Config` if the times contradict each other.
    pub fn new(
        queue: Arc<SqsSubscription>,
        receiver: Arc<dyn Receiver>,
        options: WorkerOptions,
    ) -> Result<Worker> {
        options.check()?;
        Ok(Worker { queue, receiver, options })
    }

    /// Acts on the messages of an invocation. `remaining` is the time that the function has left.
    ///
    /// The answer names the messages that come again. What was done is deleted by the service, not here.
    ///
    /// # Errors
    /// What is no batch of a queue. Nothing was done then, and everything comes again.
    pub async fn receive(&self, json: &[u8], remaining: Duration) -> Result<Received> {
        let end = Instant::now() + remaining.saturating_sub(self.options.reserve);
        let lanes = part(self.queue.adopt(json)?);
        let work: Vec<_> = lanes.into_iter().map(|lane| self.lane(lane, end)).collect();
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

    async fn lane(&self, lane: Vec<Pushed>, end: Instant) -> Received {
        let mut received = Received::default();
        let mut blocked: Option<Duration> = None;
        for message in lane {
            let fate = match blocked {
                // Behind one that failed: begun after it, at the earliest.
                Some(delay) => Fate::Again(delay, false),
                None => self.act(&message, end).await,
            };
            match fate {
                Fate::Done => received.done += 1,
                Fate::Duplicate => received.duplicates += 1,
                Fate::Dead => received.dead += 1,
                Fate::Again(delay, counted) => {
                    blocked = Some(delay);
                    received.failures =
                        self.give_back(received.failures, &message, delay, counted).await;
                }
            }
        }
        received
    }

    /// Says when a message comes again. Where the queue does not hear it, it comes when its visibility ends.
    async fn give_back(
        &self,
        mut failures: Failures,
        message: &Pushed,
        delay: Duration,
        counted: bool,
    ) -> Failures {
        failures.0.push(message.id.to_string());
        if let Err(error) = self.queue.nack(&message.delivery, delay, counted).await {
            tracing::debug!(%error, message = %message.id, "it comes again when its visibility ends");
        }
        failures
    }

    async fn act(&self, message: &Pushed, end: Instant) -> Fate {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // There is no time for it: at once, in another invocation.
            return Fate::Again(Duration::ZERO, false);
        }
        let event = match &message.delivery.event {
            Ok(event) => event,
            Err(fault) => return self.bury(message, fault).await,
        };
        // Dropped at the end of the time, the claim is let go.
        match timeout(left, self.receiver.receive(event, &message.delivery)).await {
            Ok(Ok(Verdict::Done)) => Fate::Done,
            Ok(Ok(Verdict::Duplicate)) => Fate::Duplicate,
            // Somebody is at it: when the lease has ended, it is done, or ours to do.
            Ok(Ok(Verdict::Busy { retry_in })) => Fate::Again(retry_in, false),
            Ok(Ok(Verdict::Retry { after, fault })) => {
                let mut jitter = Jitter::seeded(u64::from(message.receives));
                match self.options.retry.delay(message.receives, after, &mut jitter) {
                    Some(delay) => {
                        tracing::warn!(event = %event.id, %fault, "it failed, and comes again");
                        Fate::Again(delay, true)
                    }
                    None => self.bury(message, &fault).await,
                }
            }
            Ok(Ok(Verdict::Reject(fault))) => self.bury(message, &fault).await,
            Ok(Err(error)) => {
                tracing::warn!(event = %event.id, %error, "the inbox did not answer");
                Fate::Again(self.options.retry.delay_min, false)
            }
            Err(_) => Fate::Again(self.options.lease.min(self.options.visibility), true),
        }
    }

    /// Keeps what will never succeed, with the reason. What is not kept comes again.
    async fn bury(&self, message: &Pushed, fault: &Fault) -> Fate {
        match self.queue.reject(&message.delivery, fault).await {
            Ok(()) => Fate::Dead,
            Err(error) => {
                tracing::warn!(%error, message = %message.id, "the dead letter was not kept");
                Fate::Again(self.options.retry.delay_max, true)
            }
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R082: times that would make a message come again while it is worked on, or give it up while its lease runs,
    /// are refused with both values; either of lease and visibility may be the longer one.
    #[test]
    fn times_that_contradict_each_other_are_refused() {
        let sound = WorkerOptions::default();
        assert!(sound.check().is_ok());
        let long_lease = WorkerOptions { lease: Duration::from_secs(3_600), ..sound };
        assert!(long_lease.check().is_ok(), "ten receives find it taken");
        for (wrong, words) in [
            (
                WorkerOptions { visibility: Duration::from_secs(30), ..sound },
                "while it is worked on",
            ),
            (WorkerOptions { receives_max: 19, ..long_lease }, "19 receives"),
            (WorkerOptions { reserve: sound.function_time, ..sound }, "nothing is left"),
            (WorkerOptions { at_once: 0, ..sound }, "above zero"),
        ] {
            let error = wrong.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
