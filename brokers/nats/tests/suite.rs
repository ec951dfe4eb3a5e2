//! The contract suite, on a real server: a group of one consumer, and one of partitions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use postrider_core::{BoxFuture, Broker, Event, EventId, Subscription, cloudevents};
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;

use crate::server::Server;
use crate::spread::{Spread, Together};

/// Short enough to wait for, long enough for a busy machine.
const VISIBILITY: Duration = Duration::from_secs(1);

/// With no partitions, or with so many.
pub(crate) struct Harness<const PARTITIONS: u16> {
    server: Server,
    script: SuiteScript,
}

type Nats = Harness<0>;

/// A stream has the name of its topic.
async fn read(server: &Server, stream: &str) -> Vec<Arc<Event>> {
    let Ok(stream) = server.jetstream().await.get_stream(stream).await else { return Vec::new() };
    let state = stream.cached_info().state.clone();
    let mut events = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let (event, _) = cloudevents::parse(&message.payload).unwrap();
        events.push(Arc::new(event));
    }
    events
}

impl<const PARTITIONS: u16> BrokerHarness for Harness<PARTITIONS> {
    async fn start() -> Self {
        let server = Server::start().expect("a server, or none of these tests");
        for topic in ["orders", "refunds"] {
            match PARTITIONS {
                0 => server.stream(topic, topic).await,
                _ => server.stream(topic, &format!("{topic}.*")).await,
            };
        }
        server.stream("dead", "dead.>").await;
        Harness { server, script: SuiteScript::default() }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let broker = NatsBroker::new(self.server.settings()).unwrap();
        let broker = ScriptedBroker::new(broker, &self.script);
        match PARTITIONS {
            0 => Arc::new(broker),
            _ => Arc::new(Spread { inner: broker, partitions: PARTITIONS }),
        }
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(read(&self.server, topic))
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(async move {
            let mut settings = SubscriptionSettings::new(topic, group);
            // Partitions take turns where a case asks for less than all.
            settings.visibility = VISIBILITY * if PARTITIONS == 0 { 1 } else { 2 };
            settings.dead_letters = Some(format!("dead.{topic}.{group}"));
            if PARTITIONS > 0 {
                settings.subject = Some(format!("{topic}.{{partition:{PARTITIONS}}}"));
            }
            let opened = NatsSubscription::open(self.server.settings(), settings).await.unwrap();
            Some(match PARTITIONS {
                0 => Arc::new(opened) as Arc<dyn Subscription>,
                _ => Arc::new(Together(opened)),
            })
        })
    }

    fn dead_letters<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        Box::pin(async move {
            let stream = self.server.jetstream().await.get_stream("dead").await.unwrap();
            let consumer = stream
                .create_consumer(async_nats::jetstream::consumer::pull::Config {
                    filter_subject: format!("dead.{topic}.{group}"),
                    ..Default::default()
                })
                .await
                .unwrap();
            let messages = consumer.fetch().max_messages(100).messages().await.unwrap();
            let read = |message: Result<async_nats::jetstream::Message, _>| {
                let message = message.unwrap();
                assert!(message.headers.as_ref().unwrap().get("postrider-dead-reason").is_some());
                Arc::new(cloudevents::parse(&message.payload).unwrap().0)
            };
            Some(messages.map(read).collect().await)
        })
    }

    fn restart(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            self.server.kill();
            self.server.run().unwrap();
            true
        })
    }

    fn refuse(&self, id: EventId) -> bool {
        self.script.refuse(id)
    }

    fn lose_next_answer(&self) -> bool {
        self.script.lose_next_answer()
    }
}

postrider_testkit::broker_suite!(Nats);
