//! The contract suites, passed as every store passes them: with few partitions on the database's own clock, and, on
//! PostgreSQL's current major, with as many as a store has by default on a clock that is set forward.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{Note, RequestId, RequestState, Submission};
use postrider_core::{
    BoxFuture, Error, ErrorKind, NewEvent, Operator, OutboxSource, PartitionId, Result,
};
use postrider_postgres::Outbox;
use postrider_testkit::suite::{OpenTransaction, StoreHarness};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Client;

use crate::pool::Kind;
use crate::support::{CURRENT, Fresh, USUAL, server};

/// A store with so many partitions, whose clock goes by itself or is set forward, on one of the servers.
pub(crate) struct Harness<const PARTITIONS: u16, const SHIFTED: bool, const SERVER: u8 = USUAL>(
    pub(crate) Arc<Fresh>,
);

impl<const PARTITIONS: u16, const SHIFTED: bool, const SERVER: u8>
    Harness<PARTITIONS, SHIFTED, SERVER>
{
    async fn stage(&self, events: &[NewEvent], commit: bool) -> Result<()> {
        let mut client = self.0.session().await;
        let tx = client.transaction().await.expect("begin");
        let outbox = Outbox::named(self.0.names.clone());
        for event in events {
            outbox.enqueue(&tx, event).await?;
        }
        match commit {
            true => {
                tx.commit().await.expect("commit");
                self.0.committed();
            }
            false => tx.rollback().await.expect("roll back"),
        }
        self.0.keep(client);
        Ok(())
    }
}

impl<const PARTITIONS: u16, const SHIFTED: bool, const SERVER: u8> StoreHarness
    for Harness<PARTITIONS, SHIFTED, SERVER>
{
    fn unavailable() -> Option<String> {
        server(SERVER).err()
    }

    async fn start() -> Self {
        let url = server(SERVER).expect("a server: asked before");
        let kind = Kind { url, partitions: PARTITIONS, pooled: false, beside: "" };
        Harness(Arc::new(Fresh::lent(kind).await))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.0.store())
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.stage(&events, true).await })
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.stage(&events, false).await })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        Box::pin(async {
            let (client, outbox) = (self.0.connect().await, Outbox::named(self.0.names.clone()));
            let (orders, taken) = mpsc::channel(1);
            tokio::spawn(produce(client, outbox, taken));
            Ok(Box::new(Open { orders }) as Box<dyn OpenTransaction>)
        })
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match SHIFTED {
                true => self.0.pass_time(span).await,
                // waits: the database's clock has to pass
                false => tokio::time::sleep(span).await,
            }
        })
    }

    fn unit(&self) -> Duration {
        if SHIFTED { Duration::from_secs(3_600) } else { Duration::from_millis(300) }
    }

    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.0
                .run(
                    "begin;
                    set local session_replication_role = replica;
                    insert into {outbox} (partition, aggregate_type, aggregate_id, event_type, payload,
                        headers)
                    values ({outbox_partition_of}('order/malformed'), 'order', 'malformed',
                        'order.placed', '{}', '[1]');
                    commit",
                )
                .await;
            Ok(())
        }))
    }

    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        Some(Box::pin(async { self.0.store().submit(submission).await }))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Box::pin(async move { self.0.store().request(id).await })
    }

    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(
            async move { self.0.store().set_partition(partition, paused, &note()).await },
        ))
    }

    fn erase<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move { self.0.store().erase(key, &note()).await.map(drop) }))
    }

    fn rewind(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.0.run("delete from {outbox}; select setval({text:outbox_seq}, 1, false)").await;
            Ok(())
        }))
    }
}

fn note() -> Note {
    Note::new("suite", "a case of the contract").expect("a valid note")
}

impl Fresh {
    /// Makes everything older: as if the clock had been set forward.
    pub(crate) async fn pass_time(&self, span: Duration) {
        let back = format!("- interval '{} us'", span.as_micros());
        let shift = format!(
            "begin;
            set local postrider.repair = 'on';
            update {{outbox_lease}} set free_since = free_since {back};
            update {{outbox_renewal}}
                set expires_at = expires_at {back}, aging_since = aging_since {back};
            update {{outbox_settled}} set saved_at = saved_at {back};
            update {{outbox_relay}} set expires_at = expires_at {back};
            update {{outbox_waiting}} set next_at = next_at {back}, moved_at = moved_at {back};
            update {{outbox_scheduled}} set due_at = due_at {back}, created_at = created_at {back};
            update {{outbox}} set created_at = created_at {back};
            commit"
        );
        self.run(&shift).await;
    }
}

/// What a producer's transaction is told to do, with where to answer.
enum Order {
    Enqueue(Vec<NewEvent>),
    End { commit: bool },
}

type Told = (Order, oneshot::Sender<Result<()>>);

/// A producer that keeps its transaction open until it is told to end it. Nobody to tell it: rolled back.
async fn produce(mut client: Client, outbox: Outbox, mut orders: mpsc::Receiver<Told>) {
    let tx = client.transaction().await.expect("begin");
    while let Some((order, answer)) = orders.recv().await {
        match order {
            Order::Enqueue(events) => {
                let staged = outbox.enqueue_many(&tx, &events).await.map(drop);
                _ = answer.send(staged);
            }
            Order::End { commit } => {
                let ended = if commit { tx.commit().await } else { tx.rollback().await };
                _ =
                    answer.send(ended.map_err(|error| {
                        Error::new(ErrorKind::Unavailable, "commit").source(error)
                    }));
                return;
            }
        }
    }
}

struct Open {
    orders: mpsc::Sender<Told>,
}

impl Open {
    async fn tell(&self, order: Order) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.orders.send((order, answer)).await.expect("the producer lives");
        answered.await.expect("the producer answers")
    }
}

impl OpenTransaction for Open {
    fn enqueue(&mut self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.tell(Order::Enqueue(events)).await })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.tell(Order::End { commit: true }).await })
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.tell(Order::End { commit: false }).await })
    }
}

mod few {
    use super::*;

    postrider_testkit::store_suite!(Harness<4, false>);
    postrider_testkit::source_suite!(Harness<4, false>);
}

/// On PostgreSQL's current major.
mod current {
    use super::*;

    postrider_testkit::store_suite!(Harness<32, true, CURRENT>);
    postrider_testkit::source_suite!(Harness<32, true, CURRENT>);
}

mod model {
    use super::*;
    use postrider_testkit::suite::model::Effort;

    postrider_testkit::lease_model!(Harness<1, true>, Effort::of(8, 60));

    mod current {
        use super::*;

        postrider_testkit::lease_model!(Harness<1, true, CURRENT>, Effort::of(4, 60));
    }
}
