//! The contract suite, on a real server.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::{BoxFuture, Broker, Event, EventId};
use postrider_kafka::KafkaBroker;
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;

use crate::server::{Server, unavailable};

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
        topics.insert(name, server.topic(name, 2, &[]).await);
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
