//! The contract suites, passed as every store passes them.

use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::operate::{Note, RequestId, RequestState, Submission};
use postrider_core::{
    BoxFuture, Error, ErrorKind, Event, HandlerName, InboxStore, NewEvent, Operator, OutboxSource,
    PartitionId, Result,
};
use postrider_sqlite::{Outbox, accept};
use postrider_testkit::suite::{InboxHarness, StoreHarness, Then, TransactionalProbe};

use crate::support::{Fresh, number};

struct Harness(Arc<Fresh>);

impl Harness {
    fn stage(&self, events: &[NewEvent], commit: bool) -> Result<()> {
        let mut connection = self.0.connect();
        let tx = connection.transaction().expect("begin");
        let outbox = Outbox::new();
        for event in events {
            outbox.enqueue(&tx, event)?;
        }
        if commit {
            tx.commit().expect("commit");
        }
        Ok(())
    }
}

impl StoreHarness for Harness {
    async fn start() -> Harness {
        Harness(Arc::new(Fresh::new()))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.0.store())
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.stage(&events, true) })
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.stage(&events, false) })
    }

    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            let connection = self.0.connect();
            connection
                .execute_batch(
                    "pragma ignore_check_constraints = on;
                    insert into outbox (id, aggregate_type, aggregate_id, event_type, payload)
                    values ('no uuid', 'order', 'malformed', 'order.placed', '{}')",
                )
                .expect("the checks are ignored");
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
            self.0
                .connect()
                .execute_batch(
                    "delete from outbox; update sqlite_sequence set seq = 0 where name = 'outbox'",
                )
                .expect("the sequence is reset");
            Ok(())
        }))
    }
}

fn note() -> Note {
    Note::new("suite", "a case of the contract").expect("a valid note")
}

struct Inbox(Arc<Fresh>);

impl InboxHarness for Inbox {
    async fn start() -> Inbox {
        let fresh = Fresh::new();
        fresh.connect().execute_batch("create table effects (event text)").expect("a table");
        Inbox(Arc::new(fresh))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.0.store())
    }

    fn purges_claims(&self) -> bool {
        true
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Probe(Arc::clone(&self.0))))
    }
}

struct Probe(Arc<Fresh>);

impl TransactionalProbe for Probe {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            let mut connection = self.0.connect();
            let tx = connection
                .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                .map_err(|e| Error::new(ErrorKind::Busy, "begin").source(e))?;
            let accepted = accept(&tx, event, handler)?;
            if accepted == Accepted::FirstTime {
                tx.execute("insert into effects values (?1)", [event.id.to_string()])
                    .expect("the effect");
            }
            match then {
                Then::Commit => tx.commit().expect("commit"),
                Then::Fail => tx.rollback().expect("roll back"),
                Then::Abandon => drop(tx),
            }
            Ok(accepted)
        })
    }

    fn effects(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            number(&self.0.connect(), "select count(*) from effects").cast_unsigned()
        })
    }
}

postrider_testkit::store_suite!(Harness);
postrider_testkit::source_suite!(Harness);
postrider_testkit::inbox_suite!(Inbox);
