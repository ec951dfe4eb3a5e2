//! The relay as an application embeds it: build, start, drain, abort.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::waiting::Counts;
use postrider_core::{
    Archive, Broker, Clock, Destination, DestinationId, Error, ErrorKind, OutboxSource, RelayId,
    Result,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::SystemClock;
use crate::again::own_seed;
use crate::drain::{Ending, Target};
use crate::health::Health;
use crate::machine::Machine;
use crate::observe::Observer;
use crate::perform::Performer;
use crate::presence::Alive;
use crate::run::Shell;
use crate::settings::Settings;

/// A relay that has not started yet.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use postrider_core::{Broker, Destination, OutboxSource};
/// # use postrider_relay::Relay;
/// # async fn example(
/// #     source: Arc<dyn OutboxSource>, definition: Destination, broker: Arc<dyn Broker>,
/// # ) -> postrider_core::Result<()> {
/// let relay = Relay::builder(source).destination(definition, broker).start().await?;
/// // … until the process is told to stop:
/// relay.drain();
/// let report = relay.stopped().await;
/// println!("{:?}", report.ending);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Relay;

impl Relay {
    /// Begins to build a relay over a store.
    pub fn builder(source: Arc<dyn OutboxSource>) -> RelayBuilder {
        RelayBuilder {
            source,
            destinations: Vec::new(),
            settings: Settings::default(),
            target: Target::Forever,
            clock: Arc::new(SystemClock),
            observer: None,
            archive: None,
            presence: true,
        }
    }
}

/// Builds a relay.
pub struct RelayBuilder {
    source: Arc<dyn OutboxSource>,
    destinations: Vec<(Destination, Arc<dyn Broker>)>,
    settings: Settings,
    target: Target,
    clock: Arc<dyn Clock>,
    observer: Option<Arc<dyn Observer>>,
    archive: Option<Arc<dyn Archive>>,
    presence: bool,
}

impl RelayBuilder {
    /// Adds a destination that this relay can serve, and its broker.
    #[must_use]
    pub fn destination(mut self, definition: Destination, broker: Arc<dyn Broker>) -> RelayBuilder {
        self.destinations.push((definition, broker));
        self
    }

    /// Sets times and bounds.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> RelayBuilder {
        self.settings = settings;
        self
    }

    /// Sets what the relay is started for; to run for ever is the default.
    #[must_use]
    pub fn target(mut self, target: Target) -> RelayBuilder {
        self.target = target;
        self
    }

    /// Sets the clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> RelayBuilder {
        self.clock = clock;
        self
    }

    /// Sets who is told of each [`Point`](crate::Point) and [`Notice`](crate::Notice). Several are one
    /// [`Observers`](crate::Observers).
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> RelayBuilder {
        self.observer = Some(observer);
        self
    }

    /// Sets where events go before [`Settings::retention`] deletes them. Without an archive they are
    /// deleted alone.
    #[must_use]
    pub fn archive(mut self, archive: Arc<dyn Archive>) -> RelayBuilder {
        self.archive = Some(archive);
        self
    }

    /// Whether to leave proof of life on this machine, so that a restart after a crash need not wait
    /// for the lease. On by default.
    #[must_use]
    pub fn presence(mut self, presence: bool) -> RelayBuilder {
        self.presence = presence;
        self
    }

    /// Checks the settings, opens the store, registers the destinations if it has none, and starts.
    ///
    /// In a store that has some, its definitions count. A destination that is defined otherwise here, or only here, gets
    /// nothing until `postrider destinations apply` or [`OutboxSource::apply`] has changed the store; the log warns of it, and
    /// [`Health::blockers`] names it where events wait.
    ///
    /// # Errors
    /// `Config` for settings that contradict each other, for no destination or two of one name, and for routes that ask
    /// for what their broker cannot write; whatever the store says when it is opened.
    pub async fn start(self) -> Result<RelayHandle> {
        self.settings.check()?;
        let definitions: Vec<Destination> =
            self.destinations.iter().map(|(definition, _)| definition.clone()).collect();
        if let Some(definition) = definitions.iter().find(|definition| definition.is_unrouted()) {
            return Err(refuse(format!("the name `{}` is built in", definition.id)));
        }
        // A fresh store would have no destinations from then on, and register none.
        if definitions.is_empty() {
            return Err(refuse("it has no destination, so nobody would get the events".to_owned()));
        }
        for (definition, broker) in &self.destinations {
            if definitions.iter().filter(|other| other.id == definition.id).count() > 1 {
                return Err(refuse(format!("two destinations have the name `{}`", definition.id)));
            }
            definition.check(&broker.capabilities())?;
        }
        let facts = self.source.open().await?;
        self.source.register(&definitions).await?;
        let owner = RelayId::mint();
        let settings = Settings { seed: own_seed(self.settings.seed, &owner), ..self.settings };
        let alive = if self.presence { Alive::announce(&owner) } else { None };
        let presence = alive.as_ref().map(|alive| alive.presence().clone());
        let local = self
            .destinations
            .iter()
            .map(|(definition, broker)| (definition.clone(), broker.capabilities()))
            .collect();
        let brokers: BTreeMap<DestinationId, Arc<dyn Broker>> = self
            .destinations
            .into_iter()
            .map(|(definition, broker)| (definition.id, broker))
            .collect();
        let machine =
            Machine::new(owner.clone(), facts.partitions, presence, local, settings, self.target);
        let (stop, stopping) = watch::channel(Stop::No);
        let (health_sender, health) = watch::channel(machine.health());
        let nudge = Arc::new(Notify::new());
        let performer = Arc::new(Performer {
            clock: self.clock,
            source: self.source,
            archive: self.archive,
            brokers,
            observer: self.observer,
            store_deadline: self.settings.store_deadline,
            lease: self.settings.lease,
        });
        let shell = Shell {
            machine,
            performer,
            owner: owner.clone(),
            stopping,
            nudged: Arc::clone(&nudge),
            health: health_sender,
            alive,
        };
        let task = tokio::spawn(shell.run());
        Ok(RelayHandle { owner, stop, nudge, health, task })
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::Config, "start relay").message(message)
}

/// How far a relay is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    No,
    Drain,
    Abort,
}

/// A running relay. Dropping the handle drains it.
#[derive(Debug)]
pub struct RelayHandle {
    owner: RelayId,
    stop: watch::Sender<Stop>,
    nudge: Arc<Notify>,
    health: watch::Receiver<Health>,
    task: JoinHandle<Report>,
}

/// How a relay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Why; `None` if it was aborted.
    pub ending: Option<Ending>,
    /// What it was like at the end.
    pub health: Health,
    /// What waits in each destination, where the store could still be asked.
    pub waiting: BTreeMap<DestinationId, Counts>,
}

impl RelayHandle {
    /// The name under which this relay takes leases.
    pub fn owner(&self) -> &RelayId {
        &self.owner
    }

    /// Stops gracefully: nothing new is sent; what is under way is answered and saved; the leases
    /// are let go. Bounded by [`Settings::drain`].
    pub fn drain(&self) {
        self.stop.send_modify(|stop| *stop = (*stop).max(Stop::Drain));
    }

    /// Stops at once. What was sent and not saved is sent again by the next owner.
    pub fn abort(&self) {
        self.stop.send_modify(|stop| *stop = Stop::Abort);
    }

    /// Says that a transaction with events is about to commit: poll fast for a moment.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// The relay's health, as of the last moment or so.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Waits until the relay has stopped.
    ///
    /// # Panics
    /// If the relay's task panicked, which is a defect.
    pub async fn stopped(self) -> Report {
        let RelayHandle { stop, task, .. } = self;
        let report = task.await.expect("the relay's task does not panic");
        drop(stop);
        report
    }
}
