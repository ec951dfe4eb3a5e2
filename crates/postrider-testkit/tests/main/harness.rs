//! The memory backends as the suites want them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::operate::{RequestId, RequestState, Submission};
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Clock, ErrorKind, Event, EventId, HandlerName,
    InboxStore, NewEvent, OutboxSource, PartitionId, Result, Subscription, Timestamp,
};
use postrider_testkit::fault::{BrokerAction, FaultyBroker};
use postrider_testkit::memory::{MemoryBroker, MemoryClock, MemoryStore};
use postrider_testkit::suite::{
    BrokerHarness, InboxHarness, OpenTransaction, StoreHarness, Then, TransactionalProbe,
};

/// A memory store with P partitions.
pub(crate) struct Store<const P: u16>(pub(crate) MemoryStore);

pub(crate) type OnePartition = Store<1>;
pub(crate) type ManyPartitions = Store<8>;

impl<const P: u16> StoreHarness for Store<P> {
    async fn start() -> Store<P> {
        Store(MemoryStore::new(P, MemoryClock::new()))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.0.clone())
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.0.commit(events).map(drop) })
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let mut transaction = self.0.begin();
            for event in events {
                transaction.enqueue(event)?;
            }
            transaction.roll_back();
            Ok(())
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        Box::pin(async { Ok(Box::new(self.0.begin()) as Box<dyn OpenTransaction>) })
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.clock().advance(span) })
    }

    fn now(&self) -> BoxFuture<'_, Timestamp> {
        Box::pin(async { self.0.clock().now() })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.0.insert_malformed();
            Ok(())
        }))
    }

    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        Some(Box::pin(async { self.0.submit(submission) }))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Box::pin(async move { self.0.request(id) })
    }

    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async move { self.0.set_partition(partition, paused) }))
    }

    fn erase<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            self.0.erase(key);
            Ok(())
        }))
    }

    fn rewind(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.0.rewind();
            Ok(())
        }))
    }
}

/// The memory inbox.
pub(crate) struct Inbox(pub(crate) MemoryStore);

impl InboxHarness for Inbox {
    async fn start() -> Inbox {
        Inbox(MemoryStore::new(1, MemoryClock::new()))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.0.clone())
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.clock().advance(span) })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Probe(self.0.clone())))
    }
}

struct Probe(MemoryStore);

impl TransactionalProbe for Probe {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            let mut transaction = self.0.begin();
            let accepted = transaction.accept(event, handler)?;
            if accepted == Accepted::FirstTime {
                transaction.effect(event, handler)?;
            }
            tokio::task::yield_now().await;
            match then {
                Then::Commit => drop(transaction.commit()?),
                Then::Fail => transaction.roll_back(),
                Then::Abandon => drop(transaction),
            }
            Ok(accepted)
        })
    }

    fn effects(&self) -> BoxFuture<'_, u64> {
        Box::pin(async { self.0.effects().len() as u64 })
    }
}

/// The memory broker behind scripted faults; `PREFIX` declares prefix order and absorbs duplicates.
pub(crate) struct Brokers<const PREFIX: bool> {
    clock: MemoryClock,
    broker: MemoryBroker,
    faulty: Arc<FaultyBroker>,
}

pub(crate) type PlainBroker = Brokers<false>;
pub(crate) type PrefixBroker = Brokers<true>;

impl<const PREFIX: bool> BrokerHarness for Brokers<PREFIX> {
    async fn start() -> Brokers<PREFIX> {
        let clock = MemoryClock::new();
        let mut capabilities = BrokerCapabilities::least();
        capabilities.durable = true;
        capabilities.keeps_key_order = true;
        capabilities.prefix_order = PREFIX;
        capabilities.deduplicates_for = PREFIX.then_some(Duration::from_secs(120));
        let broker = MemoryBroker::with(clock.clone(), capabilities, 1024 * 1024);
        let faulty = Arc::new(FaultyBroker::new(Arc::new(broker.clone())));
        Brokers { clock, broker, faulty }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.faulty) as Arc<dyn Broker>
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        Box::pin(async { self.broker.received(topic) })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(async {
            let subscription = self.broker.subscribe(topic, group, Duration::from_secs(30));
            Some(Arc::new(subscription) as Arc<dyn Subscription>)
        })
    }

    fn dead_letters<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        Box::pin(async {
            let dead = self.broker.dead_letters(topic, group);
            Some(dead.into_iter().map(|(event, _)| event).collect())
        })
    }

    fn restart(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            self.broker.restart();
            true
        })
    }

    fn patience() -> Duration {
        Duration::from_secs(5)
    }

    fn has_virtual_clock() -> bool {
        true
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(span) })
    }

    fn refuse(&self, id: EventId) -> bool {
        self.faulty.refuse([id]);
        true
    }

    fn lose_next_answer(&self) -> bool {
        let lost = BrokerAction::FailAfter(ErrorKind::Timeout);
        self.faulty.script.then([lost]);
        true
    }
}
