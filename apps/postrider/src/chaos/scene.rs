//! The scene: a folder, a store with Postrider's tables, queues, and the story that is told on it.
//!
//! Invariant: every scene has a folder, tables, and queues of its own, and leaves nothing behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, EventId, Invariant, NewEvent, OutboxSource};
use postrider_history::{History, check};
use postrider_inbox::{Context, Leased, Outcome};
use postrider_local::{LocalBroker, StoredMessage};
use postrider_relay::{Relay, RelayBuilder, RelayHandle, Settings};

use crate::chaos::bank::Bank;
#[cfg(feature = "dynamodb")]
use crate::chaos::dynamo;
use crate::chaos::queue::{Queue, Road};
use crate::chaos::scenario::Scenario;
use crate::chaos::story::Story;
use crate::chaos::theatre;
use crate::database::Database;
use crate::failure::Failure;
use crate::store::Opened;
use crate::target;

/// The type of all events here, which is also their topic.
pub(crate) const TOPIC: &str = "order.paid";

/// The name of the handler that charges, also that of its group.
pub(crate) const HANDLER: &str = "charge";

/// The destination's name.
pub(crate) const DESTINATION: &str = "queue";

/// The lease of the relays: short, as it is what has to run out.
const LEASE: Duration = Duration::from_secs(2);

/// The same by a service that is called: a third of it is what a call may take.
const LEASE_REMOTE: Duration = Duration::from_secs(9);

/// How often a message is given out, where that is of no interest.
pub(crate) const RECEIVES_MAX: u32 = 100;

/// How long something may take that should happen at once: far beyond it, and well below the half
/// minute that a scenario may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// How long a scenario may take, so that one that hangs ends.
const PLAY_MAX: Duration = Duration::from_secs(30);

/// How often something is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One scenario's scene.
pub(crate) struct Scene {
    pub(super) folder: tempfile::TempDir,
    pub(crate) store: Opened,
    /// The schema that goes with the scene.
    pub(super) schema: Option<Database>,
    /// The tables that go with the scene.
    #[cfg(feature = "dynamodb")]
    pub(super) tables: Option<dynamo::Tables>,
    pub(super) road: Road,
    /// The queues that go with the scene.
    pub(super) laid: Vec<Queue>,
    pub(super) guarded: bool,
    pub(crate) story: Story,
}

impl Scene {
    /// From now on the half that should hold is played the wrong way as well: the negative control.
    pub(crate) fn take_the_guard_away(&mut self) {
        self.guarded = false;
    }

    /// Whether the half that should hold is played as it should be.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Plays a scenario, but not for ever.
    ///
    /// # Errors
    /// What kept it from being played; how it came out is in the story.
    pub(crate) async fn play(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        let played = tokio::time::timeout(PLAY_MAX, (scenario.play)(self)).await;
        played.map_err(|_| Failure::plain(format!("not done after {} s", PLAY_MAX.as_secs())))?
    }

    /// Takes everything away and returns the story.
    ///
    /// # Errors
    /// What a server says if something cannot be dropped; it is named then.
    pub(crate) async fn close(self) -> Result<Story, Failure> {
        // Each is tried, whatever came of those before it.
        let mut left = Vec::new();
        for queue in &self.laid {
            left.extend(queue.remove().await.err());
        }
        #[cfg(feature = "dynamodb")]
        if let Some(tables) = self.tables {
            left.extend(tables.remove().await.err());
        }
        let Scene { folder, store, schema, story, .. } = self;
        drop(store);
        drop(folder);
        if let Some(database) = schema {
            left.extend(theatre::drop_schema(&database).await.err());
        }
        left.into_iter().reduce(Failure::and).map_or(Ok(story), Err)
    }

    /// A file of the scene.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A broker in a file of its own.
    ///
    /// # Errors
    /// What the file says.
    pub(crate) fn queue(&self, name: &str) -> Result<LocalBroker, Failure> {
        Ok(LocalBroker::open(self.path(&format!("{name}.db")))?)
    }

    /// A queue of the scene's own, by what it is played, that gives a message out so many times.
    ///
    /// # Errors
    /// What the file or the service says.
    pub(crate) async fn lay(&mut self, name: &str, receives_max: u32) -> Result<Queue, Failure> {
        let path = self.path(&format!("{name}.db"));
        self.laid_out(self.road.lay(path, false, receives_max)?, receives_max).await
    }

    /// The same, with each key in its order to the consumer.
    ///
    /// # Errors
    /// What the file or the service says.
    pub(crate) async fn lay_in_order(&mut self, name: &str) -> Result<Queue, Failure> {
        let path = self.path(&format!("{name}.db"));
        self.laid_out(self.road.lay(path, true, RECEIVES_MAX)?, RECEIVES_MAX).await
    }

    /// Remembers a queue, and makes it after that: a scene that is interrupted meanwhile takes it away.
    async fn laid_out(&mut self, queue: Queue, receives_max: u32) -> Result<Queue, Failure> {
        self.laid.push(queue.clone());
        queue.make(receives_max).await?;
        Ok(queue)
    }

    /// Commits one event for each order, in one transaction.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn commit(&self, orders: &[&str]) -> Result<Vec<EventId>, Failure> {
        let events: Vec<NewEvent> = orders
            .iter()
            .map(|order| NewEvent::new("order", order, TOPIC).json(&1250))
            .collect::<Result<_, _>>()?;
        Ok(self.store.operator.stage(&events).await?)
    }

    /// A relay of the scene's store.
    pub(crate) fn relay(&self) -> RelayBuilder {
        let lease = if self.road.is_remote() { LEASE_REMOTE } else { LEASE };
        Relay::builder(self.source()).settings(with_lease(lease))
    }

    /// The store as a relay reads it. On DynamoDB each has a handle of its own, as each process has.
    fn source(&self) -> Arc<dyn OutboxSource> {
        #[cfg(feature = "dynamodb")]
        if let Some(tables) = &self.tables {
            return tables.source();
        }
        Arc::clone(&self.store.source)
    }

    /// Starts a relay with one destination.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn start_relay(
        &self,
        broker: Arc<dyn Broker>,
    ) -> Result<RelayHandle, Failure> {
        let definition = target::definition(DESTINATION)?;
        Ok(self.relay().destination(definition, broker).start().await?)
    }

    /// A handler that charges each order once, in a step, behind the scene's inbox.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub(crate) fn payer(&self, bank: &Arc<Bank>) -> Result<Leased, Failure> {
        self.payer_named(HANDLER, bank)
    }

    /// The same under another name: another handler, to which nothing was done yet.
    ///
    /// # Errors
    /// If it is no name.
    pub(crate) fn payer_named(&self, name: &str, bank: &Arc<Bank>) -> Result<Leased, Failure> {
        let bank = Arc::clone(bank);
        let act = move |event: Arc<postrider_core::Event>, context: Context| {
            let bank = Arc::clone(&bank);
            async move {
                let charge = |key: String| async move {
                    Ok::<_, std::io::Error>(bank.charge(&key, &event.aggregate_id))
                };
                Ok(Outcome::Ack(context.step("charge", charge).await?))
            }
        };
        let name = postrider_core::HandlerName::new(name)?;
        Ok(Leased::builder(name, Arc::clone(&self.store.inbox), act).build()?)
    }
}

/// The times of the scenes' relays: what has to run out is short, and what is tried again is tried soon.
pub(crate) fn settings() -> Settings {
    with_lease(LEASE)
}

fn with_lease(lease: Duration) -> Settings {
    Settings {
        save_after: Duration::from_millis(50),
        carry_every: Duration::from_millis(200),
        pause_max: Duration::from_millis(500),
        ..Settings::with_lease(lease)
    }
}

/// Stops a relay gracefully.
pub(crate) async fn stop(relay: RelayHandle) {
    relay.drain();
    relay.stopped().await;
}

/// Everything a broker has.
///
/// # Errors
/// What its file says.
pub(crate) async fn log(queue: &LocalBroker) -> Result<Vec<StoredMessage>, Failure> {
    match queue.topics().await?.iter().any(|topic| topic == TOPIC) {
        true => Ok(queue.messages(TOPIC).await?),
        false => Ok(Vec::new()),
    }
}

/// What a log tells the history checker: the events, and which of them are late on purpose.
pub(crate) fn arrivals(log: &[StoredMessage]) -> impl Iterator<Item = (EventId, bool)> {
    log.iter().map(|message| (message.event.id, message.late))
}

/// What the history checker says of what arrived: nothing lost, nothing made up, each order's events in
/// the order of their commit.
pub(crate) fn keeps_every_promise(
    committed: &[EventId],
    orders: &[&str],
    arrived: impl IntoIterator<Item = (EventId, bool)>,
) -> bool {
    let mut history = History::new();
    for (id, order) in committed.iter().zip(orders) {
        history.commit_for(*id, order, &[DESTINATION]);
    }
    for (id, late) in arrived {
        history.deliver_as(DESTINATION, id, late);
    }
    let verdict = check(&history);
    let judged = |invariant| verdict.judged(invariant) > 0;
    verdict.holds() && judged(Invariant::NoLoss) && judged(Invariant::KeyOrder)
}

/// Waits until so many messages are in a broker; whether they came in time.
///
/// # Errors
/// What its file says.
pub(crate) async fn has_arrived(queue: &LocalBroker, number: usize) -> Result<bool, Failure> {
    until(async || Ok(log(queue).await?.len() >= number)).await
}

/// Waits until something is so; whether it was in time.
///
/// # Errors
/// What the look says.
pub(crate) async fn until(look: impl AsyncFn() -> Result<bool, Failure>) -> Result<bool, Failure> {
    let waited = async {
        while !look().await? {
            tokio::time::sleep(LOOK_EVERY).await; // waits: for another task, or another connection
        }
        Ok(true)
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap_or(Ok(false))
}
