//! The asynchronous shell: carries out the machine's commands, and decides nothing.
//!
//! Invariant: handlers, settlements, and extensions are tasks of their own, so none of them makes
//! another one wait; all of them end with the shell.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Clock, Delivery, Error, ErrorKind, Event, Result, Subscription, Tick,
};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::command::{Answer, Blame, Command, DeliveryNo, Input, blame};
use crate::machine::Machine;
use crate::signal::{Signal, within};
use crate::stats::{Health, Stats};

/// What the owner of the handle wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    Drain { within: Duration },
    Abort,
}

/// What the shell says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) stats: Stats,
    pub(crate) health: Health,
}

impl Default for Report {
    fn default() -> Report {
        Report { stats: Stats::default(), health: Health::Ready }
    }
}

type Received = BoxFuture<'static, Result<Vec<Delivery>>>;

pub(crate) struct Shell {
    machine: Machine,
    subscription: Arc<dyn Subscription>,
    receiver: Arc<dyn Receiver>,
    clock: Arc<dyn Clock>,
    settle_timeout: Duration,
    reports: watch::Sender<Report>,
    receiving: Option<Received>,
    handlers: JoinSet<Result<Verdict>>,
    /// Which delivery a handler's task is about.
    numbers: HashMap<Id, DeliveryNo>,
    /// How to stop the handler of a delivery.
    reins: BTreeMap<DeliveryNo, (Id, AbortHandle, Signal)>,
    answers: JoinSet<Input>,
    wake: Option<Tick>,
    orphaned: bool,
}

impl Shell {
    pub(crate) fn new(
        machine: Machine,
        subscription: Arc<dyn Subscription>,
        receiver: Arc<dyn Receiver>,
        clock: Arc<dyn Clock>,
        settle_timeout: Duration,
        reports: watch::Sender<Report>,
    ) -> Shell {
        Shell {
            machine,
            subscription,
            receiver,
            clock,
            settle_timeout,
            reports,
            receiving: None,
            handlers: JoinSet::new(),
            numbers: HashMap::new(),
            reins: BTreeMap::new(),
            answers: JoinSet::new(),
            wake: None,
            orphaned: false,
        }
    }

    pub(crate) async fn run(mut self, mut orders: watch::Receiver<Order>) {
        let mut input = Input::Woke;
        loop {
            self.wake = None;
            for command in self.machine.step(self.clock.tick(), input) {
                self.carry_out(command);
            }
            if self.machine.is_stopped() {
                // Before it says so: whoever waits for that may end the process.
                self.close().await;
                return self.report();
            }
            self.report();
            input = self.next_input(&mut orders).await;
        }
    }

    /// Receives nothing more, and leaves no claim behind that can be let go in time: it would count as a try that ended with its
    /// process.
    async fn close(&mut self) {
        self.receiving = None;
        let left: BoxFuture<'_, Result<()>> = Box::pin(async {
            self.handlers.shutdown().await;
            self.receiver.at_rest().await;
            Ok(())
        });
        if let Err(error) = in_time("let go", self.settle_timeout, left).await {
            tracing::debug!(%error, "claims of what was broken off end by themselves");
        }
        let closed = in_time("close", self.settle_timeout, self.subscription.close());
        if let Err(error) = closed.await {
            tracing::debug!(%error, "what came meanwhile comes again when its visibility ends");
        }
    }

    fn report(&self) {
        let report = Report { stats: self.machine.stats(), health: self.machine.health() };
        self.reports.send_if_modified(|before| {
            let changed = *before != report;
            if changed {
                *before = report;
            }
            changed
        });
    }

    async fn next_input(&mut self, orders: &mut watch::Receiver<Order>) -> Input {
        loop {
            let until_wake = self.wake.map(|wake| wake.since(self.clock.tick()));
            tokio::select! {
                changed = orders.changed(), if !self.orphaned => {
                    self.orphaned = changed.is_err();
                    let order = if self.orphaned { Order::Abort } else { *orders.borrow() };
                    match order {
                        Order::Run => {}
                        Order::Drain { within } => {
                            let deadline = self.clock.tick() + within;
                            return Input::Drain { deadline };
                        }
                        Order::Abort => return Input::Abort,
                    }
                }
                received = answered(&mut self.receiving) => {
                    self.receiving = None;
                    return match received {
                        Ok(deliveries) => Input::Received(deliveries),
                        Err(error) => {
                            tracing::warn!(%error, "cannot receive; will ask again");
                            Input::ReceiveFailed(error)
                        }
                    };
                }
                Some(ended) = self.handlers.join_next_with_id() => {
                    if let Some(input) = self.handler_ended(ended) {
                        return input;
                    }
                }
                Some(answer) = self.answers.join_next() => {
                    if let Ok(input) = answer {
                        return input;
                    }
                }
                () = asleep(until_wake) => return Input::Woke,
            }
        }
    }

    fn handler_ended(&mut self, ended: Result<(Id, Result<Verdict>), JoinError>) -> Option<Input> {
        let (id, answer) = match ended {
            Ok((id, Ok(verdict))) => (id, Answer::Verdict(verdict)),
            Ok((id, Err(error))) => {
                match blame(&error) {
                    Blame::Turn => tracing::info!(%error, "others are in the way; it comes again"),
                    Blame::Store | Blame::Event => {
                        tracing::warn!(%error, "the inbox did not answer");
                    }
                }
                (id, Answer::Failed(error))
            }
            Err(error) => (error.id(), Answer::Panicked(panic_text(error))),
        };
        // A handler that was dropped has no number any more, and nobody waits for it.
        let no = self.numbers.remove(&id)?;
        self.reins.remove(&no);
        Some(Input::Answered(no, answer))
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Receive { max } => {
                let subscription = Arc::clone(&self.subscription);
                self.receiving =
                    Some(Box::pin(
                        async move { caught("receive", subscription.receive(max)).await },
                    ));
            }
            Command::StopReceiving => self.receiving = None,
            Command::Dispatch { no, delivery } => self.dispatch(no, delivery),
            Command::Cancel { no, overtime } => {
                if let Some((_, _, signal)) = self.reins.get(&no) {
                    if overtime { signal.give_for_overtime() } else { signal.give() }
                }
            }
            Command::Kill { no } => {
                if let Some((id, handler, _)) = self.reins.remove(&no) {
                    self.numbers.remove(&id);
                    handler.abort();
                }
            }
            Command::WaitUntil(wake) => self.wake = Some(wake),
            told => self.tell_broker(told),
        }
    }

    fn dispatch(&mut self, no: DeliveryNo, delivery: Arc<Delivery>) {
        let (receiver, signal) = (Arc::clone(&self.receiver), Signal::new());
        let handler = within(signal.listener(), async move {
            match &delivery.event {
                Ok(event) => {
                    let answer = receiver.receive(event, &delivery).await;
                    if matches!(answer, Ok(Verdict::Alone)) {
                        warn_of(event, &delivery);
                    }
                    answer
                }
                Err(fault) => Ok(Verdict::Reject(fault.clone())),
            }
        });
        let handler = self.handlers.spawn(handler);
        self.numbers.insert(handler.id(), no);
        self.reins.insert(no, (handler.id(), handler, signal));
    }

    /// Settles or extends, within the time an answer may take.
    fn tell_broker(&mut self, command: Command) {
        let (subscription, limit) = (Arc::clone(&self.subscription), self.settle_timeout);
        let receiver = Arc::clone(&self.receiver);
        self.answers.spawn(async move {
            match command {
                Command::Ack { no, delivery } => {
                    let call = subscription.ack(&delivery);
                    Input::Settled(no, in_time("ack", limit, call).await)
                }
                Command::Nack { no, delivery, delay, counted } => {
                    let call = subscription.nack(&delivery, delay, counted);
                    Input::Settled(no, in_time("nack", limit, call).await)
                }
                Command::Reject { no, delivery, fault } => {
                    let call = subscription.reject(&delivery, &fault);
                    let settled = in_time("reject", limit, call).await;
                    let (topic, place) = (&delivery.topic, delivery.place());
                    let event = delivery.event.as_ref().ok();
                    match &settled {
                        Ok(()) => tracing::warn!(
                            event = event.map(|event| tracing::field::display(event.id)),
                            key = event.map(|event| event.key()), %topic, place, %fault, "dead letter"
                        ),
                        Err(error) => tracing::error!(
                            %topic, place, %fault, %error,
                            "no dead letter could be made of it: it comes again, and its key waits"
                        ),
                    }
                    if settled.is_ok() {
                        let told = in_time("forget tries", limit, receiver.buried(&delivery)).await;
                        if let Err(error) = told {
                            tracing::debug!(%error, "sent again, it still has its tries");
                        }
                    }
                    Input::Settled(no, settled)
                }
                Command::Extend { no, delivery, by } => {
                    let call = subscription.extend(&delivery, by);
                    Input::Extended(no, in_time("extend", limit, call).await)
                }
                _ => Input::Woke,
            }
        });
    }
}

/// The answer to the question that is under way; never, if there is none.
async fn answered(receiving: &mut Option<Received>) -> Result<Vec<Delivery>> {
    match receiving {
        Some(receiving) => receiving.await,
        None => std::future::pending().await,
    }
}

async fn asleep(span: Option<Duration>) {
    match span {
        // waits: until the machine asks to be woken
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

async fn in_time(
    operation: &'static str,
    limit: Duration,
    call: BoxFuture<'_, Result<()>>,
) -> Result<()> {
    match tokio::time::timeout(limit, caught(operation, call)).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Timeout, operation)
            .message(format!("the broker did not answer within {limit:?}"))),
    }
}

/// An adapter's answer; its panic is an error.
async fn caught<T>(operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(Error::new(ErrorKind::Unavailable, operation)
            .message(format!("the adapter panicked: {}", text_of(&*panic)))),
    }
}

/// What a panicking handler said.
fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "dropped".to_owned();
    };
    text_of(&*panic)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a text".to_owned())
}

/// Who looks for why nothing begins finds it here.
fn warn_of(event: &Event, delivery: &Delivery) {
    tracing::warn!(
        event = %event.id, source = %event.source, topic = %delivery.topic,
        "nothing else begins until what is in work has ended, and then this event, alone: it was begun many times and never \
         done, so it may stop this process; past its last try it becomes a dead letter"
    );
}
