//! What a store gives its suites: an isolated store, handles as other processes would have them,
//! transactions, and a clock.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{RequestId, RequestState, Submission};
use postrider_core::{
    BoxFuture, Error, ErrorKind, NewEvent, OutboxSource, PartitionId, Result, Timestamp,
};

/// A store under test, for [`store_suite!`](crate::store_suite) and
/// [`source_suite!`](crate::source_suite).
///
/// Every case starts one of its own. Dropping it may remove what it made.
pub trait StoreHarness: Send + Sync + Sized + 'static {
    /// Events of a large transaction. Default 1,000; a store that takes many requests for so many may say fewer, as long
    /// as they are several of its requests, and of the case's pages of 77.
    const LARGE: u32 = 1_000;

    /// Why this machine cannot run the cases, such as a server that is not there; then each of them prints it
    /// as its skip. Asked before [`start`](Self::start).
    fn unavailable() -> Option<String> {
        None
    }

    /// A fresh store with its tables, with no event and no destination, that no other case sees.
    fn start() -> impl Future<Output = Self> + Send;

    /// Another handle on the store, as another process would have it. Handles share nothing but
    /// the store.
    fn source(&self) -> Arc<dyn OutboxSource>;

    /// Stages the events in one transaction of a producer, in their order, and commits it.
    ///
    /// # Errors
    /// What `enqueue` or the commit says; then nothing was committed.
    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>>;

    /// Stages the events in one transaction of a producer, and rolls it back.
    ///
    /// # Errors
    /// What `enqueue` says.
    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>>;

    /// Begins a producer's transaction that stays open beside others. Only for stores that declare
    /// `overlapping_writers`.
    ///
    /// # Errors
    /// What the store says.
    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        Box::pin(async {
            Err(Error::new(ErrorKind::Invalid, "begin")
                .message("this store has one writer at a time"))
        })
    }

    /// Lets time pass on the store's clock. A virtual clock advances; a real one is waited for.
    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        // waits: a real clock has to pass
        Box::pin(tokio::time::sleep(span))
    }

    /// The store's clock, now.
    fn now(&self) -> BoxFuture<'_, Timestamp> {
        Box::pin(async { Timestamp::now() })
    }

    /// A span that the store's clock tells apart from its neighbours even on a busy machine. Short
    /// leases and delays of the cases last a few of them. Default 300 ms; a virtual clock may say
    /// more, as it costs nothing.
    fn unit(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// How long [`wake`](OutboxSource::wake) may take after a commit on a busy machine. Default 45 s; a store that is
    /// known never to wake need not be waited for as long.
    fn wakes_within(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// Commits a row that is no event, in the partition of the key `order/malformed`, past whatever
    /// the store checks; `None` if the store lets nobody do that.
    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }

    /// Asks the owners of the partitions for a change of deliveries, as
    /// [`Operator::submit`](postrider_core::Operator::submit) does; `None` if the store has no
    /// operator's side.
    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        let _ = submission;
        None
    }

    /// How far a request is carried out. Only for stores that take requests.
    ///
    /// # Errors
    /// What the store says.
    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Box::pin(async move {
            Err(Error::new(ErrorKind::NotFound, "find request").context("request", id.0))
        })
    }

    /// Lets a partition be owned, or not; `None` if the store cannot.
    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        let _ = (partition, paused);
        None
    }

    /// Erases the payloads and headers of a key's events wherever they stand; `None` if the store
    /// cannot.
    fn erase<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, Result<()>>> {
        let _ = key;
        None
    }

    /// Makes the store's numbers lie behind every saved cursor, as after a restore; `None` if that
    /// cannot be done.
    fn rewind(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }
}

/// A producer's transaction that is open beside others. Dropping it rolls it back.
pub trait OpenTransaction: Send {
    /// Stages events; the store draws their numbers now.
    ///
    /// # Errors
    /// What `enqueue` says.
    fn enqueue(&mut self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>>;

    /// Commits: now the events are there.
    ///
    /// # Errors
    /// What the store says; then nothing was committed.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// Rolls back: there never was an event.
    ///
    /// # Errors
    /// What the store says.
    fn roll_back(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}
