//! A relay that a stream or a schedule invokes: the ordinary engine, in passing.
//!
//! Invariants: an event is published under its partition's lease (R044), and what a living relay holds is left to it;
//! what the answer does not name as failed is settled or left; and nothing is held from one invocation to the
//! next but connections and what was seen of others' hearts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Broker, Destination, Error, ErrorKind, OutboxSource, PartitionId, Result};
use postrider_dynamodb::{Connection, DynamoStore, Invocation, Options, Passing};
use postrider_relay::{Ending, Relay, RelayHandle, Report, Settings, Target};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::answer::{Failures, Published, Swept};

/// What is kept of an invocation's time for letting the leases go, and for the answer.
pub const RESERVE: Duration = Duration::from_secs(4);
/// The least that is worth beginning with, beyond the reserve.
const WORK_MIN: Duration = Duration::from_secs(1);
/// How long what is under way may take once the time is up.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a broker that takes nothing is tried. Then the service waits, which costs nothing.
const STALL: Duration = Duration::from_secs(10);
/// How long what was told to stop at once has for it, beyond the time: out of what is spared for the answer.
const LAST: Duration = Duration::from_millis(100);
/// How long a lease lasts: what an invocation that was killed delays its partitions by.
const LEASE: Duration = Duration::from_secs(9);

/// Publishes in a function. Made once for an execution environment, and used for one invocation at a time.
pub struct Publisher {
    store: DynamoStore,
    connection: Connection,
    destination: Destination,
    broker: Arc<dyn Broker>,
    settings: Settings,
    opened: OnceCell<()>,
}

impl Publisher {
    /// A publisher of a store's events to a destination.
    ///
    /// # Errors
    /// `Config` if the destination asks for what its broker cannot write.
    pub fn new(
        connection: Connection,
        destination: Destination,
        broker: Arc<dyn Broker>,
    ) -> Result<Publisher> {
        destination.check(&broker.capabilities())?;
        // The service reads the stream, and the invocation tells of it.
        let mut options = Options::default();
        options.stream = false;
        let store = DynamoStore::with(connection.clone(), options);
        let settings = Settings { drain: DRAIN, stall: STALL, ..Settings::with_lease(LEASE) };
        Ok(Publisher { store, connection, destination, broker, settings, opened: OnceCell::new() })
    }

    /// The same on a store with options of its own, such as one that derives events from business items. Its stream
    /// is to be off.
    #[must_use]
    pub fn on(mut self, store: DynamoStore) -> Publisher {
        self.store = store;
        self
    }

    /// The same with other times and bounds.
    ///
    /// # Errors
    /// `Config` if they contradict each other.
    pub fn with_settings(mut self, settings: Settings) -> Result<Publisher> {
        settings.check()?;
        self.settings = settings;
        Ok(self)
    }

    /// Publishes what the records of an invocation tell of, and what else is pending in their partitions, each key in
    /// its order. `remaining` is the time that the function has left.
    ///
    /// The answer names the first record that is not settled. A record whose partition a relay holds is that relay's,
    /// and counts as settled: it is pending in the index until then, whatever becomes of the relay.
    ///
    /// # Errors
    /// What is no batch of a stream, too little time, or a store that does not answer. Everything comes again then.
    pub async fn publish(&self, json: &[u8], remaining: Duration) -> Result<Published> {
        let clock = Time::begin(remaining)?;
        let invocation = Invocation::parse(json, self.connection.names())?;
        self.open().await?;
        let passing = Arc::new(Passing::of(&self.store, &invocation).await?);
        let mut answer = Published {
            left: numbers(passing.left()),
            others: invocation.others(),
            ..Published::default()
        };
        if !passing.left().is_empty() {
            tracing::info!(partitions = ?answer.left, "left to the relay that holds them");
        }
        if passing.wanted().is_empty() {
            return Ok(answer);
        }
        let report = self.run(&passing, &clock).await?;
        answer.delivered = report.health.delivered;
        if report.ending != Some(Ending::Done) {
            let asked = timeout(clock.left(), passing.first_pending(&invocation)).await;
            let first = match asked {
                Ok(Ok(first)) => first,
                // Nobody knows, so all of it comes again: what was published is known for it then.
                Ok(Err(_)) | Err(_) => invocation.records().first(),
            };
            answer.failures =
                Failures(first.map(|r| r.sequence_number().to_owned()).into_iter().collect());
            tracing::warn!(
                ending = ?report.ending, blockers = ?report.health.blockers, first = ?answer.failures.0,
                "not everything was settled; the service sends it again"
            );
        }
        Ok(answer)
    }

    /// Publishes what is pending anywhere, as far as no living relay holds it: `postrider relay --once`, for a
    /// schedule. `remaining` is the time that the function has left.
    ///
    /// # Errors
    /// Too little time, or a store that does not answer. Nothing is lost then.
    pub async fn sweep(&self, remaining: Duration) -> Result<Swept> {
        let clock = Time::begin(remaining)?;
        self.open().await?;
        let passing = Arc::new(Passing::everywhere(&self.store, clock.work() / 2).await?);
        let mut swept = Swept { left: numbers(passing.left()), done: true, ..Swept::default() };
        if passing.wanted().is_empty() {
            return Ok(swept);
        }
        let report = self.run(&passing, &clock).await?;
        swept.done = report.ending == Some(Ending::Done);
        swept.delivered = report.health.delivered;
        let counts = report.waiting.values();
        swept.waiting = counts.map(|c| c.retrying + c.parked + c.held + c.disabled + c.dead).sum();
        if !swept.done {
            tracing::warn!(
                ending = ?report.ending, blockers = ?report.health.blockers,
                "not everything was settled; the next sweep goes on"
            );
        }
        Ok(swept)
    }

    /// Once for an environment: tables do not change between two invocations.
    async fn open(&self) -> Result<()> {
        self.opened.get_or_try_init(|| async { self.store.open().await.map(drop) }).await.copied()
    }

    /// Runs the engine until everything is settled or the time is up, and lets the leases go.
    async fn run(&self, passing: &Arc<Passing>, clock: &Time) -> Result<Report> {
        let source: Arc<dyn OutboxSource> = Arc::clone(passing) as Arc<dyn OutboxSource>;
        let relay = Relay::builder(source)
            .destination(self.destination.clone(), Arc::clone(&self.broker))
            .settings(self.settings)
            .target(Target::Once)
            // A file of an environment that is gone proves nothing to the next.
            .presence(false)
            .start()
            .await?;
        let owner = relay.owner().clone();
        let report = stopped(relay, clock).await;
        let left = timeout(clock.left(), passing.leave(&owner)).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::debug!(answer = ?left, "the heartbeat stays until its time to live");
        }
        Ok(report)
    }
}

/// Waits for the end, and sees to it that there is one in time.
async fn stopped(relay: RelayHandle, clock: &Time) -> Report {
    if timeout(clock.work(), ended(&relay)).await.is_err() {
        relay.drain();
        if timeout(clock.left(), ended(&relay)).await.is_err() {
            // The leases end by themselves.
            relay.abort();
        }
    }
    let health = relay.health().borrow().clone();
    let aborted = Report { ending: None, health, waiting: BTreeMap::new() };
    // What was told to stop at once is not waited for: it is the service that counts the time.
    let patience = clock.left().max(LAST);
    timeout(patience, relay.stopped()).await.unwrap_or(aborted)
}

/// Returns when a relay says nothing more.
async fn ended(relay: &RelayHandle) {
    let mut health = relay.health();
    while health.changed().await.is_ok() {}
}

/// The time of an invocation.
struct Time {
    end: Instant,
}

impl Time {
    fn begin(remaining: Duration) -> Result<Time> {
        if remaining < RESERVE + WORK_MIN {
            return Err(Error::new(ErrorKind::Timeout, "publish")
                .message(format!(
                    "{remaining:?} is too little: give the function at least {:?}; nothing was published, and it \
                     comes again",
                    RESERVE + WORK_MIN
                )));
        }
        Ok(Time { end: Instant::now() + remaining })
    }

    /// Until nothing more is begun.
    fn work(&self) -> Duration {
        self.left().saturating_sub(RESERVE)
    }

    /// Until the answer has to be there, with a little to spare for it.
    fn left(&self) -> Duration {
        self.end
            .saturating_duration_since(Instant::now())
            .saturating_sub(Duration::from_millis(500))
    }
}

fn numbers<'a>(partitions: impl IntoIterator<Item = &'a PartitionId>) -> Vec<u16> {
    partitions.into_iter().map(|partition| partition.0).collect()
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("connection", &self.connection)
            .field("destination", &self.destination.id)
            .finish_non_exhaustive()
    }
}
