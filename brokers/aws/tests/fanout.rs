//! The contract suite on topics of SNS and buses of EventBridge, each with a queue for every group: what arrives is
//! read back through them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_aws::{EventBridgeBroker, SnsBroker, SqsSubscription, SubscriptionSettings};
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Delivery, Event, EventId, Fault, Outcome, Outgoing,
    Payload, Result, Subscription, subscription::SubscriptionCapabilities,
};
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;
use serde_json::Value;

use crate::cloud::{Cloud, Held};
use crate::suite::VISIBILITY;

/// The groups of the suite, and a queue that nobody consumes.
const QUEUES: [&str; 4] = ["log", "billing", "shipping", "late"];
/// How long a copy may be on its way.
const PATIENCE: Duration = Duration::from_secs(20);

/// Topics of SNS, whose subscriptions wrap.
const TOPICS: u8 = 0;
/// Topics of SNS of the kind FIFO, whose subscriptions are raw.
const FIFO: u8 = 1;
/// Buses.
const BUSES: u8 = 2;

/// See the module.
pub(crate) struct Through<const KIND: u8> {
    cloud: Cloud,
    topics: BTreeMap<String, Arc<str>>,
    script: SuiteScript,
    acked: Acked,
}

/// What was acknowledged, by topic: so long it is waited for.
type Acked = Arc<Mutex<BTreeMap<Arc<str>, BTreeSet<EventId>>>>;

impl<const KIND: u8> Through<KIND> {
    /// The name of a queue behind a topic.
    fn queue(topic: &str, group: &str) -> String {
        let end = if KIND == FIFO { ".fifo" } else { "" };
        format!("{topic}-{group}{end}")
    }

    /// What a topic is called in the suite.
    fn called(&self, topic: &str) -> &str {
        let found = self.topics.iter().find(|(_, there)| &***there == topic);
        found.map_or("", |(name, _)| name)
    }
}

impl<const KIND: u8> BrokerHarness for Through<KIND> {
    fn unavailable() -> Option<String> {
        Cloud::unavailable()
    }

    async fn start() -> Self {
        let cloud = Cloud::new();
        let mut topics = BTreeMap::new();
        for name in ["orders", "refunds"] {
            let mut queues = Vec::new();
            // Nobody consumes refunds.
            let groups = if name == "orders" { &QUEUES[..] } else { &QUEUES[..1] };
            for group in groups {
                queues.push(cloud.queue(&Self::queue(name, group)).await);
            }
            let topic = match KIND {
                BUSES => cloud.bus(name, &queues).await,
                FIFO => cloud.topic(&format!("{name}.fifo"), &queues, true).await,
                _ => cloud.topic(name, &queues, false).await,
            };
            topics.insert(name.to_owned(), Arc::from(topic));
        }
        cloud.queue("dead").await;
        Through { cloud, topics, script: SuiteScript::default(), acked: Acked::default() }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let mut settings = self.cloud.settings();
        settings.fifo = KIND == FIFO;
        let acked = Arc::clone(&self.acked);
        let inner: Box<dyn Broker> = match KIND {
            BUSES => Box::new(EventBridgeBroker::new(settings).unwrap()),
            _ => Box::new(SnsBroker::new(settings).unwrap()),
        };
        Arc::new(ScriptedBroker::new(Noted { inner, acked }, &self.script))
    }

    fn topic(&self, name: &str) -> Arc<str> {
        Arc::clone(&self.topics[name])
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(async move {
            let queue = self.cloud.name(&Self::queue(self.called(topic), "log"));
            let queue = self.cloud.address_of(&queue).await;
            let begun = Instant::now();
            loop {
                let events: Vec<_> = self.cloud.held(&queue).await.iter().map(read).collect();
                let there: BTreeSet<EventId> = events.iter().map(|event| event.id).collect();
                let acked = self.acked.lock().unwrap().get(topic).cloned().unwrap_or_default();
                if acked.is_subset(&there) || begun.elapsed() > PATIENCE {
                    return events;
                }
                // waits: copies are on their way, and nobody says when they arrive
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(async move {
            let queue = self.cloud.name(&Self::queue(self.called(topic), group));
            let mut settings = SubscriptionSettings::new(&queue);
            settings.visibility = VISIBILITY;
            settings.dead_letters = Some(self.cloud.name("dead"));
            let inner = SqsSubscription::open(self.cloud.settings(), settings).await.unwrap();
            // An envelope of SNS names the topic; where there is none, the queue is all that is known.
            let topic = (KIND != TOPICS).then(|| topic.into());
            Some(Arc::new(Renamed { inner, topic }) as Arc<dyn Subscription>)
        })
    }

    fn dead_letters<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        Box::pin(async move {
            let dead = self.cloud.address_of(&self.cloud.name("dead")).await;
            Some(self.cloud.held(&dead).await.iter().map(read).collect())
        })
    }

    fn refuse(&self, id: EventId) -> bool {
        self.script.refuse(id)
    }

    fn lose_next_answer(&self) -> bool {
        self.script.lose_next_answer()
    }
}

/// What a queue holds, without the envelope around it.
fn read(held: &Held) -> Arc<Event> {
    let body: Value = serde_json::from_str(&held.body).unwrap();
    let inner = match (body["Message"].as_str(), body["detail"].is_object()) {
        (Some(message), _) => message.to_owned(),
        (None, true) => body["detail"].to_string(),
        (None, false) => held.body.clone(),
    };
    let (event, _) = postrider_core::cloudevents::parse(inner.as_bytes()).unwrap();
    Arc::new(compact(event))
}

/// JSON as it was sent: EventBridge writes it anew, with blanks and escapes.
fn compact(mut event: Event) -> Event {
    if let Payload::Json(text) = &event.payload {
        let value: Value = serde_json::from_slice(text).unwrap();
        event.payload = Payload::json(value.to_string()).unwrap();
    }
    event
}

/// A broker whose acknowledgements are noted.
struct Noted {
    inner: Box<dyn Broker>,
    acked: Acked,
}

impl Broker for Noted {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let outcomes = self.inner.publish(batch).await?;
            for (outgoing, outcome) in batch.iter().zip(&outcomes) {
                if *outcome == Outcome::Acked {
                    let mut acked = self.acked.lock().unwrap();
                    let topic = Arc::clone(&outgoing.topic);
                    acked.entry(topic).or_default().insert(outgoing.event.id);
                }
            }
            Ok(outcomes)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

/// A subscription whose deliveries say by which topic they came, with JSON as it was sent.
struct Renamed {
    inner: SqsSubscription,
    topic: Option<Arc<str>>,
}

impl Subscription for Renamed {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.inner.capabilities()
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let mut came = self.inner.receive(max).await?;
            for delivery in &mut came {
                if let Some(topic) = &self.topic {
                    delivery.topic = Arc::clone(topic);
                }
                if let Ok(event) = &mut delivery.event {
                    *event = Arc::new(compact(Event::clone(event)));
                }
            }
            Ok(came)
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        self.inner.ack(delivery)
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.nack(delivery, delay, counted)
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        self.inner.reject(delivery, fault)
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        self.inner.extend(delivery, by)
    }
}

mod topics {
    type Topics = super::Through<{ super::TOPICS }>;
    postrider_testkit::broker_suite!(Topics);
}

mod fifo_topics {
    type FifoTopics = super::Through<{ super::FIFO }>;
    postrider_testkit::broker_suite!(FifoTopics);
}

mod buses {
    type Buses = super::Through<{ super::BUSES }>;
    postrider_testkit::broker_suite!(Buses);
}
