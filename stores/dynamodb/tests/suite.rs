//! The contract suites, on DynamoDB Local: in tables of our own, and among the items of an application's table.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use postrider_core::operate::{Note, RequestId, RequestState, Submission, Verb};
use postrider_core::{
    BoxFuture, Error, ErrorKind, NewEvent, Operator, OutboxSource, PartitionId, Result,
};
use postrider_dynamodb::{ACTIONS_MAX, DynamoStore, Options, Outbox, Staged};
use postrider_testkit::suite::{OpenTransaction, StoreHarness};

use crate::fresh::{self, Fresh};

/// Keys of the cases spread over more than one.
const PARTITIONS: u16 = 3;

/// Where the events of a harness are.
trait Place: Send + Sync + 'static {
    /// Whether relays read the table's stream, too.
    const STREAM: bool = false;

    /// Tables of a case's own.
    fn make() -> impl Future<Output = Option<Fresh>> + Send;

    /// What the application writes of a key's item in the transaction of its events.
    fn of_application(fresh: &Fresh, keys: &BTreeSet<String>) -> Vec<TransactWriteItem>;
}

/// An outbox table of our own.
struct Apart;

impl Place for Apart {
    async fn make() -> Option<Fresh> {
        Fresh::new(PARTITIONS).await
    }

    fn of_application(_: &Fresh, _: &BTreeSet<String>) -> Vec<TransactWriteItem> {
        Vec::new()
    }
}

/// The one table that the application has, where an item and its events are one collection, read by stream and index.
struct Among;

impl Place for Among {
    const STREAM: bool = true;

    async fn make() -> Option<Fresh> {
        Fresh::among(PARTITIONS).await
    }

    fn of_application(fresh: &Fresh, keys: &BTreeSet<String>) -> Vec<TransactWriteItem> {
        let names = &fresh.settings.names;
        let write = |key: &String| {
            let update = Update::builder()
                .table_name(&names.outbox)
                .key(&names.pk, AttributeValue::S(key.clone()))
                .key(&names.sk, AttributeValue::S("METADATA".to_owned()))
                .update_expression("ADD changes :one")
                .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
            TransactWriteItem::builder().update(update.build().unwrap()).build()
        };
        keys.iter().map(write).collect()
    }
}

/// A store in tables of its own.
struct Harness<P> {
    fresh: Fresh,
    outbox: Outbox,
    /// A relay that stands by from the beginning. The handles of a case share what it saw: relays that are
    /// there look at each other's heartbeats all the time, and the cases make theirs when they need them.
    standing_by: DynamoStore,
    place: PhantomData<P>,
}

impl<P: Place> StoreHarness for Harness<P> {
    /// More than three transactions, each of which takes the emulator its time.
    const LARGE: u32 = 300;

    fn unavailable() -> Option<String> {
        fresh::url().err()
    }

    async fn start() -> Harness<P> {
        let fresh = P::make().await.expect("the server was found before");
        let outbox = Outbox::open(&fresh.connection).await.expect("the store opens");
        let mut options = Options::default();
        options.stream = P::STREAM;
        let standing_by = DynamoStore::with(fresh.connection.clone(), options);
        Harness { fresh, outbox, standing_by, place: PhantomData }
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.standing_by.beside())
    }

    /// A transaction takes a hundred actions. The one case with more events asks for their order alone, and
    /// gets several transactions.
    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut rest = &*events;
            while !rest.is_empty() {
                let mut keys = BTreeSet::new();
                let fits = rest.iter().enumerate().take_while(|(index, event)| {
                    keys.insert(event.key());
                    let others = P::of_application(&self.fresh, &keys).len();
                    index + 1 + keys.len() + others <= ACTIONS_MAX
                });
                let (now, later) = rest.split_at(fits.count());
                let keys = now.iter().map(NewEvent::key).collect();
                self.outbox.write(&P::of_application(&self.fresh, &keys), now).await?;
                rest = later;
            }
            Ok(())
        })
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.outbox.stage(&events).await.map(drop) })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        Box::pin(async {
            let open = Open {
                outbox: self.outbox.clone(),
                client: self.fresh.connection.tables().await.clone(),
                events: Vec::new(),
                staged: Staged::default(),
            };
            Ok(Box::new(open) as Box<dyn OpenTransaction>)
        })
    }

    /// A real clock, while relays that stand by look at the heartbeats.
    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let end = Instant::now() + span;
            loop {
                self.standing_by.watch().await.expect("the heartbeats are read");
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                // waits: a real clock has to pass
                tokio::time::sleep(left.min(self.unit() / 4)).await;
            }
        })
    }

    /// What rewinds a cursor is refused, because there is none; and so is a requeue by the number that an
    /// event had before it was settled, because no item keeps it: `tests/operator.rs` requeues what was listed.
    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        match submission.verb {
            Verb::Rewind { .. } | Verb::Requeue(_) => None,
            _ => Some(self.standing_by.submit(submission)),
        }
    }

    fn erase<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            let note = Note::new("suite", "a case of the contract")?;
            self.standing_by.erase(key, &note).await.map(drop)
        }))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Operator::request(&self.standing_by, id)
    }

    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async move {
            let note = Note::new("suite", "a case of the contract")?;
            self.standing_by.set_partition(partition, paused, &note).await
        }))
    }

    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            let key = "order/malformed";
            let names = &self.fresh.settings.names;
            let client = self.fresh.connection.tables().await;
            let text = |text: &str| AttributeValue::S(text.to_owned());
            let get = client.get_item().table_name(&names.outbox).key(&names.pk, text(key));
            let head = Box::pin(get.key(&names.sk, text("HEAD#OUTBOX")).send()).await;
            let head = head.expect("the head").item.unwrap_or_default();
            let last = head.get("n").map_or(0, |n| n.as_n().unwrap().parse().unwrap());
            let mut item =
                self.outbox.item(key, last + 1, &NewEvent::new("order", "malformed", "t"))?;
            let kept = [&*names.pk, &*names.sk, "pr_shard", "pr_at"];
            item.retain(|name, _| kept.contains(&&**name));
            let put = client.put_item().table_name(&names.outbox).set_item(Some(item));
            Box::pin(put.send()).await.expect("put");
            let head = client
                .update_item()
                .table_name(&names.outbox)
                .key(&names.pk, text(key))
                .key(&names.sk, text("HEAD#OUTBOX"))
                .update_expression("SET n = :n")
                .expression_attribute_values(":n", AttributeValue::N((last + 1).to_string()));
            Box::pin(head.send()).await.expect("update");
            Ok(())
        }))
    }
}

/// What an application would send. Its numbers are drawn when it enqueues.
struct Open {
    outbox: Outbox,
    client: aws_sdk_dynamodb::Client,
    events: Vec<NewEvent>,
    staged: Staged,
}

impl OpenTransaction for Open {
    fn enqueue(&mut self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.events.extend(events);
            self.staged = self.outbox.stage(&self.events).await?;
            Ok(())
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let actions = Some(self.staged.into_actions());
            let send = self.client.transact_write_items().set_transact_items(actions);
            Box::pin(send.send()).await.map(drop).map_err(|error| {
                Error::new(ErrorKind::Conflict, "commit").message(format!("{error:?}"))
            })
        })
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

postrider_testkit::store_suite!(Harness<Apart>);
postrider_testkit::source_suite!(Harness<Apart>);

/// Whatever a store has to do, it does in the one table that the application has, whose items are written in the same
/// transactions. Each case has tables of its own and waits for real leases, so a run of them all takes a minute: one
/// more run has the shared table and the stream at once, and not a run for each.
mod among {
    use super::{Among, Harness};

    postrider_testkit::store_suite!(Harness<Among>);
    postrider_testkit::source_suite!(Harness<Among>);
}
