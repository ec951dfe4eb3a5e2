//! The contract suites, on DynamoDB Local.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::operate::{Note, RequestId, RequestState, Submission, Verb};
use postrider_core::{
    BoxFuture, Error, ErrorKind, NewEvent, Operator, OutboxSource, PartitionId, Result,
};
use postrider_dynamodb::{ACTIONS_MAX, DynamoStore, Options, Outbox, Staged};
use postrider_testkit::suite::{OpenTransaction, StoreHarness};

use crate::fresh::{self, Fresh};

/// Keys of the cases spread over more than one.
const PARTITIONS: u16 = 3;

/// A store in tables of its own.
struct Harness {
    fresh: Fresh,
    outbox: Outbox,
    /// A relay that stands by from the beginning. The handles of a case share what it saw: relays that are
    /// there look at each other's heartbeats all the time, and the cases make theirs when they need them.
    standing_by: DynamoStore,
}

impl StoreHarness for Harness {
    fn unavailable() -> Option<String> {
        fresh::url().err()
    }

    async fn start() -> Harness {
        let fresh = Fresh::new(PARTITIONS).await.expect("the server was found before");
        let outbox = Outbox::open(&fresh.connection).await.expect("the store opens");
        // The index alone must do; the stream has tests of its own.
        let mut options = Options::default();
        options.stream = false;
        let standing_by = DynamoStore::with(fresh.connection.clone(), options);
        Harness { fresh, outbox, standing_by }
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
                    index + 1 + keys.len() <= ACTIONS_MAX
                });
                let (now, later) = rest.split_at(fits.count());
                self.outbox.write(&[], now).await?;
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
            let get = client.get_item().table_name(&names.outbox).key("pk", text(key));
            let head = Box::pin(get.key("sk", text("HEAD#OUTBOX")).send()).await;
            let head = head.expect("the head").item.unwrap_or_default();
            let last = head.get("n").map_or(0, |n| n.as_n().unwrap().parse().unwrap());
            let mut item =
                self.outbox.item(key, last + 1, &NewEvent::new("order", "malformed", "t"))?;
            item.retain(|name, _| ["pk", "sk", "pr_shard", "pr_at"].contains(&&**name));
            let put = client.put_item().table_name(&names.outbox).set_item(Some(item));
            Box::pin(put.send()).await.expect("put");
            let head = client
                .update_item()
                .table_name(&names.outbox)
                .key("pk", text(key))
                .key("sk", text("HEAD#OUTBOX"))
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

postrider_testkit::store_suite!(Harness);
postrider_testkit::source_suite!(Harness);
