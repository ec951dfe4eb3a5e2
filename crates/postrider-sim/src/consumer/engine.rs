//! The loop around the real machine: it carries out the commands as tasks of the consumer's process,
//! on simulated time, and decides nothing.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Clock, Delivery, Error, ErrorKind, Result, Subscription, Tick, clock,
};
use postrider_inbox::command::{Answer, Command, DeliveryNo, Input};
use postrider_inbox::signal::{self, Signal};
use postrider_inbox::{ConsumerOptions, Machine};

use super::Worker;
use super::rope::Rope;
use super::shop::Shop;
use crate::exec::Kernel;
use crate::mailbox::Mailbox;

/// What the loop hears.
#[derive(Debug)]
pub(super) enum Heard {
    /// Something for the machine.
    Input(Input),
    /// Whoever runs the consumer wants it to drain.
    Drain(Duration),
    /// The same, at once.
    Abort,
}

/// A consumer's main loop.
pub(super) struct Engine {
    pub(super) kernel: Arc<Kernel>,
    pub(super) worker: Worker,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) subscription: Arc<dyn Subscription>,
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) options: ConsumerOptions,
    pub(super) shop: Arc<Shop>,
    pub(super) heard: Mailbox<Heard>,
    pub(super) machine: Machine,
    pub(super) receiving: Option<Rope>,
    /// How to stop the handler of a delivery.
    pub(super) reins: BTreeMap<DeliveryNo, (Rope, Signal, Arc<Delivery>)>,
    /// When the machine wants to be woken, and the timer that is set: at that time or before.
    pub(super) wake: Option<Tick>,
    pub(super) timer: Option<(Tick, BoxFuture<'static, ()>)>,
}

impl Engine {
    /// Runs until it has drained, or its process dies.
    pub(super) async fn run(mut self) {
        let mut input = Input::Woke;
        loop {
            self.wake = None;
            for command in self.machine.step(self.clock.tick(), input) {
                self.carry_out(command);
            }
            if self.machine.is_stopped() {
                return;
            }
            input = self.next_input().await;
        }
    }

    async fn next_input(&mut self) -> Input {
        let heard = poll_fn(|context| {
            if let Poll::Ready(heard) = self.heard.poll(context) {
                return Poll::Ready(heard);
            }
            while let Some(wake) = self.wake {
                // A timer that rings too early is cheaper than one for every step.
                if self.timer.as_ref().is_none_or(|(at, _)| *at > wake) {
                    let span = wake.since(self.clock.tick());
                    self.timer = Some((wake, self.clock.sleep(span)));
                }
                let Some((_, timer)) = &mut self.timer else { break };
                if timer.as_mut().poll(context).is_pending() {
                    break;
                }
                self.timer = None;
                if self.clock.tick() >= wake {
                    return Poll::Ready(Heard::Input(Input::Woke));
                }
            }
            Poll::Pending
        })
        .await;
        match heard {
            Heard::Input(input) => {
                if let Input::Answered(no, _) = &input {
                    self.reins.remove(no);
                }
                input
            }
            Heard::Drain(within) => Input::Drain { deadline: self.clock.tick() + within },
            Heard::Abort => Input::Abort,
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Receive { max } => self.receive(max),
            Command::StopReceiving => {
                if let Some(receiving) = self.receiving.take() {
                    receiving.cut();
                }
            }
            Command::Dispatch { no, delivery } => self.dispatch(no, delivery),
            Command::Cancel { no, overtime } => {
                if let Some((_, stop, _)) = self.reins.get(&no) {
                    if overtime { stop.give_for_overtime() } else { stop.give() }
                }
            }
            Command::Kill { no } => {
                if let Some((handler, _, delivery)) = self.reins.remove(&no) {
                    handler.cut();
                    // It may have worked for too long, and then the try counts.
                    self.shop.killed(&self.worker, self.receiver.handler(), &delivery);
                }
            }
            Command::WaitUntil(wake) => self.wake = Some(wake),
            told => self.tell_broker(told),
        }
    }

    fn receive(&mut self, max: usize) {
        let (subscription, heard) = (Arc::clone(&self.subscription), self.heard.clone());
        self.receiving = Some(Rope::spawn(&self.kernel, self.worker.process, async move {
            heard.put(Heard::Input(match subscription.receive(max).await {
                Ok(deliveries) => Input::Received(deliveries),
                Err(error) => Input::ReceiveFailed(error),
            }));
        }));
    }

    fn dispatch(&mut self, no: DeliveryNo, delivery: Arc<Delivery>) {
        let (stop, heard, held) = (Signal::new(), self.heard.clone(), Arc::clone(&delivery));
        let (shop, receiver) = (Arc::clone(&self.shop), Arc::clone(&self.receiver));
        let in_work = shop.begin(&self.worker, &delivery);
        let handler = signal::within(stop.listener(), async move {
            let answer = unless_it_panics(answer(&*receiver, &delivery)).await;
            shop.answered(receiver.handler(), &delivery, &answer);
            drop(in_work);
            heard.put(Heard::Input(Input::Answered(no, answer)));
        });
        let rope = Rope::spawn(&self.kernel, self.worker.process, handler);
        self.reins.insert(no, (rope, stop, held));
    }

    /// Settles or extends, within the time an answer may take.
    fn tell_broker(&self, command: Command) {
        let (subscription, heard) = (Arc::clone(&self.subscription), self.heard.clone());
        let (clock, limit) = (Arc::clone(&self.clock), self.options.settle_timeout);
        self.kernel.spawn(self.worker.process, async move {
            let (no, extends, call) = match &command {
                Command::Ack { no, delivery } => (*no, false, subscription.ack(delivery)),
                Command::Nack { no, delivery, delay, counted } => {
                    (*no, false, subscription.nack(delivery, *delay, *counted))
                }
                Command::Reject { no, delivery, fault } => {
                    (*no, false, subscription.reject(delivery, fault))
                }
                Command::Extend { no, delivery, by } => {
                    (*no, true, subscription.extend(delivery, *by))
                }
                _ => return,
            };
            let result = clock::within(&*clock, limit, call).await.unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Timeout, "settle").message("the broker did not answer"))
            });
            heard.put(Heard::Input(if extends {
                Input::Extended(no, result)
            } else {
                Input::Settled(no, result)
            }));
        });
    }
}

async fn answer(receiver: &dyn Receiver, delivery: &Delivery) -> Result<Verdict> {
    match &delivery.event {
        Ok(event) => receiver.receive(event, delivery).await,
        Err(fault) => Ok(Verdict::Reject(fault.clone())),
    }
}

/// A panic ends the handler, not the world.
async fn unless_it_panics(handler: impl Future<Output = Result<Verdict>>) -> Answer {
    let mut handler = std::pin::pin!(handler);
    poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(verdict))) => Poll::Ready(Answer::Verdict(verdict)),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Answer::Failed(error)),
            // Only what a handler throws on purpose; a defect is nobody's to catch.
            Err(panic) => match panic.downcast::<Thrown>() {
                Ok(thrown) => Poll::Ready(Answer::Panicked(thrown.0.to_owned())),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    })
    .await
}

/// What a simulated handler panics with.
pub(super) struct Thrown(pub(super) &'static str);

/// Panics as a handler does, without a word on the terminal.
pub(super) fn throw(text: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(Thrown(text)))
}
