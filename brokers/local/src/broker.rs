//! The broker's handle: publishing, subscribing, looking, dead letters, retention.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Format, Outcome, Outgoing, Result,
    TargetUrl, cloudevents,
};

use crate::database::{Access, Database, Scope};
use crate::dead_letter::{self, DeadLetter};
use crate::encode::encode;
use crate::options::{LocalOptions, PurgeOptions, SubscribeOptions, Topics};
use crate::read::{self, StoredMessage};
use crate::subscription::LocalSubscription;
use crate::trouble::Trouble;
use crate::worker::Worker;
use crate::{group, purge, store};

/// How many messages one look at the log loads at once.
const PAGE_ROWS: usize = 1_000;

/// A durable broker in one file. Cheap to clone; clones share a connection and its thread.
///
/// **Durability.** An event is acknowledged after its transaction was synced to disk.
/// **Cancellation.** A publish that is dropped before its transaction began stores nothing; later it
/// may be stored although nobody is told. At most the calls in flight, four batches, are affected.
/// **Stale publishers.** A process that is paused in the middle of a call can store that call's batch
/// when it wakes, at most four batches: duplicates of what its successor published.
#[derive(Clone)]
pub struct LocalBroker {
    worker: Worker,
    options: LocalOptions,
    /// Publishing is refused.
    closed: Arc<AtomicBool>,
    /// The same, as the thread knows it.
    ended: Arc<AtomicBool>,
}

impl std::fmt::Debug for LocalBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalBroker").field("file", &self.worker.path()).finish_non_exhaustive()
    }
}

impl LocalBroker {
    /// Opens the broker's file with the default limits, and makes it if there is none. Blocks for as
    /// long as opening a file takes.
    ///
    /// # Errors
    /// `Corrupt` if the file is no database, `Config` if it is another one, `SchemaTooNew` if a newer
    /// version made it, `ReadOnly`, `DiskFull`, `Busy`, or `Unavailable` if its folder is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<LocalBroker> {
        LocalBroker::open_with(path, LocalOptions::default())
    }

    /// Opens the broker's file with limits of one's own.
    ///
    /// # Errors
    /// As [`open`](LocalBroker::open).
    pub fn open_with(path: impl AsRef<Path>, options: LocalOptions) -> Result<LocalBroker> {
        let database = Database::open(path.as_ref(), &options)?;
        // The thread ends by itself when its last handle is gone; nobody needs to wait for it.
        let (worker, _) = Worker::start(database)?;
        Ok(LocalBroker {
            worker,
            options: LocalOptions {
                document_bytes_max: options.document_bytes_max.min(cloudevents::DOCUMENT_BYTES_MAX),
                ..options
            },
            closed: Arc::default(),
            ended: Arc::default(),
        })
    }

    /// Opens the broker of an address, `local://PATH`.
    ///
    /// # Errors
    /// `Config` for another scheme or for parameters, which there are none of; else as
    /// [`open`](LocalBroker::open).
    pub fn from_url(url: &TargetUrl) -> Result<LocalBroker> {
        if url.scheme() != "local" || url.expose() != url.path() {
            return Err(Error::new(ErrorKind::Config, "open local broker")
                .message("the address is local://PATH, without parameters")
                .context("address", url));
        }
        LocalBroker::open(url.path())
    }

    /// Subscribes a consumer to topics, as an instance of a group. A group that is new is made, and
    /// begins where the options say; one that exists goes on where it is, also with other topics:
    /// those it now reads for the first time begin where the group began.
    ///
    /// # Errors
    /// `Config` if the name is empty or too long, or there are too many groups; else what the file
    /// says.
    pub async fn subscribe(
        &self,
        group: &str,
        topics: impl Into<Topics>,
        options: SubscribeOptions,
    ) -> Result<LocalSubscription> {
        let topics = Arc::new(topics.into());
        let (name, wanted) = (group.to_owned(), Arc::clone(&topics));
        let groups_max = self.options.groups_max;
        let group_id = self
            .worker
            .call("subscribe", Access::Durable, move |scope| {
                group::join(scope, &name, &wanted, options.start, groups_max)
            })
            .await?;
        Ok(LocalSubscription::new(self.worker.clone(), group_id, topics, options))
    }

    /// All messages of a topic, in order, without consuming them. For looking at small topics: they
    /// are all loaded; [`messages_after`](LocalBroker::messages_after) loads a page.
    ///
    /// # Errors
    /// `Corrupt` if a stored document is no event; else what the file says.
    pub async fn messages(&self, topic: &str) -> Result<Vec<StoredMessage>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |last: &StoredMessage| last.offset);
            let page = self.messages_after(topic, after, PAGE_ROWS).await?;
            let last = page.len() < PAGE_ROWS;
            all.extend(page);
            if last {
                return Ok(all);
            }
        }
    }

    /// Up to `max` messages of a topic whose number is greater than `after`, in order.
    ///
    /// # Errors
    /// As [`messages`](LocalBroker::messages).
    pub async fn messages_after(
        &self,
        topic: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<StoredMessage>> {
        let topic = topic.to_owned();
        self.worker
            .call("read messages", Access::Read, move |scope| {
                read::messages(scope, &topic, after.cast_signed(), max)
            })
            .await
    }

    /// The names of all topics that ever had a message, sorted.
    ///
    /// # Errors
    /// What the file says.
    pub async fn topics(&self) -> Result<Vec<String>> {
        self.worker.call("list topics", Access::Read, read::topics).await
    }

    /// A group's dead letters, in the log's order. All are loaded;
    /// [`dead_letters_after`](LocalBroker::dead_letters_after) loads a page.
    ///
    /// # Errors
    /// `NotFound` if there is no such group; else what the file says.
    pub async fn dead_letters(&self, group: &str) -> Result<Vec<DeadLetter>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |last: &DeadLetter| last.offset);
            let page = self.dead_letters_after(group, after, PAGE_ROWS).await?;
            let last = page.len() < PAGE_ROWS;
            all.extend(page);
            if last {
                return Ok(all);
            }
        }
    }

    /// Up to `max` dead letters of a group whose number is greater than `after`, in order.
    ///
    /// # Errors
    /// As [`dead_letters`](LocalBroker::dead_letters).
    pub async fn dead_letters_after(
        &self,
        group: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<DeadLetter>> {
        let name = group.to_owned();
        self.worker
            .call("list dead letters", Access::Read, move |scope| {
                let group_id = group::need(scope, &name)?;
                dead_letter::list(scope, group_id, after.cast_signed(), max)
            })
            .await
    }

    /// Sends one dead letter to its group again, with the same id, marked late. Its deliveries are
    /// counted from the beginning.
    ///
    /// # Errors
    /// `NotFound` if there is no such group or no such dead letter; else what the file says.
    pub async fn redrive(&self, group: &str, offset: u64) -> Result<()> {
        let name = group.to_owned();
        self.worker
            .call("redrive", Access::Durable, move |scope| {
                let group_id = group::need(scope, &name)?;
                dead_letter::redrive(scope, group_id, offset.cast_signed())
            })
            .await
    }

    /// Gives one dead letter up for good.
    ///
    /// # Errors
    /// As [`redrive`](LocalBroker::redrive).
    pub async fn discard(&self, group: &str, offset: u64) -> Result<()> {
        let name = group.to_owned();
        self.worker
            .call("discard", Access::Durable, move |scope| {
                let group_id = group::need(scope, &name)?;
                dead_letter::discard(scope, group_id, offset.cast_signed())
            })
            .await
    }

    /// Removes old messages that every group which reads them has settled, at most as many as the
    /// options say, and returns how many. Call it again while it returns that many.
    ///
    /// # Errors
    /// What the file says; then nothing was removed.
    pub async fn purge(&self, options: PurgeOptions) -> Result<u64> {
        self.worker.call("purge", Access::Write, move |scope| purge::purge(scope, &options)).await
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "publish").message("the broker was closed"));
        }
        let encoded = encode(batch, self.options.document_bytes_max);
        if encoded.entries.is_empty() {
            return Ok(encoded.outcomes);
        }
        let topics_max = self.options.topics_max;
        let ended = Arc::clone(&self.ended);
        let store = move |scope: &Scope<'_>| {
            // Closed between the look above and this job.
            if ended.load(Ordering::Relaxed) {
                return Err(Trouble::Said(ErrorKind::Closed, "the broker was closed".to_owned()));
            }
            store::store(scope, encoded, topics_max)
        };
        self.worker.call("publish", Access::Durable, store).await
    }
}

impl Broker for LocalBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = BrokerCapabilities::least();
        can.prefix_order = true;
        can.keeps_key_order = true;
        // On purpose: what a retry doubles is to reach consumers here as it does elsewhere.
        can.deduplicates_for = None;
        can.durable = true;
        can.formats = &[Format::Structured];
        can.batch_rows_max = 1_000;
        can.batch_bytes_max = 4 * 1024 * 1024;
        can.batches_in_flight_max = 4;
        can.endpoint_batches_max = 4;
        can
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_batch(batch))
    }

    /// Publishing ends; subscriptions and looking go on.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.closed.store(true, Ordering::Release);
            // Jobs are done in order: when this one is, all publishes before it are, and none
            // behind it is.
            let ended = Arc::clone(&self.ended);
            let end = move |_: &Scope<'_>| {
                ended.store(true, Ordering::Relaxed);
                Ok(())
            };
            self.worker.call("close", Access::Read, end).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Event, EventId, Marks};

    /// A publish that looked before the broker was closed, and came behind the end, stores
    /// nothing: `close` said that nothing more is sent.
    #[tokio::test]
    async fn a_publish_that_is_overtaken_by_the_end_stores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let broker = LocalBroker::open(folder.path().join("broker.db")).unwrap();
        broker.close().await.unwrap();
        broker.closed.store(false, Ordering::Release);
        let event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
        let outgoing = Outgoing {
            event: Arc::new(event),
            topic: Arc::from("orders"),
            format: Format::default(),
            layout: None,
            marks: Marks::default(),
            attempt: 1,
        };
        let refused = broker.publish(&[outgoing]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed, "{refused}");
    }
}
