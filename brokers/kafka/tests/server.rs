//! Servers: one that most tests share, each with topics of its own, and one of a test's own where it is killed,
//! stopped, or set up in another way.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use postrider_core::{Event, EventId};
use postrider_kafka::KafkaSettings;
use postrider_testkit::kafka::KafkaServer;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;

/// How long a test's own client waits for the server.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server(KafkaServer);

impl Deref for Server {
    type Target = KafkaServer;

    fn deref(&self) -> &KafkaServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut KafkaServer {
        &mut self.0
    }
}

/// One record, as it stands in a topic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, String)>,
}

impl Stored {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    pub(crate) fn id(&self) -> EventId {
        match self.header("ce_id") {
            Some(id) => id.parse().unwrap(),
            None => self.event().id,
        }
    }

    /// The event of a record in binary mode.
    pub(crate) fn binary(&self) -> Event {
        let attributes = self.headers.iter().filter_map(|(name, value)| {
            name.strip_prefix("ce_").map(|plain| (plain, value.as_str()))
        });
        let body = self.value.clone().unwrap_or_default().into();
        let content_type = self.header("content-type");
        postrider_core::cloudevents::binary::parse(attributes, content_type, body).unwrap().0
    }

    /// The event of a record in structured mode.
    pub(crate) fn event(&self) -> Event {
        postrider_core::cloudevents::parse(self.value.as_deref().unwrap()).unwrap().0
    }
}

/// Why there are no servers here.
pub(crate) fn unavailable() -> Option<String> {
    let reason = postrider_testkit::kafka::artifacts().err()?;
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    Some(reason)
}

impl Server {
    /// One of the test's own; `None`, with the reason printed, where there is none to be had.
    pub(crate) async fn own() -> Option<Server> {
        Server::with("", &[]).await
    }

    /// One of the test's own, with more properties and users.
    pub(crate) async fn with(properties: &str, users: &[&'static str]) -> Option<Server> {
        if let Some(reason) = unavailable() {
            println!("skipped: a server of Kafka: {reason}");
            return None;
        }
        let (properties, users) = (properties.to_owned(), users.to_vec());
        let server = spawn_blocking(move || KafkaServer::start(&properties, &users)).await;
        Some(Server(server.unwrap().unwrap()))
    }

    /// The one that tests share while any of them runs.
    pub(crate) async fn shared() -> Option<Arc<Server>> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        if let Some(reason) = unavailable() {
            println!("skipped: a server of Kafka: {reason}");
            return None;
        }
        let find = || {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let server = Arc::new(Server(KafkaServer::start("", &[]).unwrap()));
                *shared = Arc::downgrade(&server);
                server
            })
        };
        Some(spawn_blocking(find).await.unwrap())
    }

    pub(crate) fn settings(&self) -> KafkaSettings {
        KafkaSettings::new(&self.address())
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        config
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().unwrap()
    }

    /// A topic of a name that no other test has.
    pub(crate) async fn topic(
        &self,
        name: &str,
        partitions: i32,
        config: &[(&str, &str)],
    ) -> String {
        let name = unique(name);
        self.create(&name, partitions, config).await;
        name
    }

    pub(crate) async fn create(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (name, value) in config {
            topic = topic.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = self.admin().create_topics([&topic], &options).await.unwrap();
        made.into_iter().next().unwrap().unwrap();
        // The controller knows it; the server learns of it a moment later.
        let (config, name) = (self.config(), name.to_owned());
        let known = move || {
            let consumer: BaseConsumer = config.create().unwrap();
            let begun = Instant::now();
            loop {
                let metadata = consumer.fetch_metadata(Some(&name), PATIENCE).unwrap();
                let found = &metadata.topics()[0];
                if found.error().is_none() && !found.partitions().is_empty() {
                    return;
                }
                assert!(begun.elapsed() < PATIENCE, "`{name}` does not appear");
            }
        };
        spawn_blocking(known).await.unwrap();
    }

    /// What stands in a topic, partition after partition.
    pub(crate) async fn stored(&self, topic: &str) -> Vec<Stored> {
        let (config, topic) = (self.config(), topic.to_owned());
        spawn_blocking(move || read(config, &topic)).await.unwrap()
    }

    pub(crate) async fn ids(&self, topic: &str) -> Vec<EventId> {
        self.stored(topic).await.iter().map(Stored::id).collect()
    }

    /// How many records a topic has taken; none while the server is away.
    pub(crate) async fn count(&self, topic: &str) -> i64 {
        let (config, topic) = (self.config(), topic.to_owned());
        spawn_blocking(move || {
            let consumer: BaseConsumer = config.clone().set("group.id", "count").create().unwrap();
            let Ok(metadata) = consumer.fetch_metadata(Some(&topic), Duration::from_secs(2)) else {
                return 0;
            };
            let partitions = metadata.topics()[0].partitions().len();
            let high = |partition| {
                let marks = consumer.fetch_watermarks(&topic, partition, Duration::from_secs(2));
                marks.map_or(0, |(_, high)| high)
            };
            (0..i32::try_from(partitions).unwrap()).map(high).sum()
        })
        .await
        .unwrap()
    }
}

/// A name that no other test has.
pub(crate) fn unique(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Reads each partition up to the end that it has now.
fn read(mut config: ClientConfig, topic: &str) -> Vec<Stored> {
    let consumer: BaseConsumer = config
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "20")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let mut stored = Vec::new();
    for partition in metadata.topics()[0].partitions() {
        let partition = partition.id();
        let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap();
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, partition, Offset::Offset(low)).unwrap();
        consumer.assign(&from).unwrap();
        let mut next = low;
        while next < high {
            let message = consumer.poll(PATIENCE).expect("it has more").unwrap();
            next = message.offset() + 1;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
            stored.push(Stored {
                partition,
                key: message.key().map(<[u8]>::to_vec),
                value: message.payload().map(<[u8]>::to_vec),
                headers: headers
                    .map(|header| (header.key.to_owned(), text(header.value.unwrap_or_default())))
                    .collect(),
            });
        }
    }
    stored
}
