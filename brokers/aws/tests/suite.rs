//! The contract suite, on queues of both kinds.

use std::sync::Arc;
use std::time::Duration;

use postrider_aws::{SqsBroker, SqsSubscription, SubscriptionSettings};
use postrider_core::{BoxFuture, Broker, Event, EventId, Subscription};
use postrider_testkit::fault::{ScriptedBroker, SuiteScript};
use postrider_testkit::suite::BrokerHarness;

use crate::cloud::{Cloud, events};

/// Short enough to wait for, in whole seconds, and longer than LocalStack's look at what became visible.
pub(crate) const VISIBILITY: Duration = Duration::from_secs(2);

/// Queues of one kind.
pub(crate) struct Queues<const FIFO: bool> {
    cloud: Cloud,
    script: SuiteScript,
}

impl<const FIFO: bool> Queues<FIFO> {
    fn called(name: &str) -> String {
        if FIFO { format!("{name}.fifo") } else { name.to_owned() }
    }
}

impl<const FIFO: bool> BrokerHarness for Queues<FIFO> {
    fn unavailable() -> Option<String> {
        Cloud::unavailable()
    }

    async fn start() -> Self {
        let cloud = Cloud::new();
        for topic in ["orders", "refunds", "dead"] {
            cloud.queue(&Self::called(topic)).await;
        }
        Queues { cloud, script: SuiteScript::default() }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let mut settings = self.cloud.settings();
        settings.fifo = FIFO;
        Arc::new(ScriptedBroker::new(SqsBroker::new(settings).unwrap(), &self.script))
    }

    fn topic(&self, name: &str) -> Arc<str> {
        self.cloud.name(&Self::called(name)).into()
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(async move { events(&self.cloud.held(&self.cloud.address_of(topic).await).await) })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(async move {
            let mut settings = SubscriptionSettings::new(topic);
            settings.visibility = VISIBILITY;
            settings.dead_letters = Some(self.cloud.name(&Self::called("dead")));
            let opened = SqsSubscription::open(self.cloud.settings(), settings).await.unwrap();
            Some(Arc::new(opened) as Arc<dyn Subscription>)
        })
    }

    fn has_groups(&self) -> bool {
        false
    }

    fn dead_letters<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        Box::pin(async move {
            let dead = self.cloud.address_of(&self.cloud.name(&Self::called("dead"))).await;
            let held = self.cloud.held(&dead).await;
            for letter in &held {
                assert!(letter.attributes["postrider-dead-reason"].contains("unknown version"));
                assert!(letter.attributes["postrider-dead-queue"].contains("orders"));
            }
            Some(events(&held))
        })
    }

    fn refuse(&self, id: EventId) -> bool {
        self.script.refuse(id)
    }

    fn lose_next_answer(&self) -> bool {
        self.script.lose_next_answer()
    }
}

mod standard {
    type Standard = super::Queues<false>;
    postrider_testkit::broker_suite!(Standard);
}

mod fifo {
    type Fifo = super::Queues<true>;
    postrider_testkit::broker_suite!(Fifo);
}
