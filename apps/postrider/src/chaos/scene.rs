//! The scene: a folder, a store with Postrider's tables, and the story that is told on it.
//!
//! Invariant: every scene has a folder and tables of its own, and leaves nothing behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, EventId, Invariant, NewEvent, OutboxSource};
use postrider_history::{History, check};
use postrider_inbox::{Context, Leased, Outcome};
use postrider_local::{LocalBroker, StoredMessage};
use postrider_postgres::Setup;
use postrider_relay::{Relay, RelayBuilder, RelayHandle, Settings};

use crate::chaos::bank::Bank;
#[cfg(feature = "dynamodb")]
use crate::chaos::dynamo;
use crate::chaos::scenario::Scenario;
use crate::chaos::story::Story;
use crate::database::Database;
use crate::failure::Failure;
use crate::store::{Opened, Place};
use crate::target;

/// The type of all events here, which is also their topic.
pub(crate) const TOPIC: &str = "order.paid";

/// The name of the handler that charges, also that of its group.
pub(crate) const HANDLER: &str = "charge";

/// The destination's name.
pub(crate) const DESTINATION: &str = "queue";

/// The lease of the relays: short, as it is what has to run out.
const LEASE: Duration = Duration::from_secs(2);

/// How long something may take that should happen at once: far beyond it, and well below the half
/// minute that a scenario may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// How long a scenario may take, so that one that hangs ends.
const PLAY_MAX: Duration = Duration::from_secs(30);

/// How often something is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Partitions of a schema that is made for one scenario: a few, so that several are there.
const PARTITIONS: u16 = 4;

/// Where scenarios are played.
#[derive(Clone)]
pub(crate) enum Theatre {
    /// In a file of their own.
    Embedded,
    /// On a server, in a schema of their own.
    Postgres {
        /// Without the schema; it may hold a password.
        address: String,
    },
    /// On DynamoDB, in tables of their own.
    #[cfg(feature = "dynamodb")]
    Dynamo(Box<postrider_dynamodb::Settings>),
}

impl Theatre {
    /// Reads where to play.
    ///
    /// # Errors
    /// A configuration failure: no PostgreSQL, or a schema that is somebody's.
    pub(crate) fn choose(store: Option<&str>) -> Result<Theatre, Failure> {
        let Some(address) = store else { return Ok(Theatre::Embedded) };
        #[cfg(feature = "dynamodb")]
        if let Some(settings) = dynamo::read(address)? {
            return Ok(Theatre::Dynamo(Box::new(settings)));
        }
        let Place::Postgres(_) = Place::read(address)? else {
            return Err(Failure::config("chaos takes an address of PostgreSQL or DynamoDB")
                .advice("Nothing was started. Without --store it plays on SQLite by itself."));
        };
        if address.contains("schema=") {
            return Err(Failure::config("chaos makes a schema of its own")
                .advice("Nothing was started. Leave `schema=` out of the address."));
        }
        Ok(Theatre::Postgres { address: address.to_owned() })
    }

    /// The kind of store that a scenario is played on here.
    pub(crate) fn kind(&self, scenario: &Scenario) -> &'static str {
        let kind = match self {
            Theatre::Embedded => "sqlite",
            Theatre::Postgres { .. } => "postgres",
            #[cfg(feature = "dynamodb")]
            Theatre::Dynamo(_) => "dynamodb",
        };
        if scenario.plays.stores().contains(&kind) { kind } else { "sqlite" }
    }

    /// A fresh scene for a scenario.
    ///
    /// # Errors
    /// What the folder or the store says.
    pub(crate) async fn scene(&self, scenario: &Scenario, aloud: bool) -> Result<Scene, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("postrider-chaos-")
            .tempdir()
            .map_err(|e| Failure::plain(format!("the scenario's folder: {e}")))?;
        let kind = self.kind(scenario);
        let story = Story::new(scenario, kind, aloud);
        #[cfg(feature = "dynamodb")]
        if let Theatre::Dynamo(settings) = self
            && kind == "dynamodb"
        {
            let tables = dynamo::Tables::make(settings).await?;
            let store = tables.open().await?;
            return Ok(Scene {
                folder,
                store,
                schema: None,
                tables: Some(tables),
                guarded: true,
                story,
            });
        }
        let (place, schema) = match self {
            Theatre::Postgres { address } if kind == "postgres" => {
                let database = schema(address).await?;
                (Place::Postgres(database.clone()), Some(database))
            }
            _ => {
                let path = folder.path().join("shop.db");
                postrider_sqlite::init(&path)?;
                (Place::Sqlite(path), None)
            }
        };
        Ok(Scene {
            folder,
            store: place.open().await?,
            schema,
            #[cfg(feature = "dynamodb")]
            tables: None,
            guarded: true,
            story,
        })
    }
}

/// A schema with the tables, on a server.
async fn schema(address: &str) -> Result<Database, Failure> {
    let mark = if address.contains('?') { '&' } else { '?' };
    // The end of an id is random; the whole would be too long for a name.
    let name: String = EventId::mint().to_string().replace('-', "")[12..].to_owned();
    let database = Database::read(&format!("{address}{mark}schema=chaos_{name}"))?;
    let setup = Setup {
        names: database.names().clone(),
        partitions: Some(PARTITIONS),
        source: Some("/shop".to_owned()),
        ..Setup::default()
    };
    postrider_postgres::init(database.address(), &setup).await?;
    Ok(database)
}

/// One scenario's scene.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    pub(crate) store: Opened,
    /// The schema that goes with the scene.
    schema: Option<Database>,
    /// The tables that go with the scene.
    #[cfg(feature = "dynamodb")]
    tables: Option<dynamo::Tables>,
    guarded: bool,
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
    /// What the server says if its schema cannot be dropped; it is named then.
    pub(crate) async fn close(self) -> Result<Story, Failure> {
        #[cfg(feature = "dynamodb")]
        if let Some(tables) = self.tables {
            tables.remove().await?;
        }
        let Scene { folder, store, schema, story, .. } = self;
        drop(store);
        drop(folder);
        if let Some(database) = schema {
            let dropped = postrider_postgres::remove(database.address(), database.names()).await;
            dropped.map_err(|error| {
                Failure::from(error)
                    .within(&format!("the schema {} was not dropped", database.names().schema()))
            })?;
        }
        Ok(story)
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
        Relay::builder(self.source()).settings(settings())
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
    Settings {
        save_after: Duration::from_millis(50),
        carry_every: Duration::from_millis(200),
        pause_max: Duration::from_millis(500),
        ..Settings::with_lease(LEASE)
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

/// What the history checker says of a broker's log: nothing lost, nothing made up, each order's events in
/// the order of their commit.
pub(crate) fn keeps_every_promise(
    committed: &[EventId],
    orders: &[&str],
    log: &[StoredMessage],
) -> bool {
    let mut history = History::new();
    for (id, order) in committed.iter().zip(orders) {
        history.commit_for(*id, order, &[DESTINATION]);
    }
    for message in log {
        history.deliver_as(DESTINATION, message.event.id, message.late);
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
