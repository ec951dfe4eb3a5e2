//! The contract suites over each layout. What it cannot hold is left out with the reason printed: a
//! layout with few columns passes the suite of the source alone.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{Note, RequestId, RequestState, Submission, Verb};
use postrider_core::{
    BoxFuture, Error, ErrorKind, NewEvent, Operator, OutboxSource, PartitionId, Result,
};
use postrider_testkit::suite::{OpenTransaction, StoreHarness};
use tokio_postgres::Client;

use super::table::{Layout, Own};
use crate::pool::Kind;
use crate::support::{Fresh, USUAL, server};

/// A table in one of the layouts, on a clock that is set forward.
struct Harness<const LAYOUT: u8>(Arc<Own>);

impl<const LAYOUT: u8> StoreHarness for Harness<LAYOUT> {
    fn unavailable() -> Option<String> {
        server(USUAL).err()
    }

    async fn start() -> Self {
        let (url, layout) = (server(USUAL).expect("a server: asked before"), Layout::of(LAYOUT));
        let kind = Kind { url, partitions: 1, pooled: false, beside: layout.make() };
        Harness(Arc::new(Own { fresh: Fresh::lent(kind).await, layout }))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.0.source())
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.0.commit(&events).await })
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let client = self.0.fresh.connect().await;
            client.batch_execute("begin").await.expect("begin");
            self.0.stage(&client, &events).await?;
            client.batch_execute("rollback").await.expect("roll back");
            Ok(())
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        Box::pin(async {
            let client = self.0.fresh.connect().await;
            client.batch_execute("begin").await.expect("begin");
            Ok(Box::new(Open { own: Arc::clone(&self.0), client }) as Box<dyn OpenTransaction>)
        })
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.0.fresh.pass_time(span))
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.0.fresh.run(self.0.layout.malformed()).await;
            Ok(())
        }))
    }

    // Nothing is erased in a table of the application's own: `erase` stays what it is by default.

    /// What was published is marked in the application's own table, and is not sent from there again.
    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        if matches!(submission.verb, Verb::Requeue(_) | Verb::Rewind { .. }) {
            return None;
        }
        Some(Box::pin(async { self.0.source().store().submit(submission).await }))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Box::pin(async move { self.0.source().store().request(id).await })
    }

    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async move {
            self.0.source().store().set_partition(partition, paused, &note()).await
        }))
    }
}

fn note() -> Note {
    Note::new("suite", "a case of the contract").expect("a valid note")
}

struct Open {
    own: Arc<Own>,
    client: Client,
}

impl OpenTransaction for Open {
    fn enqueue(&mut self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.own.stage(&self.client, &events).await })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { end(&self.client, "commit").await })
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { end(&self.client, "rollback").await })
    }
}

async fn end(client: &Client, how: &str) -> Result<()> {
    let ended = client.batch_execute(how).await;
    ended.map_err(|error| Error::new(ErrorKind::Unavailable, "commit").source(error))
}

mod published_at {
    use super::*;

    postrider_testkit::store_suite!(Harness<0>);
    postrider_testkit::source_suite!(Harness<0>);
}

mod status {
    use super::*;

    postrider_testkit::source_suite!(Harness<1>);
}

mod debezium {
    use super::*;

    postrider_testkit::source_suite!(Harness<2>);
}
