//! A consumer: a subscription, a receiver, and the engine between them.
//!
//! Invariant: what it holds when it stops was given back, or comes again by itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Receiver;
use postrider_core::{Clock, Result, Subscription};
use tokio::sync::watch;

use crate::clock::BootClock;
use crate::machine::Machine;
use crate::options::{ConsumerOptions, config};
use crate::shell::{Order, Report, Shell};
use crate::stats::{Health, Stats};

/// The way to a running consumer.
///
/// ```no_run
/// # async fn example(
/// #     subscription: std::sync::Arc<dyn postrider_core::Subscription>,
/// #     receiver: std::sync::Arc<dyn postrider_core::inbox::Receiver>,
/// # ) -> postrider_core::Result<()> {
/// use std::time::Duration;
/// use postrider_inbox::Consumer;
///
/// let consumer = Consumer::builder(subscription).receiver(receiver).start()?;
/// consumer.drain(Duration::from_secs(10));
/// consumer.stopped().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Consumer;

impl Consumer {
    /// A consumer of a subscription.
    pub fn builder(subscription: Arc<dyn Subscription>) -> ConsumerBuilder {
        ConsumerBuilder {
            subscription,
            receiver: None,
            options: ConsumerOptions::default(),
            clock: Arc::new(BootClock),
            seed: None,
        }
    }
}

/// A consumer that was not started yet.
#[must_use = "a consumer that is not started receives nothing"]
pub struct ConsumerBuilder {
    subscription: Arc<dyn Subscription>,
    receiver: Option<Arc<dyn Receiver>>,
    options: ConsumerOptions,
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
}

impl ConsumerBuilder {
    /// Sets who acts on the events. There is no default.
    pub fn receiver(mut self, receiver: Arc<dyn Receiver>) -> ConsumerBuilder {
        self.receiver = Some(receiver);
        self
    }

    /// Sets the limits.
    pub fn options(mut self, options: ConsumerOptions) -> ConsumerBuilder {
        self.options = options;
        self
    }

    /// Sets the clock; [`BootClock`] is the default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> ConsumerBuilder {
        self.clock = clock;
        self
    }

    /// Sets what spreads the delays; by default, the clock.
    pub fn seed(mut self, seed: u64) -> ConsumerBuilder {
        self.seed = Some(seed);
        self
    }

    /// Starts it as a task of the current Tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](postrider_core::ErrorKind::Config) if there is no receiver, or a limit
    /// leaves no room to work.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start(self) -> Result<ConsumerHandle> {
        self.options.check()?;
        let Some(receiver) = self.receiver else {
            return Err(config("there is no receiver, so nobody would act on the events"));
        };
        let capabilities = self.subscription.capabilities();
        if capabilities.visibility.is_zero() {
            return Err(config(
                "the subscription's visibility timeout is zero, so every delivery would come again",
            ));
        }
        let seed = self.seed.unwrap_or_else(|| self.clock.tick().0);
        let machine = Machine::new(self.options, capabilities, seed)
            .of_receiver_that_counts(receiver.counts_tries());
        let (orders, obeyed) = watch::channel(Order::Run);
        let (reported, reports) = watch::channel(Report::default());
        let shell = Shell::new(
            machine,
            self.subscription,
            receiver,
            self.clock,
            self.options.settle_timeout,
            reported,
        );
        tokio::spawn(shell.run(obeyed));
        Ok(ConsumerHandle { orders, reports })
    }
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A running consumer. Dropping it aborts it.
#[derive(Debug)]
#[must_use = "a consumer stops when its handle is dropped"]
pub struct ConsumerHandle {
    orders: watch::Sender<Order>,
    reports: watch::Receiver<Report>,
}

impl ConsumerHandle {
    /// Receives nothing more, gives back what waits for a handler, and lets the handlers finish
    /// within the given time; those that do not are told to stop, and dropped after
    /// [`ConsumerOptions::cancel_grace`]. Returns at once; see [`ConsumerHandle::stopped`].
    pub fn drain(&self, within: Duration) {
        self.orders.send_if_modified(|order| {
            let drains = *order != Order::Abort;
            if drains {
                *order = Order::Drain { within };
            }
            drains
        });
    }

    /// Tells the handlers to stop now, and gives everything back. Returns at once; see
    /// [`ConsumerHandle::stopped`].
    pub fn abort(&self) {
        self.orders.send_replace(Order::Abort);
    }

    /// Returns when it holds nothing and does nothing more.
    pub async fn stopped(&self) {
        let mut reports = self.reports.clone();
        // An error says that the shell is gone, and with it everything it held.
        let _gone = reports.wait_for(|report| report.health == Health::Stopped).await;
    }

    /// What it did, and what it holds.
    pub fn stats(&self) -> Stats {
        self.reports.borrow().stats
    }

    /// Whether it makes progress, and if not, what holds it.
    pub fn health(&self) -> Health {
        self.reports.borrow().health.clone()
    }

    /// Returns when the statistics and the health are as wished, and the statistics then; at once,
    /// if they are so already, or if it stopped.
    pub async fn reached(&self, wish: impl Fn(&Stats, &Health) -> bool) -> Stats {
        let mut reports = self.reports.clone();
        let reached = |report: &Report| {
            report.health == Health::Stopped || wish(&report.stats, &report.health)
        };
        match reports.wait_for(reached).await {
            Ok(report) => report.stats,
            Err(_) => self.stats(),
        }
    }
}
