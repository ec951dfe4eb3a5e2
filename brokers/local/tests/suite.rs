//! The contract suite that every broker passes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, Broker, Event, EventId, Subscription};
use postrider_local::{LocalBroker, SubscribeOptions};
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;
use tempfile::TempDir;

struct Local {
    folder: TempDir,
    broker: LocalBroker,
    script: SuiteScript,
}

impl Local {
    fn path(&self) -> PathBuf {
        self.folder.path().join("queue.db")
    }
}

impl BrokerHarness for Local {
    async fn start() -> Local {
        let folder = tempfile::tempdir().unwrap();
        let broker = LocalBroker::open(folder.path().join("queue.db")).unwrap();
        Local { folder, broker, script: SuiteScript::default() }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(ScriptedBroker::new(LocalBroker::open(self.path()).unwrap(), &self.script))
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(async move {
            let messages = self.broker.messages(topic).await.unwrap();
            messages.into_iter().map(|message| message.event).collect()
        })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(async move {
            let options = SubscribeOptions {
                visibility: Duration::from_secs(2),
                ..SubscribeOptions::default()
            };
            // A handle of its own: instances of a group usually live in several processes.
            let handle = LocalBroker::open(self.path()).unwrap();
            let subscription = handle.subscribe(group, topic, options).await.unwrap();
            Some(Arc::new(subscription) as Arc<dyn Subscription>)
        })
    }

    fn dead_letters<'a>(
        &'a self,
        _: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        Box::pin(async move {
            let dead = self.broker.dead_letters(group).await.unwrap();
            Some(dead.into_iter().map(|letter| letter.event.unwrap()).collect())
        })
    }

    fn refuse(&self, id: EventId) -> bool {
        self.script.refuse(id)
    }

    fn lose_next_answer(&self) -> bool {
        self.script.lose_next_answer()
    }

    fn restart(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            self.broker = LocalBroker::open(self.path()).unwrap();
            true
        })
    }
}

postrider_testkit::broker_suite!(Local);
