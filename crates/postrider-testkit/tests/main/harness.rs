//! The memory backends as the suites want them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, Clock, NewEvent, OutboxSource, Result, Timestamp};
use postrider_testkit::memory::{MemoryClock, MemoryStore};
use postrider_testkit::suite::{OpenTransaction, StoreHarness};

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

    fn rewind(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.0.rewind();
            Ok(())
        }))
    }
}
