//! A consumer's subscription. It waits without reading the file more often than it must, and what a
//! dropped `receive` took goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{BoxFuture, Delivery, Fault, Marks, Result, Subscription};

use crate::claim::{self, Claimed, Request};
use crate::database::{Access, Scope};
use crate::dead_letter::read_event;
use crate::options::{SubscribeOptions, Topics};
use crate::settle::{self, Held};
use crate::trouble::Step;
use crate::worker::Worker;

/// How often the file is looked at for what other processes did, and for deliveries that are due
/// again. Within a process a publish wakes consumers at once.
const POLL: Duration = Duration::from_millis(20);
/// How many deliveries one `receive` returns at most, whatever is asked for.
const RECEIVE_MAX: usize = 1_024;

/// One instance of a consumer group. Key order holds across all instances, in all processes.
pub struct LocalSubscription {
    worker: Worker,
    group_id: i64,
    topics: Arc<Topics>,
    options: SubscribeOptions,
    /// Up to where the log held nothing more for us when we last looked.
    drained_to: AtomicI64,
    /// Whether the last claim left something behind, so that looking first would be a waste.
    more: AtomicBool,
}

impl std::fmt::Debug for LocalSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSubscription")
            .field("file", &self.worker.path())
            .field("topics", &self.topics)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A claim on its way to the consumer. If it is dropped on the way, it goes back.
struct Unreceived {
    worker: Worker,
    group_id: i64,
    claimed: Claimed,
}

impl Drop for Unreceived {
    fn drop(&mut self) {
        if self.claimed.handed.is_empty() {
            return;
        }
        let (group_id, token) = (self.group_id, self.claimed.token);
        let seqs: Vec<i64> = self.claimed.handed.iter().map(|m| m.seq).collect();
        self.worker.post(move |scope| claim::release(scope, group_id, token, &seqs));
    }
}

impl LocalSubscription {
    pub(crate) fn new(
        worker: Worker,
        group_id: i64,
        topics: Arc<Topics>,
        options: SubscribeOptions,
    ) -> LocalSubscription {
        LocalSubscription {
            worker,
            group_id,
            topics,
            options,
            drained_to: AtomicI64::new(-1),
            more: AtomicBool::new(false),
        }
    }

    async fn receive_some(&self, max: usize) -> Result<Vec<Delivery>> {
        let max = max.clamp(1, RECEIVE_MAX);
        let mut straight = self.more.swap(false, Ordering::Relaxed);
        loop {
            // Registered before looking: what is published in between is not missed.
            let woken = self.worker.woken();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if straight || self.peek().await? {
                let mut got = self.claim(max).await?;
                if !got.claimed.handed.is_empty() {
                    self.more.store(true, Ordering::Relaxed);
                    return Ok(deliver(&mut got.claimed));
                }
                if got.claimed.more {
                    straight = true;
                    continue;
                }
            }
            straight = tokio::time::timeout(POLL, woken).await.is_ok();
        }
    }

    async fn peek(&self) -> Result<bool> {
        let group_id = self.group_id;
        let drained_to = self.drained_to.load(Ordering::Relaxed);
        self.worker
            .call("receive", Access::Read, move |scope| claim::peek(scope, group_id, drained_to))
            .await
    }

    async fn claim(&self, max: usize) -> Result<Unreceived> {
        let request = Request {
            group_id: self.group_id,
            topics: Arc::clone(&self.topics),
            max,
            options: self.options,
        };
        let (worker, group_id) = (self.worker.clone(), self.group_id);
        let got = self
            .worker
            .call_then(
                "receive",
                Access::Write,
                move |scope| claim::claim(scope, &request),
                // Only once it is committed: the token of a claim that was undone may be another's.
                move |claimed| Unreceived { worker, group_id, claimed },
            )
            .await?;
        if let Some(seq) = got.claimed.drained_to {
            self.drained_to.store(seq, Ordering::Relaxed);
        }
        Ok(got)
    }

    async fn settle(
        &self,
        operation: &'static str,
        delivery: &Delivery,
        step: impl FnOnce(&Scope<'_>, Held) -> Step<()> + Send + 'static,
    ) -> Result<()> {
        let held = Held::new(self.group_id, delivery.receipt);
        self.worker.call(operation, Access::Write, move |scope| step(scope, held)).await
    }
}

/// What was claimed, as the consumer sees it. From here on it is the consumer's to settle.
fn deliver(claimed: &mut Claimed) -> Vec<Delivery> {
    let token = claimed.token.cast_unsigned();
    std::mem::take(&mut claimed.handed)
        .into_iter()
        .map(|message| {
            let receipt = Receipt { message: message.seq.cast_unsigned(), token };
            let (event, marks) = read_event(&message.document);
            let mut delivery = Delivery::new(event, Arc::from(message.topic), receipt);
            delivery.marks = Marks { late: message.late, ..marks };
            delivery.count = message.count;
            delivery
        })
        .collect()
}

impl Subscription for LocalSubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        let mut can = SubscriptionCapabilities::least(self.options.visibility);
        can.key_order = true;
        can.counts_deliveries = true;
        can
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(self.receive_some(max))
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.settle("ack", delivery, settle::ack))
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        let deliveries_max = self.options.deliveries_max;
        Box::pin(self.settle("nack", delivery, move |scope, held| {
            settle::nack(scope, held, delay, counted, deliveries_max)
        }))
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        let reason = fault.to_string();
        Box::pin(
            self.settle("reject", delivery, move |scope, held| {
                settle::reject(scope, held, &reason)
            }),
        )
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(
            self.settle("extend", delivery, move |scope, held| settle::extend(scope, held, by)),
        )
    }
}
