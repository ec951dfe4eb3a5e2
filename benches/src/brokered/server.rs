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
use crate::tuning::Tuning;
use crate::{Result, progress};

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

    /// Makes a topic of so many partitions, or a stream on files with its subject: nothing is in it.
    pub(super) async fn create(&self, topic: &str, partitions: u32) -> Result<()> {
        match self {
            Server::Kafka(_) => {
                let partitions = i32::try_from(partitions)?;
                let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
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
pub(super) fn open(kind: BrokerKind, address: &str, tuning: &Tuning) -> Result<Arc<dyn Broker>> {
    Ok(match kind {
        BrokerKind::Kafka => {
            let mut settings = KafkaSettings::new(address);
            settings.batches_in_flight = tuning.batches.unwrap_or(settings.batches_in_flight);
            settings.linger = tuning.linger.unwrap_or(settings.linger);
            Arc::new(KafkaBroker::new(settings)?)
        }
        BrokerKind::Nats => Arc::new(NatsBroker::new(NatsSettings::new(address))?),
        BrokerKind::Noop => Arc::new(NoopBroker),
        BrokerKind::Local => return Err("the local broker has no address".into()),
    })
}
