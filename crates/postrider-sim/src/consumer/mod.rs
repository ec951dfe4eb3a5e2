//! Consumers: the real inbox engine on a broker whose network misbehaves, with handlers whose effects
//! are in the database and handlers whose effects are outside, and the record of what they did.
//!
//! Everything a consumer needs is in its [`Setup`], so one that was killed, at whatever await point,
//! is followed by another one with the same arguments and a process of its own. What it keeps is
//! INV-4: the effect of an event and a handler happens at most once; a claim has one owner at a time;
//! nothing is recorded by who lost it. [`verdict`] says what must be so at last.

mod engine;
mod ledger;
mod mood;
mod outside;
mod rope;
mod service;
mod shop;
mod transactional;
pub mod verdict;
mod watched;
pub mod wire;

#[cfg(test)]
mod checks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::Receiver;
use postrider_core::{Clock, HandlerName, Result, RetryPolicy, Subscription};
use postrider_inbox::{ConsumerOptions, Machine};
use postrider_testkit::memory::MemoryStore;
use serde::{Deserialize, Serialize};

pub use shop::Shop;
pub use transactional::DERIVED;

use crate::clock::ProcessClock;
use crate::dice::Dice;
use crate::exec::{Kernel, ProcessNo};
use crate::mailbox::Mailbox;
use crate::weather::Weather;
use engine::{Engine, Heard};
use mood::Moods;
use outside::{Outside, Tools};
use service::Service;
use transactional::Transactional;

/// How long a claim of a leased handler lasts.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long the broker hides a message.
pub const VISIBILITY: Duration = Duration::from_secs(15);

/// Where the effects of a consumer's handler are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// In the database, with the marker in the same transaction.
    Transactional,
    /// Outside, under a claim, in steps.
    Leased,
}

/// Everything a consumer needs.
pub struct Setup {
    /// Time and tasks.
    pub kernel: Arc<Kernel>,
    /// The process it runs in: what dies and is paused together.
    pub process: ProcessNo,
    /// The process whose tasks carry what is on its way to the service outside.
    pub network: ProcessNo,
    /// Its machine's clocks.
    pub clock: ProcessClock,
    /// Its chance.
    pub dice: Dice,
    /// Its name in the story.
    pub name: String,
    /// The handler's name: what its group at the broker is called as well.
    pub handler: HandlerName,
    /// Where the handler's effects are.
    pub kind: Kind,
    /// Its connection to the broker.
    pub subscription: Arc<dyn Subscription>,
    /// Its handle of the store, on its line: the inbox, the business, and the outbox.
    pub store: MemoryStore,
    /// What goes wrong.
    pub weather: Arc<Weather>,
    /// The record.
    pub shop: Arc<Shop>,
}

/// Who did something.
#[derive(Clone, Debug)]
struct Worker {
    process: ProcessNo,
    name: String,
}

/// The way to a running consumer. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Consumer {
    process: ProcessNo,
    heard: Mailbox<Heard>,
}

impl Consumer {
    /// Starts a consumer as tasks of its process.
    ///
    /// # Errors
    /// If the engine refuses its options.
    pub fn start(setup: Setup) -> Result<Consumer> {
        let Setup { kernel, process, clock, mut dice, subscription, shop, .. } = setup;
        let worker = Worker { process, name: setup.name };
        let (clock_itself, weather) = (clock.clone(), Arc::clone(&setup.weather));
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let (options, seed) = (options(), dice.bits());
        options.check()?;
        let moods = Moods::new(dice.fork("moods"));
        let receiver: Arc<dyn Receiver> = match setup.kind {
            Kind::Transactional => Arc::new(Transactional {
                name: setup.handler,
                store: setup.store,
                shop: Arc::clone(&shop),
                weather: setup.weather,
                clock: Arc::clone(&clock),
                moods,
            }),
            Kind::Leased => {
                let service = Service {
                    kernel: Arc::clone(&kernel),
                    weather: Arc::clone(&setup.weather),
                    shop: Arc::clone(&shop),
                    network: setup.network,
                    dice: Mutex::new(dice.fork("service")),
                };
                let tools = Tools {
                    worker: worker.clone(),
                    shop: Arc::clone(&shop),
                    weather: setup.weather,
                    clock: Arc::clone(&clock),
                    moods,
                    service,
                };
                Arc::new(Outside::receiver(tools, setup.handler, Arc::new(setup.store))?)
            }
        };
        if dice.chance(5_000) {
            kernel.spawn(
                process,
                restless(Arc::clone(&kernel), clock_itself, weather, dice.fork("clock")),
            );
        }
        let heard = Mailbox::default();
        let engine = Engine {
            kernel: Arc::clone(&kernel),
            worker,
            clock,
            machine: Machine::new(options, subscription.capabilities(), seed)
                .of_receiver_that_counts(receiver.counts_tries()),
            subscription,
            receiver,
            options,
            shop,
            heard: heard.clone(),
            receiving: None,
            reins: BTreeMap::new(),
            wake: None,
            timer: None,
        };
        kernel.spawn(process, engine.run());
        Ok(Consumer { process, heard })
    }

    /// The process it runs in.
    pub fn process(&self) -> ProcessNo {
        self.process
    }

    /// Lets it finish what is in work within a time of its own clock, and then end.
    pub fn drain(&self, within: Duration) {
        self.heard.put(Heard::Drain(within));
    }

    /// Tells its handlers to stop now, and lets it end.
    pub fn abort(&self) {
        self.heard.put(Heard::Abort);
    }
}

/// A machine whose wall clock is set again and again, forward and back, as long as there are faults.
async fn restless(kernel: Arc<Kernel>, clock: ProcessClock, weather: Arc<Weather>, mut dice: Dice) {
    while !weather.is_calm() {
        kernel.sleep(Duration::from_millis(dice.between(500, 10_000))).await;
        let micros = i64::try_from(dice.below(120_000_000)).unwrap_or_default();
        clock.jump(micros - 60_000_000);
    }
}

/// Limits so small that runs meet them.
fn options() -> ConsumerOptions {
    ConsumerOptions {
        in_flight_max: 4,
        prefetch_max: 4,
        receive_max: 4,
        lane_max: 1,
        away_max: 16,
        retry: RetryPolicy {
            attempts_max: 6,
            delay_min: Duration::from_millis(200),
            delay_max: Duration::from_secs(8),
            factor: 2.0,
        },
        deliveries_max: 6,
        handler_time_max: Duration::from_secs(45),
        cancel_grace: Duration::from_secs(2),
        pause_max: Duration::from_secs(5),
        ..ConsumerOptions::default()
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { name, handler, kind, process, .. } = self;
        f.debug_struct("Setup")
            .field("name", name)
            .field("handler", handler)
            .field("kind", kind)
            .field("process", process)
            .finish_non_exhaustive()
    }
}
