//! A memory store of each kind, as the suites want it.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::operate::{RequestId, RequestState, Submission};
use postrider_core::{
    BoxFuture, Clock, Event, HandlerName, InboxStore, NewEvent, OutboxSource, PartitionId, Result,
    Timestamp,
};
use postrider_testkit::memory::{Kind, MemoryClock, MemoryStore};
use postrider_testkit::suite::{
    InboxHarness, OpenTransaction, StoreHarness, Then, TransactionalProbe,
};

use crate::line::Plain;

/// A store of a kind with P partitions, whose relays have lines that answer at once.
pub(crate) struct Store<const KIND: usize, const P: u16>(pub(crate) MemoryStore);

impl<const KIND: usize, const P: u16> StoreHarness for Store<KIND, P> {
    async fn start() -> Self {
        Store(MemoryStore::of(Kind::ALL[KIND], P, MemoryClock::new()))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.0.on(Arc::new(Plain)))
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
        // Without a cursor there is nothing that could lie ahead of the store.
        (!matches!(self.0.kind(), Kind::RowState | Kind::Keyed)).then(|| {
            Box::pin(async {
                self.0.rewind();
                Ok(())
            }) as BoxFuture<'_, Result<()>>
        })
    }
}

/// An inbox in a store of a kind.
pub(crate) struct Inbox<const KIND: usize>(MemoryStore);

impl<const KIND: usize> InboxHarness for Inbox<KIND> {
    async fn start() -> Self {
        Inbox(MemoryStore::of(Kind::ALL[KIND], 1, MemoryClock::new()))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.0.on(Arc::new(Plain)))
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.clock().advance(span) })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Probe(self.0.on(Arc::new(Plain)))))
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
            let mut transaction = self.0.begin_on().await?;
            let accepted = transaction.accept_on(event, handler).await?;
            if accepted == Accepted::FirstTime {
                transaction.effect(event, handler)?;
            }
            tokio::task::yield_now().await;
            match then {
                Then::Commit => drop(transaction.commit_on().await?),
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
