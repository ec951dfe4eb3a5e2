//! The contract suite, on a real server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, Broker, Event, EventId, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, SubscriptionSettings};
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;

use crate::server::{Server, Stored, unavailable};

/// Short enough to wait for, long enough for a busy machine.
const VISIBILITY: Duration = Duration::from_secs(2);

/// Groups belong to the server, not to a topic.
fn group_of(topic: &str, group: &str) -> String {
    format!("{group}-{topic}")
}

async fn consume(server: &Server, topic: &str, group: &str) -> Option<Arc<dyn Subscription>> {
    let mut settings = SubscriptionSettings::new(topic, &group_of(topic, group));
    settings.visibility = VISIBILITY;
    settings.session = Duration::from_secs(2);
    settings.dead_letters = Some(format!("{topic}.dead"));
    Some(Arc::new(KafkaSubscription::open(server.settings(), settings).await.unwrap()))
}

struct Kafka {
    server: Arc<Server>,
    topics: HashMap<&'static str, String>,
    script: SuiteScript,
}

async fn read(server: &Server, topic: &str) -> Vec<Arc<Event>> {
    server.stored(topic).await.iter().map(|stored| Arc::new(stored.event())).collect()
}

async fn topics(server: &Server) -> HashMap<&'static str, String> {
    let mut topics = HashMap::new();
    for name in ["orders", "refunds"] {
        let topic = server.topic(name, 2, &[]).await;
        server.create(&format!("{topic}.dead"), 1, &[]).await;
        topics.insert(name, topic);
    }
    topics
}

impl BrokerHarness for Kafka {
    fn unavailable() -> Option<String> {
        unavailable()
    }

    async fn start() -> Kafka {
        let server = Server::shared().await.expect("it is available");
        let topics = topics(&server).await;
        Kafka { server, topics, script: SuiteScript::default() }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let broker = KafkaBroker::new(self.server.settings()).unwrap();
        Arc::new(ScriptedBroker::new(broker, &self.script))
    }

    fn topic(&self, name: &str) -> Arc<str> {
        Arc::from(&*self.topics[name])
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(read(&self.server, topic))
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(consume(&self.server, topic, group))
    }

    fn dead_letters<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        Box::pin(async move {
            let stored = self.server.stored(&format!("{topic}.dead")).await;
            let read = |stored: &Stored| {
                assert!(stored.header("postrider-dead-reason").is_some());
                assert_eq!(stored.header("postrider-dead-group"), Some(&*group_of(topic, group)));
                Arc::new(stored.binary())
            };
            Some(stored.iter().map(read).collect())
        })
    }

    fn refuse(&self, id: EventId) -> bool {
        self.script.refuse(id)
    }

    fn lose_next_answer(&self) -> bool {
        self.script.lose_next_answer()
    }
}

postrider_testkit::broker_suite!(Kafka);

/// The same, on a server of its own that may be killed.
struct Killed {
    server: Server,
    topics: HashMap<&'static str, String>,
}

impl BrokerHarness for Killed {
    async fn start() -> Killed {
        let server = Server::own().await.expect("it is available");
        let topics = topics(&server).await;
        Killed { server, topics }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(KafkaBroker::new(self.server.settings()).unwrap())
    }

    fn topic(&self, name: &str) -> Arc<str> {
        Arc::from(&*self.topics[name])
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(read(&self.server, topic))
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(consume(&self.server, topic, group))
    }

    fn restart(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            self.server.kill();
            self.server.run().unwrap();
            true
        })
    }
}

/// F5: the case of the suite that needs a server of its own.
#[test]
fn a_restart_keeps_what_was_acknowledged() {
    const CASE: &str = "a_restart_keeps_what_was_acknowledged";
    if let Some(reason) = unavailable() {
        return postrider_testkit::suite::skip(CASE, &reason);
    }
    let case = postrider_testkit::suite::broker::a_restart_keeps_what_was_acknowledged::<Killed>();
    postrider_testkit::suite::run(CASE, case);
}

/// F5: the other one.
#[test]
fn a_restart_delivers_again_what_was_not_settled() {
    const CASE: &str = "a_restart_delivers_again_what_was_not_settled";
    if let Some(reason) = unavailable() {
        return postrider_testkit::suite::skip(CASE, &reason);
    }
    let case =
        postrider_testkit::suite::broker::a_restart_delivers_again_what_was_not_settled::<Killed>();
    postrider_testkit::suite::run(CASE, case);
}
