//! A server of Kafka or NATS of the benchmark's own, gone with the value.

use std::sync::Arc;

use async_nats::jetstream::{self, stream};
use postrider_core::Broker;
use postrider_kafka::{KafkaBroker, KafkaSettings};
use postrider_nats::{NatsBroker, NatsSettings};
use postrider_testkit::kafka::KafkaServer;
use postrider_testkit::nats::NatsServer;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;

use crate::broker::NoopBroker;
use crate::measure::cpu_seconds_of_children;
use crate::options::BrokerKind;
use crate::{Result, progress};

/// Partitions of a topic: as many as a small cluster's topics have, and more than this machine's processors.
pub(super) const PARTITIONS: i32 = 8;

/// What is deleted is gone soon: runs are short, and leave much behind.
const KAFKA: &str = "log.segment.delete.delay.ms=1000\nnum.io.threads=4\n";

/// A running server.
pub(super) enum Server {
    Kafka(KafkaServer),
    Nats(NatsServer),
}

impl Server {
    pub(super) fn start(kind: BrokerKind) -> Result<Server> {
        progress(format_args!("starting a server of {}", kind.as_str()));
        Ok(match kind {
            BrokerKind::Kafka => Server::Kafka(KafkaServer::start(KAFKA, &[])?),
            BrokerKind::Nats => Server::Nats(NatsServer::start("")?),
            BrokerKind::Noop | BrokerKind::Local => return Err("it has no server".into()),
        })
    }

    pub(super) fn address(&self) -> String {
        match self {
            Server::Kafka(server) => server.address(),
            Server::Nats(server) => server.address(),
        }
    }

    /// Processor time that the server took so far.
    pub(super) fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of_children(match self {
            Server::Kafka(_) => "java",
            Server::Nats(_) => "nats-server",
        })
    }

    /// Makes a topic, or a stream on files with its subject: nothing is in it.
    pub(super) async fn create(&self, topic: &str) -> Result<()> {
        match self {
            Server::Kafka(_) => {
                let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
                let made = self.admin()?.create_topics([&new], &AdminOptions::new()).await?;
                made.into_iter().try_for_each(|made| made.map(drop)).map_err(|(topic, code)| {
                    format!("the topic `{topic}` could not be made: {code}").into()
                })
            }
            Server::Nats(_) => {
                let config = stream::Config {
                    name: topic.to_owned(),
                    subjects: vec![topic.to_owned()],
                    ..stream::Config::default()
                };
                self.jetstream().await?.create_stream(config).await?;
                Ok(())
            }
        }
    }

    /// Forgets a topic, so that the disk has room for the next.
    pub(super) async fn delete(&self, topic: &str) -> Result<()> {
        match self {
            Server::Kafka(_) => {
                self.admin()?.delete_topics(&[topic], &AdminOptions::new()).await?;
            }
            Server::Nats(_) => {
                self.jetstream().await?.delete_stream(topic).await?;
            }
        }
        Ok(())
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(ClientConfig::new().set("bootstrap.servers", self.address()).create()?)
    }

    async fn jetstream(&self) -> Result<jetstream::Context> {
        Ok(jetstream::new(async_nats::connect(self.address()).await?))
    }
}

/// Our broker at an address.
pub(super) fn open(kind: BrokerKind, address: &str) -> Result<Arc<dyn Broker>> {
    Ok(match kind {
        BrokerKind::Kafka => Arc::new(KafkaBroker::new(KafkaSettings::new(address))?),
        BrokerKind::Nats => Arc::new(NatsBroker::new(NatsSettings::new(address))?),
        BrokerKind::Noop => Arc::new(NoopBroker),
        BrokerKind::Local => return Err("the local broker has no address".into()),
    })
}
