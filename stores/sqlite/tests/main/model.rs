//! The lease table and the inbox rows against the test kit's models, on a clock that can be moved.
//!
//! SQLite's clock is the machine's. So that hours can pass in a test, what is written down moves
//! instead: every moment in the tables goes back by the span. Hours, so that the milliseconds that a
//! call takes decide nothing.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::{
    BoxFuture, Error, ErrorKind, Event, HandlerName, InboxStore, NewEvent, OutboxSource, Result,
};
use postrider_sqlite::{Outbox, accept};
use postrider_testkit::suite::model::{Effort, Mixed};
use postrider_testkit::suite::{InboxHarness, StoreHarness, Then, TransactionalProbe};
use rusqlite::{Connection, TransactionBehavior};

use crate::support::{Fresh, number};

/// A store whose time passes when it is told to, and a connection of the application's.
struct Shifted {
    fresh: Fresh,
    application: Arc<Mutex<Connection>>,
}

fn held(application: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    application.lock().expect("nobody panics with it")
}

impl Shifted {
    fn new() -> Shifted {
        let fresh = Fresh::new();
        let application = fresh.connect();
        application.execute_batch("create table effects (event text)").expect("a table");
        Shifted { fresh, application: Arc::new(Mutex::new(application)) }
    }

    fn shift(&self, span: Duration) {
        let millis = i64::try_from(span.as_millis()).expect("a span of a test");
        let mut application = held(&self.application);
        let tx = application.transaction().expect("begin");
        for statement in [
            "update outbox_lease set expires_at = expires_at - ?1, free_since = free_since - ?1",
            "update outbox_relay set expires_at = expires_at - ?1",
            // What was let go stands below zero, mirrored.
            "update inbox set expires_at = expires_at + ?1 * case when expires_at < 0 then 1 else -1 end",
            "update inbox set received_at = received_at - ?1, processed_at = processed_at - ?1",
        ] {
            tx.execute(statement, [millis]).expect(statement);
        }
        tx.commit().expect("commit");
    }

    /// Stages events in a transaction of the application, which ends as told.
    fn stage(&self, events: &[NewEvent], commit: bool) -> Result<()> {
        let mut application = held(&self.application);
        let tx = application.transaction().expect("begin");
        Outbox::new().enqueue_many(&tx, events)?;
        if commit {
            tx.commit().expect("commit");
        }
        Ok(())
    }
}

impl StoreHarness for Shifted {
    async fn start() -> Shifted {
        Shifted::new()
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(self.fresh.store())
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.stage(&events, true) })
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.stage(&events, false) })
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.shift(span) })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(3_600)
    }
}

impl InboxHarness for Shifted {
    async fn start() -> Shifted {
        Shifted::new()
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.fresh.store())
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.shift(span) })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    fn purges_claims(&self) -> bool {
        true
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Handler(Arc::clone(&self.application))))
    }
}

/// A handler of the application, which accepts and writes its effect in one transaction.
struct Handler(Arc<Mutex<Connection>>);

impl TransactionalProbe for Handler {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            let mut application = held(&self.0);
            let tx = application
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(|e| Error::new(ErrorKind::Unavailable, "begin").source(e))?;
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
        Box::pin(async { number(&held(&self.0), "select count(*) from effects").cast_unsigned() })
    }
}

postrider_testkit::lease_model!(Shifted, Effort::of(8, 40));
postrider_testkit::inbox_model!(Shifted, Effort::of(8, 50), Mixed::Yes);
