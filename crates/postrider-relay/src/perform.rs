//! Perform: what becomes of a command: one call of the store or of a broker, within its time.
//!
//! No decision is made here but two that nobody could make earlier: a publish does not start when its
//! lease may be over, and a call that takes too long is given up. Time comes from the clock alone, so
//! that a simulator performs with this very code.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_core::clock::within;
use postrider_core::{
    Archive, Broker, Clock, DestinationId, Error, ErrorKind, OutboxSource, Outcome, Outgoing,
    Result, Tick, planted, reach,
};

use crate::command::{Answer, Command, Input, Ticket};
use crate::observe::{Observer, Point};

/// Performs what a [`Machine`](crate::Machine) commands. Shared by all commands of one relay.
#[derive(Clone)]
pub struct Performer {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The store.
    pub source: Arc<dyn OutboxSource>,
    /// Where events go before they are deleted.
    pub archive: Option<Arc<dyn Archive>>,
    /// The broker of each destination that the relay can serve.
    pub brokers: BTreeMap<DestinationId, Arc<dyn Broker>>,
    /// Who is told of each [`Point`].
    pub observer: Option<Arc<dyn Observer>>,
    /// How long a call of the store may take. [`Settings::store_deadline`](crate::Settings).
    pub store_deadline: Duration,
    /// A lease that is granted or prolonged later than this is over.
    /// [`Settings::lease`](crate::Settings).
    pub lease: Duration,
}

impl std::fmt::Debug for Performer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Performer").field("brokers", &self.brokers.keys()).finish_non_exhaustive()
    }
}

impl Performer {
    /// Performs one command, and gives what the machine is to hear of it: one answer, whatever
    /// happens; and once the deadline of a publish has passed, one more
    /// ([`Input::Late`]) when the call has ended or is given up.
    pub async fn perform(&self, ticket: Ticket, command: Command, mut give: impl FnMut(Input)) {
        match command {
            Command::Publish { destination, batch, start_by, deadline, drop_by } => {
                let times = Times { start_by, deadline, drop_by };
                self.publish(ticket, &destination, &batch, times, &mut give).await;
            }
            command => give(Input::Answered(ticket, self.answer(command).await)),
        }
    }

    /// Asks the store. A call that takes too long is dropped, and its outcome unknown: a store that
    /// never answers would hold whatever waits for the answer, and nobody would know.
    pub(crate) async fn ask<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let deadline = deadline.min(self.store_deadline);
        within(&*self.clock, deadline, caught(operation, call)).await.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Timeout, operation)
                .message(format!("the store did not answer within {deadline:?}")))
        })
    }

    async fn answer(&self, command: Command) -> Answer {
        let source = &self.source;
        match command {
            Command::Define => Answer::Defined(
                self.ask("define", self.store_deadline, source.destinations()).await,
            ),
            Command::Acquire(request) => {
                let result = self.ask("acquire", self.lease, source.acquire(&request)).await;
                self.reached(Point::AfterAcquire).await;
                Answer::Acquired(result)
            }
            Command::Renew(request) => {
                self.reached(Point::BeforeRenew).await;
                Answer::Renewed(self.ask("renew", self.lease, source.renew(&request)).await)
            }
            Command::Release(leases) => {
                self.reached(Point::BeforeRelease).await;
                Answer::Released(
                    self.ask("release", self.store_deadline, source.release(&leases)).await,
                )
            }
            Command::Report(relay, hindrances) => {
                let call = source.report(&relay, &hindrances);
                Answer::Reported(self.ask("report", self.store_deadline, call).await)
            }
            Command::Load(lease, destination) => Answer::Loaded(
                self.ask("load", self.store_deadline, source.load(&lease, &destination)).await,
            ),
            Command::Head(lease) => {
                Answer::Head(self.ask("head", self.store_deadline, source.head(&lease)).await)
            }
            Command::Fetch(request) => {
                let result = self.ask("fetch", self.store_deadline, source.fetch(&request)).await;
                self.reached(Point::AfterFetch).await;
                Answer::Fetched(result)
            }
            // Performed by `publish`, which may end twice.
            Command::Publish { .. } => {
                Answer::Published(Err(Error::new(ErrorKind::Internal, "publish")))
            }
            Command::Settle(settlement) => {
                self.reached(Point::BeforeSettle).await;
                let result =
                    self.ask("settle", self.store_deadline, source.settle(&settlement)).await;
                self.reached(Point::AfterSettle).await;
                Answer::Settled(result)
            }
            Command::Due(request) => {
                Answer::Due(self.ask("due", self.store_deadline, source.due(&request)).await)
            }
            Command::Admit(lease, rows) => Answer::Admitted(
                self.ask("admit", self.store_deadline, source.admit(&lease, rows)).await,
            ),
            Command::CarryOut(request) => {
                let call = source.carry_out(&request);
                let result = self.ask("carry out", self.store_deadline, call).await;
                self.reached(Point::AfterCarryOut).await;
                Answer::CarriedOut(result)
            }
            Command::Retire(request) => Answer::Retired(self.retire(request).await),
            Command::Count(destination) => Answer::Counted(
                self.ask("count", self.store_deadline, source.counts(&destination)).await,
            ),
        }
    }

    async fn publish(
        &self,
        ticket: Ticket,
        destination: &DestinationId,
        batch: &[Outgoing],
        times: Times,
        give: &mut impl FnMut(Input),
    ) {
        let answer = |result| Input::Answered(ticket, Answer::Published(result));
        let Some(broker) = self.brokers.get(destination) else {
            let message = "the destination has no broker in this relay";
            let error = Error::new(ErrorKind::Internal, "publish").message(message);
            return give(answer(Err(error)));
        };
        self.reached(Point::BeforePublish).await;
        if self.clock.tick() > times.start_by && !planted!(PublishAfterLease) {
            reach!(PublishTooLate);
            // The process was held up between the decision and here, and its lease may be gone.
            return give(answer(Ok(vec![Outcome::Skipped; batch.len()])));
        }
        let mut call = pin!(caught("publish", broker.publish(batch)));
        let sent = within(&*self.clock, times.deadline, call.as_mut()).await;
        self.reached(Point::AfterPublish).await;
        if let Some(result) = sent {
            return give(answer(result));
        }
        reach!(PublishTimedOut);
        let message = format!("no answer within {:?}; it may have been stored", times.deadline);
        give(answer(Err(Error::new(ErrorKind::Timeout, "publish").message(message))));
        // For so long and no longer: then the call is dropped, and what it sent may still arrive.
        let left = times.drop_by.since(self.clock.tick());
        let late = within(&*self.clock, left, call).await;
        give(Input::Late(ticket, late.and_then(Result::ok).unwrap_or_default()));
    }

    pub(crate) async fn reached(&self, point: Point) {
        if let Some(observer) = &self.observer {
            observer.reached(point).await;
        }
    }
}

/// The times of a publish, as [`Command::Publish`] has them.
#[derive(Clone, Copy)]
struct Times {
    start_by: Tick,
    deadline: Duration,
    drop_by: Tick,
}

/// An adapter's answer; its panic is an error that names no event.
async fn caught<T>(operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Err(Error::new(ErrorKind::Unavailable, operation)
                .message(format!("the adapter panicked: {text}")))
        }
    }
}
