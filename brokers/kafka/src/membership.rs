//! One membership of a group: the client that has it, the thread that reads, and what it holds.
//!
//! Invariant: what was handed out under another membership is not settled under this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::begin;
use crate::group::Coordinator;
use crate::holdings::Holdings;
use crate::look;
use crate::reader::{Member, Reader};
use crate::replaced::Replaced;
use crate::resets::Resets;
use crate::settings::{KafkaSettings, wrong};
use crate::subscription::SubscriptionSettings;
use crate::transactions::{Reports, report_every};
use crate::trouble::Trouble;
use crate::turn::Turn;

/// How late partitions are found that were added to a topic. The library's own time for it is 5 min, in which their records
/// would wait.
const REFRESH: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Membership {
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) coordinator: Arc<Coordinator>,
    ended: Arc<AtomicBool>,
    /// Somebody asked for that.
    left: AtomicBool,
    renews: Arc<AtomicBool>,
    /// Ends with the thread that reads.
    reading: watch::Receiver<()>,
}

impl Membership {
    /// Finds the topics and joins the group; after another one its deliveries have other tokens.
    ///
    /// # Errors
    /// As [`KafkaSubscription::open`](crate::KafkaSubscription::open).
    pub(crate) async fn begin(
        kafka: &Arc<KafkaSettings>,
        settings: &SubscriptionSettings,
        before: Option<&Holdings>,
    ) -> Result<Membership> {
        let holdings = Arc::new(Holdings::after(settings, before));
        let coordinator = Arc::new(Coordinator::of(settings.session, settings.visibility));
        let ended = Arc::new(AtomicBool::new(false));
        let renews = Arc::new(AtomicBool::new(false));
        let (reads, reading) = watch::channel(());
        let membership = Membership {
            holdings: Arc::clone(&holdings),
            coordinator: Arc::clone(&coordinator),
            ended: Arc::clone(&ended),
            left: AtomicBool::new(false),
            renews: Arc::clone(&renews),
            reading,
        };
        let until = Instant::now() + kafka.deadline;
        let member = Member {
            reports: Reports::default(),
            transaction_max: settings.transaction_max,
            coordinator,
            handler: settings.handler.clone(),
            router_source: settings.router_source.clone(),
            notices: kafka.notices.clone(),
            holdings: Arc::clone(&holdings),
            trouble: Arc::new(Trouble::default()),
            patience: settings.visibility,
            ended,
            turn: Turn::default(),
            refused: AtomicBool::new(false),
            renews,
            of_reading: AtomicBool::new(false),
            resets: Resets::default(),
            replaced: Replaced::default(),
        };
        let (kafka, settings) = (Arc::clone(kafka), settings.clone());
        let joining = spawn_blocking(move || join(&kafka, &settings, member, reads));
        joining.await.map_err(|error| {
            Error::new(ErrorKind::Internal, "subscribe").message(error.to_string())
        })??;
        // A group that takes longer lets us in later.
        timeout_at(until, holdings.joined()).await.unwrap_or(Ok(()))?;
        Ok(membership)
    }

    /// Nobody reads any more, and nobody asked for that.
    pub(crate) fn is_broken(&self) -> bool {
        !self.left.load(Ordering::Acquire) && self.reading.has_changed().is_err()
    }

    /// It was ended to begin another one.
    pub(crate) fn renews(&self) -> bool {
        self.renews.load(Ordering::Acquire)
    }

    /// Leaves the group, as soon as the thread that reads hears of it. What is returned ends with that.
    pub(crate) fn end(&self) -> watch::Receiver<()> {
        self.left.store(true, Ordering::Release);
        self.ended.store(true, Ordering::Release);
        self.reading.clone()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// Makes the consumer, finds the topics, and begins to read on a thread of its own.
fn join(
    kafka: &KafkaSettings,
    settings: &SubscriptionSettings,
    member: Member,
    reads: watch::Sender<()>,
) -> Result<()> {
    let trouble = Arc::clone(&member.trouble);
    let refused = |error: KafkaError| wrong(format!("the group cannot be joined: {error}"));
    let mut config = kafka.consumer(settings);
    config.set("topic.metadata.refresh.interval.ms", REFRESH.as_millis().to_string());
    let report = report_every(settings.transaction_max);
    config.set("statistics.interval.ms", report.as_millis().to_string());
    let mut consumer: BaseConsumer<Member> =
        BaseConsumer::from_config_and_context(&config, member).map_err(refused)?;
    look::find(&consumer, settings, kafka, &trouble)?;
    if settings.from_now {
        consumer = begin::at_the_ends(consumer, settings, kafka, &trouble)?;
    }
    let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(refused)?;
    let (topics, group) = (settings.topics.clone(), settings.group.clone());
    let reader = Reader { consumer, topics, group };
    let begun = thread::Builder::new().name("kafka reader".to_owned()).spawn(move || {
        reader.read();
        drop(reads);
    });
    begun
        .map(drop)
        .map_err(|error| Error::new(ErrorKind::Unavailable, "subscribe").message(error.to_string()))
}
