//! A test's own client of a server: makes topics, and reads what stands in them.

use std::path::Path;
use std::time::{Duration, Instant};

use postrider_core::{Event, EventId, Timestamp, cloudevents};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;

use super::KafkaServer;

/// How long a test's own client waits for the server.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where the server may be away.
pub(super) const GLANCE: Duration = Duration::from_secs(2);

/// One record, as it stands in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its partition.
    pub partition: i32,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers, which are texts.
    pub headers: Vec<(String, String)>,
}

impl Stored {
    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// The id of its event, in either mode.
    ///
    /// # Panics
    /// If it is no event.
    pub fn id(&self) -> EventId {
        match self.header("ce_id") {
            Some(id) => id.parse().expect("an id"),
            None => self.event().id,
        }
    }

    /// The event of a record in binary mode.
    ///
    /// # Panics
    /// If it is none.
    pub fn binary(&self) -> Event {
        let attributes = self.headers.iter().filter_map(|(name, value)| {
            name.strip_prefix("ce_").map(|plain| (plain, value.as_str()))
        });
        let body = self.value.clone().unwrap_or_default().into();
        let content_type = self.header("content-type");
        cloudevents::binary::parse(attributes, content_type, body).expect("an event").0
    }

    /// The event of a record in structured mode.
    ///
    /// # Panics
    /// If it is none.
    pub fn event(&self) -> Event {
        cloudevents::parse(self.value.as_deref().expect("a value")).expect("an event").0
    }
}

/// A test's client that cannot go on has failed the test.
#[expect(clippy::missing_panics_doc, reason = "each fails its test")]
impl KafkaServer {
    /// The settings of a client.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config
    }

    /// More settings of a test's own client, for a server that does not let everybody in.
    pub fn let_in(&mut self, settings: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.client = settings.iter().map(owned).collect();
    }

    /// As the user `broker` of a server with the lines of `Authority::of_kafka_with_users`, whose
    /// certificate these roots signed.
    pub fn let_in_as_broker(&mut self, roots: &Path) {
        self.let_in(&[
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", &roots.display().to_string()),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "broker"),
            ("sasl.password", "hush"),
        ]);
    }

    /// An administrator.
    pub fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("a client")
    }

    /// Makes a topic with one replica, and waits until the server knows it.
    pub async fn create(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        self.create_copied(name, (partitions, 1), config).await;
    }

    /// The same with so many partitions and replicas.
    pub async fn create_copied(
        &self,
        name: &str,
        (partitions, replicas): (i32, i32),
        config: &[(&str, &str)],
    ) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        for (name, value) in config {
            topic = topic.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = self.admin().create_topics([&topic], &options).await.expect("an answer");
        made.into_iter().next().expect("one answer").expect("a topic");
        let partitions = usize::try_from(partitions).expect("some partitions");
        self.until_known(name, partitions).await;
    }

    /// The controller knows a topic first; the server learns of it a moment later.
    async fn until_known(&self, name: &str, partitions: usize) {
        let (config, name) = (self.client(), name.to_owned());
        let known = move || {
            let consumer: BaseConsumer = config.create().expect("a client");
            let begun = Instant::now();
            loop {
                let metadata = consumer.fetch_metadata(Some(&name), PATIENCE).expect("an answer");
                let found = &metadata.topics()[0];
                if found.error().is_none() && found.partitions().len() == partitions {
                    return;
                }
                assert!(begun.elapsed() < PATIENCE, "`{name}` does not appear");
            }
        };
        spawn_blocking(known).await.expect("no panic");
    }

    /// Lets a topic take messages of at most so many bytes, and waits until the server knows it.
    pub async fn limit_messages(&self, topic: &str, bytes: u32) {
        const LIMIT: &str = "max.message.bytes";
        let (admin, text) = (self.admin(), bytes.to_string());
        let resource = ResourceSpecifier::Topic(topic);
        let change = AlterConfig::new(resource).set(LIMIT, &text);
        let changed =
            admin.alter_configs([&change], &AdminOptions::new()).await.expect("an answer");
        changed.into_iter().next().expect("one answer").expect("a change");
        let begun = Instant::now();
        loop {
            let known = admin.describe_configs([&resource], &AdminOptions::new()).await;
            let known = known.expect("an answer").remove(0).expect("the topic's settings");
            let limit = known.entry_map().get(LIMIT).and_then(|entry| entry.value.clone());
            if limit.as_deref() == Some(&*text) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the limit is {limit:?}");
        }
    }

    /// Gives a topic more partitions, so many in all, and waits until the server knows them.
    pub async fn add_partitions(&self, topic: &str, partitions: usize) {
        let more = [NewPartitions::new(topic, partitions)];
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = self.admin().create_partitions(&more, &options).await.expect("an answer");
        made.into_iter().next().expect("one answer").expect("partitions");
        self.until_known(topic, partitions).await;
    }

    /// Puts a record into a topic once more, as if its producer had made it that long ago.
    ///
    /// # Panics
    /// If the server does not take it.
    pub async fn store_aged(&self, topic: &str, record: &Stored, age: Duration) {
        let (config, topic, record) = (self.client(), topic.to_owned(), record.clone());
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let made = (Timestamp::now().as_micros() / 1_000).saturating_sub(age);
        spawn_blocking(move || write(&config, &topic, &record, made)).await.expect("no panic");
    }

    /// What stands in a topic, partition after partition.
    pub async fn stored(&self, topic: &str) -> Vec<Stored> {
        let (config, topic) = (self.client(), topic.to_owned());
        spawn_blocking(move || read(config, &topic)).await.expect("no panic")
    }

    /// How many records a topic has taken; none while the server is away.
    pub async fn count(&self, topic: &str) -> i64 {
        let (config, topic) = (self.client(), topic.to_owned());
        spawn_blocking(move || {
            ends(&config, &topic).map_or(0, |ends| ends.into_iter().map(|(_, end)| end).sum())
        })
        .await
        .expect("no panic")
    }
}

/// The end of each partition; nothing while the server is away.
pub(super) fn ends(config: &ClientConfig, topic: &str) -> Option<Vec<(i32, i64)>> {
    let consumer: BaseConsumer =
        config.clone().set("group.id", "count").create().expect("a client");
    let metadata = consumer.fetch_metadata(Some(topic), GLANCE).ok()?;
    let partitions = metadata.topics().first()?.partitions();
    let end = |id| Some((id, consumer.fetch_watermarks(topic, id, GLANCE).ok()?.1));
    partitions.iter().map(|partition| end(partition.id())).collect()
}

/// Writes one record, made at a time in milliseconds since 1970.
fn write(config: &ClientConfig, topic: &str, record: &Stored, made: i64) {
    let producer: BaseProducer = config.create().expect("a client");
    let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: Some(value) })
    });
    let key = record.key.as_deref().unwrap_or_default();
    let mut again = BaseRecord::to(topic).key(key).headers(headers).timestamp(made);
    if let Some(value) = &record.value {
        again = again.payload(value);
    }
    producer.send(again).map_err(|(error, _)| error).expect("room");
    producer.flush(PATIENCE).expect("an answer");
}

/// Reads each partition up to the end that it has now.
fn read(mut config: ClientConfig, topic: &str) -> Vec<Stored> {
    let consumer: BaseConsumer = config
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "20")
        .create()
        .expect("a client");
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("an answer");
    let mut stored = Vec::new();
    for partition in metadata.topics()[0].partitions() {
        let partition = partition.id();
        let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE).expect("an answer");
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, partition, Offset::Offset(low)).expect("an offset");
        consumer.assign(&from).expect("an assignment");
        let mut next = low;
        while next < high {
            // That the server was away is told late.
            let Ok(message) = consumer.poll(PATIENCE).expect("it has more") else { continue };
            next = message.offset() + 1;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
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
