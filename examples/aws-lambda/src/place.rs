//! Where things are, and what is made of it.
//!
//! Invariant: one place has one set of tables, so what `publish` marks is what `sweep` does not find, and what `charge`
//! has done is known to every environment of it.

use std::sync::Arc;
use std::time::Duration;

use postrider::aws::{AwsSettings, EventBridgeBroker, SqsSubscription, SubscriptionSettings};
use postrider::dynamodb::{Connection, Inbox, InboxOptions, Names, Settings};
use postrider::inbox::{Context, Leased, Outcome};
use postrider::lambda::{Publisher, Worker, WorkerOptions};
use postrider::{Destination, DestinationId, Event, HandlerName, InboxStore, Receiver, Route};

use crate::Failure;

/// The service asks for a visibility of so many times the function's time: `WorkerOptions` has both.
const VISIBILITY_FACTOR: u32 = 6;

/// What the clocks of two environments differ by at most, unless somebody knows better: the service keeps them within a
/// second.
const SKEW_DEFAULT: Duration = Duration::from_secs(60);

/// Where things are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The tables.
    pub tables: Settings,
    /// EventBridge and SQS.
    pub aws: AwsSettings,
    /// The bus that events are published to.
    pub bus: String,
    /// The queue that is acted on.
    pub queue: String,
    /// How long that queue hides a message: six times the function's time.
    pub visibility: Duration,
    /// What the clocks of two environments differ by at most. An environment that ends holds its claims for so long
    /// beyond their lease: the next one lives too short to watch that nobody is there.
    pub skew: Duration,
}

impl Place {
    /// As the function's environment says: the region (`AWS_REGION`, which the service sets), the prefix of the tables
    /// (`POSTRIDER_PREFIX`), the bus of those who publish (`POSTRIDER_BUS`), the queue of those who act
    /// (`POSTRIDER_QUEUE`), its visibility (`POSTRIDER_VISIBILITY_SECONDS`, 360 if it does not say), and what clocks differ
    /// by (`POSTRIDER_CLOCK_SKEW_SECONDS`, 60 if it does not say).
    ///
    /// # Errors
    /// If something is missing that every function needs, or is no number.
    pub fn of_environment() -> Result<Place, Failure> {
        let needed = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
        let region = needed("AWS_REGION")?;
        let names = Names::with_prefix(&needed("POSTRIDER_PREFIX")?);
        let seconds = |name: &str, default: Duration| -> Result<Duration, Failure> {
            let Ok(seconds) = std::env::var(name) else { return Ok(default) };
            let seconds = seconds.parse().map(Duration::from_secs);
            Ok(seconds.map_err(|_| format!("{name} is a number of seconds"))?)
        };
        Ok(Place {
            tables: Settings::new(region.clone(), names),
            aws: AwsSettings::new(&region),
            bus: std::env::var("POSTRIDER_BUS").unwrap_or_default(),
            queue: std::env::var("POSTRIDER_QUEUE").unwrap_or_default(),
            visibility: seconds(
                "POSTRIDER_VISIBILITY_SECONDS",
                WorkerOptions::default().visibility,
            )?,
            skew: seconds("POSTRIDER_CLOCK_SKEW_SECONDS", SKEW_DEFAULT)?,
        })
    }

    /// What publishes, for `publish` and `sweep`.
    ///
    /// # Errors
    /// If the bus has no name, or a name is none.
    pub fn publisher(&self) -> Result<Publisher, Failure> {
        if self.bus.is_empty() {
            return Err("POSTRIDER_BUS is not set: the name of the bus to publish to".into());
        }
        let broker = EventBridgeBroker::new(self.aws.clone())?;
        let route = Route::all(self.bus.parse()?);
        let bus = Destination::new(DestinationId::new("bus")?, "eventbridge", vec![route]);
        let connection = Connection::new(self.tables.clone())?;
        Ok(Publisher::new(connection, bus, Arc::new(broker))?)
    }

    /// What acts, for `charge`: each event is claimed in the inbox, and charged as a step. `charge` is given the event and
    /// the step's key, and answers with the receipt.
    ///
    /// # Errors
    /// If the queue is not there, or its times contradict each other.
    pub async fn worker<F, R>(&self, charge: F) -> Result<Worker, Failure>
    where
        F: Fn(Arc<Event>, String) -> R + Send + Sync + 'static,
        R: Future<Output = postrider::Result<String>> + Send + 'static,
    {
        if self.queue.is_empty() {
            return Err("POSTRIDER_QUEUE is not set: the queue whose messages come".into());
        }
        let mut options = WorkerOptions::default();
        options.visibility = self.visibility;
        options.function_time = self.visibility / VISIBILITY_FACTOR;
        let mut queue = SubscriptionSettings::new(&self.queue);
        queue.visibility = options.visibility;
        let queue = SqsSubscription::open(self.aws.clone(), queue).await?;
        let mut remembering = InboxOptions::default();
        remembering.skew_max = Some(self.skew);
        let inbox = Inbox::new(Connection::new(self.tables.clone())?, remembering)?;
        let charge = Arc::new(charge);
        let charging = Leased::builder(
            HandlerName::new("charging")?,
            Arc::new(inbox) as Arc<dyn InboxStore>,
            move |event: Arc<Event>, context: Context| {
                let charge = Arc::clone(&charge);
                async move {
                    let charged = context.step("charge", |key: String| charge(event, key)).await?;
                    Ok(Outcome::Ack(charged))
                }
            },
        );
        let receiver: Arc<dyn Receiver> = Arc::new(charging.lease(options.lease).build()?);
        Ok(Worker::new(Arc::new(queue), receiver, options)?)
    }
}
